"""Copies of any project merged in all its files, and what became of what it patches over."""

from __future__ import annotations

import argparse
import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
from sources_kit import commit, write_tree

from npu_upgrade.code.module import Unit
from npu_upgrade.commands import merge
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.lineage.alike import Candidate
from npu_upgrade.merge.copies import _misfit, _never
from npu_upgrade.program.program import Program
from npu_upgrade.sources.tree import open_source


def steps(word: str, indent: str = "    ", **changed: str) -> str:
    return "".join(f"{indent}{changed.get(f'_{n}', f'self.{word}_{n}(batch)')}\n" for n in range(12))


def core(**changed: str) -> dict[str, str]:
    """An upstream with a function, a method and things that are patched over."""
    return {
        "core/__init__.py": "",
        "core/mill.py": f"def grind(self, batch):\n{steps('grind', **changed)}",
        "core/wheel.py": f"class Wheel:\n    def turn(self, batch):\n{steps('turn', '        ', **changed)}",
        "core/tools.py": "LIMIT = 3\n\n\ndef measure(batch):\n    return batch\n\n\n"
        "def weigh(batch):\n    return batch\n\n\ndef drop(batch):\n    return batch\n",
    }


SHIP = {
    "ship/__init__.py": "",
    "ship/far.py": "class Mill:\n    def crush(self, batch):\n        self.own(batch)\n"
    + steps("grind", "        "),
    "ship/near.py": f"class ShipWheel:\n    def turn(self, batch):\n{steps('turn', '        ')}",
    "ship/patch.py": "import core.tools\n\n\ndef ship_measure(batch):\n    return 2 * batch\n\n\n"
    "def ship_weigh(batch):\n    print(batch)\n    return batch\n\n\n"
    "def ship_drop(batch):\n    return 3 * batch\n\n\n"
    "core.tools.measure = ship_measure\ncore.tools.weigh = ship_weigh\ncore.tools.drop = ship_drop\n",
}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """An upstream that changed, moved one function and lost another, and a project that has copies of it."""
    commit(tmp_path / "core", core(), date="2026-01-01T12:00:00Z")
    now = core(_5="self.better(batch)") | {
        "core/mill.py": "",
        "core/works/__init__.py": "",
        "core/works/mill.py": f"def grind_all(self, batch):\n{steps('grind', _7='self.finer(batch)')}",
        "core/tools.py": "LIMIT = 3\n\n\ndef measure(batch):\n    check(batch)\n    return batch\n\n\n"
        "def weigh(batch):\n    print(batch)\n    return batch\n",
    }
    write_tree(tmp_path / "target", now)
    commit(tmp_path / "ship", SHIP, date="2026-01-10T12:00:00Z")
    commit(tmp_path / "core", now, date="2026-02-01T12:00:00Z")
    return tmp_path


def run(world: Path, **given: object) -> Result:
    options = dict.fromkeys(("omni", "ascend", "apply", "gains", "branch", "workspace"))
    options |= {"again": False, "mark": False, "replace": False, "base": f"git:{world}/core@HEAD~1"}
    options |= {"downstream": f"git:{world}/ship@HEAD", "upstream": f"git:{world}/core@HEAD"}
    return merge.run(argparse.Namespace(**options | {"out": world / "out"} | given))


def test_copies_in_any_file_are_merged_and_followed(world: Path) -> None:
    result = run(world)
    near, far = ((world / "out" / "ship" / name).read_text() for name in ("near.py", "far.py"))
    assert near == SHIP["ship/near.py"].replace("self.turn_5(batch)", "self.better(batch)")
    assert far == SHIP["ship/far.py"].replace("self.grind_7(batch)", "self.finer(batch)")
    plan = json.loads((world / "out" / "plan.json").read_text())
    moved = [item["title"] for item in plan["items"] if item["kind"] == "flag-followed"]
    assert moved == [
        "ship/far.py: Mill.crush: upstream has core/mill.py:grind as core/works/mill.py:grind_all now"
    ]
    assert plan["conflicts_open"] == 0
    assert result.verdict is Verdict.FAIL, "the patch of what is gone is to be resolved"
    assert result.next
    assert result.next.argv[1:] == [
        *("lineage", "--downstream", f"dir:{world}/ship", "--upstream", f"git:{world}/core@HEAD")
    ]


def test_what_became_of_patched_things_is_asked(world: Path) -> None:
    run(world)
    items = {item["kind"]: item for item in json.loads((world / "out" / "plan.json").read_text())["items"]}
    assert items["patch-gone"]["title"].startswith("core/tools.py:drop is patched over")
    assert items["patch-gone"]["blocking"]
    assert items["patch-there"]["title"].startswith("ship/patch.py: ship_weigh: the target has")
    changed = items["patch-changed"]
    assert "+    check(batch)" in changed["detail"] or "+    print(batch)" in changed["detail"]
    assert not changed["blocking"]


def test_options_that_do_not_belong_together_are_refused(world: Path) -> None:
    with pytest.raises(BadInput, match="belong together"):
        run(world, out=None)
    with pytest.raises(BadInput, match="belong together"):
        run(world, omni="dir:.")
    run(world)
    (world / "out" / "ship" / "near.py").write_text("mine\n")
    with pytest.raises(BadInput, match="was edited since"):
        run(world)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("weigh(batch, scale=2)", ""),
        ("weigh(batch, mask=2)", "weigh has no parameter mask"),
        ("Mill(1, 2)", "Mill takes 1 positional arguments, gets 2"),
        ("crush(batch, force=2)", ""),
        ("crush(batch, mask=2)", "crush has no parameter mask"),
        ("burn[8](batch, 4, 5, num_warps=1)", "burn takes 2 positional arguments, gets 3"),
        ("burn[8](batch, 4, num_warps=1)", ""),
        ("core_made(batch, mask=2)", ""),
    ],
)
def test_what_a_call_of_an_own_function_does_not_fit(tmp_path: Path, call: str, told: str) -> None:
    own = "def weigh(batch, scale=1): ...\ndef crush(batch, scale=1): ...\n@jit\ndef burn(batch, SIZE): ...\n"
    made = "class Mill:\n    def __init__(self, batch): ...\n"
    write_tree(tmp_path, {"ship/__init__.py": "", "ship/own.py": f"from core import core_made\n{own}{made}"})
    file = Program({"ship": open_source(f"dir:{tmp_path}")}).file("ship/own.py")
    now = Candidate("core/mill.py", Unit("crush", 0, 1, "def crush(batch, force, scale=1): ..."))
    misfit = _misfit(file, {("ship/own.py", "crush"): now})
    assert misfit
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    assert misfit(node) == told


def test_a_condition_on_another_version_of_upstream_never_holds(tmp_path: Path) -> None:
    write_tree(tmp_path, {"vllm/__init__.py": ""})
    tree = open_source(f"dir:{tmp_path}")
    assert _never(tree) is None, "nothing tells its version"
    never = _never(replace(tree, version="0.28.0"))
    assert never
    tests = ["vllm_version_is('0.27.1') and self.scale", "vllm_version_is('0.28.0')", "self.scale"]
    assert [never(ast.parse(test, mode="eval").body) for test in tests] == [True, False, False]
