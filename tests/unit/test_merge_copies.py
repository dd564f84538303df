"""Copies of any project merged in all its files, and what became of what it patches over."""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sources_kit import commit, git, write_tree

from npu_upgrade.code.module import Unit
from npu_upgrade.commands import merge, port
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.job import open_job
from npu_upgrade.lineage.alike import Candidate
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.items import item_id
from npu_upgrade.lineage.origins import Origins
from npu_upgrade.merge.copies import _misfit, _never
from npu_upgrade.merge.patched import patch_items
from npu_upgrade.program.program import Program
from npu_upgrade.sources.tree import open_source

SCRIPT = Path(__file__).parents[2] / "scripts" / "upgrade.py"


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
    options = dict.fromkeys(("omni", "ascend", "apply", "gains", "branch"))
    options |= {"again": False, "mark": False, "replace": False, "base": f"git:{world}/core@HEAD~1"}
    options |= {"workspace": world}
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
    assert result.next.argv[1:3] == ["resolve", "--from"], "what is to be looked at is asked with it"
    assert result.data["ask"]["id"] == item_id("patch-gone", "core/tools.py:drop")


def test_a_copy_of_what_has_not_changed_since_stays_however_old_it_is(world: Path) -> None:
    result = run(world, base=f"git:{world}/core@HEAD")
    plan = json.loads((world / "out" / "plan.json").read_text())
    assert (result.verdict, result.data["files"]) == (Verdict.PASS, [])
    assert {method["outcome"] for method in plan["methods"]} == {"unchanged"}
    assert not plan["items"]


def test_a_patch_that_chooses_its_place_by_version_is_not_of_what_is_gone(tmp_path: Path) -> None:
    measure = "def measure(batch):\n    return batch\n"
    vllm = {"vllm/__init__.py": "", "vllm/tools.py": measure}
    commit(tmp_path / "vllm", vllm)
    git(tmp_path / "vllm", "tag", "v0.27.1")
    (tmp_path / "vllm" / "vllm" / "tools.py").unlink()
    commit(tmp_path / "vllm", {"vllm/kit.py": measure})
    git(tmp_path / "vllm", "tag", "v0.28.0")
    patch = "def twice(batch):\n    return 2 * batch\n\n\ntools.measure = twice\n"
    branches = [f"    import vllm.{name} as tools\n" for name in ("tools", "kit")]
    guarded = "else:\n".join(["if vllm_version_is('0.27.1'):\n" + branches[0], branches[1]])
    files = {"vllm_ascend/__init__.py": "", "vllm_ascend/patch.py": f"import vllm.tools as tools\n{patch}"}
    was, now = (open_source(f"git:{tmp_path}/vllm@{tag}") for tag in ("v0.27.1", "v0.28.0"))
    kinds = []
    for text in (files, files | {"vllm_ascend/patch.py": f"{guarded}\n\n{patch}"}):
        commit(tmp_path / "ascend", text)
        side = Downstream(open_source(f"git:{tmp_path}/ascend@HEAD"), {"vllm": was})
        kinds.append([item.kind for item in patch_items(Origins(side, {"vllm": now.spec}), now)])
    assert kinds == [["patch-gone"], []]


def test_port_says_that_it_has_nothing_to_do_in_such_a_job(world: Path) -> None:
    run(world)
    job = open_job(world)
    job.place(repo=world / "ship")
    options = dict.fromkeys(("omni", "ascend", "out", "job")) | {
        "apply": [],
        "group": [],
        "top": False,
        "callers_by_hand": False,
        "conflicts": False,
    }
    result = port.run(argparse.Namespace(**options, since="auto", workspace=world))
    assert (result.verdict, result.data["job"]) == (Verdict.PASS, job.id)
    assert "for vllm-omni's runners alone" in result.summary
    assert result.next
    assert result.next.argv[1] == "next"


def test_what_became_of_patched_things_is_asked(world: Path) -> None:
    run(world)
    items = {item["kind"]: item for item in json.loads((world / "out" / "plan.json").read_text())["items"]}
    assert items["patch-gone"]["title"].startswith("core/tools.py:drop is patched over")
    assert items["patch-gone"]["blocking"]
    assert items["patch-there"]["title"].startswith("ship/patch.py: ship_weigh: the target has")
    changed = items["patch-changed"]
    assert "+    check(batch)" in changed["detail"] or "+    print(batch)" in changed["detail"]
    assert not changed["blocking"]


def test_merged_again_it_is_the_same_job_on_the_same_base(world: Path) -> None:
    run(world)
    before = open_job(world)
    fresh = dict.fromkeys(("downstream", "upstream", "out"))
    run(world, again=True, base="auto", **fresh)
    after = open_job(world)
    assert (after.id, after.inputs.base) == (before.id, before.inputs.base)
    run(world, again=True, base=f"git:{world}/core@HEAD", **fresh)
    assert open_job(world).id == before.id


def test_options_that_do_not_belong_together_are_refused(world: Path) -> None:
    with pytest.raises(BadInput, match="belong together"):
        run(world, upstream=None)
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


def called(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """A command as a process of its own has it: its exit code, and what it says."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout)


def test_a_project_nobody_named_is_walked_to_one_commit(world: Path) -> None:
    """Pins and conditions are answered like everything else, and are in the commit."""
    for tag, at in {"v1.2.0": "HEAD~1", "v1.3.0": "HEAD"}.items():
        subprocess.run(["git", "tag", tag, at], cwd=world / "core", check=True)
    late = 'import core\n\nif core_version_is("1.2.0"):\n    one = 1\nelse:\n    one = 2\n'
    ship = world / "brig"
    commit(
        ship,
        {
            "ship/__init__.py": "",
            "ship/near.py": SHIP["ship/near.py"],
            "ship/late.py": late,
            "Dockerfile": "ARG CORE_TAG=v1.2.0\n",
            "requirements.txt": "core==1.2.0\n",
        },
        date="2026-01-10T12:00:00Z",
    )
    for name, value in {"user.name": "Ann", "user.email": "ann@example.org"}.items():
        subprocess.run(["git", "config", name, value], cwd=ship, check=True)
    words = ("--downstream", f"git:{ship}@HEAD", "--upstream", f"git:{world}/core@v1.3.0")
    words += ("--base", f"git:{world}/core@v1.2.0")
    code, said = called(ship, "merge", *words, "--apply")
    plan = json.loads((open_job(ship).folder / "out" / "plan.json").read_text())
    asked = {item["path"]: item["id"] for item in plan["items"] if item["kind"] in ("pin", "guard")}
    assert (code, set(asked)) == (0, {"Dockerfile", "requirements.txt", "ship/late.py"}), said
    for path in ("Dockerfile", "ship/late.py"):
        code, said = called(ship, "resolve", asked[path], "--accept")
        assert code == 0, said
    code, said = called(
        ship, "resolve", asked["requirements.txt"], "--waive", "--note", "installed elsewhere"
    )
    assert code == 0, said
    assert (ship / "Dockerfile").read_text() == "ARG CORE_TAG=v1.3.0\n"
    assert (ship / "ship" / "late.py").read_text().endswith("one = 2\n")
    assert "if" not in (ship / "ship" / "late.py").read_text()
    for item in (one["id"] for one in plan["items"] if one["id"] not in asked.values()):
        assert called(ship, "resolve", item, "--accept", "--note", "looked at")[0] == 0
    code, said = called(ship, "next")
    assert "deliver" in said["next"], said
    code, said = called(ship, "deliver", "--repo", str(ship))
    assert code == 0, said
    shown = subprocess.run(
        ["git", "show", "--stat", "--format=%B", "HEAD"], cwd=ship, capture_output=True, text=True, check=True
    ).stdout
    assert "Upgrade to core 1.3.0" in shown
    assert "Signed-off-by: Ann" in shown
    said = shown.replace("\n  ", " ")
    assert "audit: it knows projects on vllm, not on core" in said
    assert "emulate: there is no emulated device for ship" in said
    for path in ("Dockerfile", "ship/late.py", "ship/near.py"):
        assert f" {path} " in shown
    assert "requirements.txt |" not in shown


def test_a_platform_plugin_nobody_named_is_audited_against_the_vllm_it_was_on(tmp_path: Path) -> None:
    """What is lost with the new vllm is a finding; what is wrong on the old one too is not new."""
    head = "class Runner:\n    def __init__(self):\n        self.pages = 3\n\n    def turn(self, batch):\n"
    vllm = {"vllm/__init__.py": "", "vllm/v1/runner.py": head + steps("turn", "        ")}
    vllm["vllm/v1/worker.py"] = "def step(runner):\n    runner.turn(1)\n    runner.never()\n"
    commit(tmp_path / "vllm", vllm, date="2026-01-01T12:00:00Z")
    ship = tmp_path / "brig"
    own = "        return self.pages\n\n    def never(self):\n        return self.nothing\n"
    runner = "from vllm.v1.runner import Runner\n\n\nclass ShipRunner(Runner):\n    def turn(self, batch):\n"
    files = {"ship_plugin/__init__.py": "", "ship_plugin/worker/__init__.py": ""}
    files["ship_plugin/worker/runner.py"] = f"{runner}{steps('turn', '        ')}{own}"
    commit(ship, files, date="2026-01-10T12:00:00Z")
    now = head.replace("pages", "blocks") + steps("turn", "        ", _5="self.better(batch)")
    commit(tmp_path / "vllm", {"vllm/v1/runner.py": now}, date="2026-02-01T12:00:00Z")
    words = ("--downstream", f"git:{ship}@HEAD", "--upstream", f"git:{tmp_path}/vllm@HEAD")
    called(ship, "merge", *words, "--base", f"git:{tmp_path}/vllm@HEAD~1", "--apply")
    code, said = called(
        ship, "audit", "--check", "attributes", "imports", "cuda-names", "--output", "said.json"
    )
    told = json.loads((ship / "said.json").read_text())["findings"]
    states = {one["subject"].rpartition(".")[2]: one["state"] for one in told}
    assert code == 1, said
    assert (states["pages"], states["nothing"]) == ("NEW", "LAG")
