"""What a merge keeps and the target no longer has: never a PASS."""

from __future__ import annotations

from pathlib import Path

import pytest
from lineage_kit import RUNNERS, write_tree
from merge_kit import runner_files

from npu_upgrade.lineage.items import Item
from npu_upgrade.merge import gone
from npu_upgrade.merge.gone import look_with_vllm
from npu_upgrade.sources.tree import SourceTree, open_source

PATH = RUNNERS[0].path
UPSTREAM = """from vllm.context import Context, current
from vllm_ascend.parts import cut
from vllm.v1.runner import GPUModelRunner


class NPUModelRunner(GPUModelRunner):
    def gather(self, hidden):
        return hidden

    def finish(self, hidden, last):
        return cut(hidden, last)
"""
VLLM = {
    "vllm/__init__.py": "",
    "vllm/v1/runner.py": "class GPUModelRunner:\n    def inherited(self):\n        pass\n",
    "vllm/v1/worker.py": "def step(runner):\n    runner.run(1)\n",
    "vllm/context.py": "class Context:\n    flat: bool = False\n    deep: int = 0\n\n\n"
    "def current() -> Context:\n    return Context()\n",
}
ASCEND = {
    "vllm_ascend/__init__.py": "",
    "vllm_ascend/worker/model_runner_v1.py": UPSTREAM,
    "vllm_ascend/parts.py": "def cut(hidden, last):\n    return hidden\n",
}
KEPT = """    def run(self, hidden):
        hidden = self.gather(hidden)
        if current().flat:
            self.inherited()
        return self.finish(hidden, last=True)
"""
HEAD = "from vllm.context import current\n"


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The items of runners with one method, kept as it was, on a changed target and vllm."""

    def run(
        target: dict[str, str], vllm: dict[str, str] | None = None, kept: str = KEPT, head: str = HEAD
    ) -> list[Item]:
        def tree(name: str, files: dict[str, str]) -> SourceTree:
            return open_source(f"dir:{write_tree(tmp_path / name, files)}")

        files = runner_files(KEPT)
        files[PATH] = head + files[PATH]
        omni, base, after = tree("omni", files), tree("base", ASCEND), tree("target", ASCEND | target)
        trees = {base.spec: tree("old", VLLM), after.spec: tree("new", VLLM | (vllm or {}))}
        monkeypatch.setattr(gone, "vllm_tree", lambda ascend: trees[ascend.spec])
        return look_with_vllm(
            omni, {PATH: files[PATH].replace(KEPT, kept)}, {PATH: files[PATH]}, after, base
        )()

    return run


def without(text: str) -> dict[str, str]:
    assert text in UPSTREAM
    return {"vllm_ascend/worker/model_runner_v1.py": UPSTREAM.replace(text, "")}


def test_nothing_is_gone(look) -> None:
    assert look({}) == []


def test_a_method_that_is_gone_blocks(look) -> None:
    (item,) = look(without("    def gather(self, hidden):\n        return hidden\n"))
    assert (item.kind, item.blocking, item.path) == (gone.GONE, True, PATH)
    assert "self.gather" in item.title


def test_so_does_an_attribute_of_another_object(look) -> None:
    (item,) = look({}, {"vllm/context.py": VLLM["vllm/context.py"].replace("    flat: bool = False\n", "")})
    assert "flat" in item.title


def test_so_does_a_parameter(look) -> None:
    changed = UPSTREAM.replace("hidden, last):", "hidden):").replace("cut(hidden, last)", "hidden")
    (item,) = look({"vllm_ascend/worker/model_runner_v1.py": changed})
    assert "last" in item.title


def test_what_was_lacking_before_is_left_to_the_audit(look) -> None:
    kept = KEPT.replace("self.gather(hidden)", "self.never_there(hidden)")
    (item,) = look({}, kept=kept)  # written by whoever edited the merge
    assert "never_there" in item.title


def test_an_import_that_failed_before_too_is_not(look) -> None:
    """Nothing else shows before it is corrected. The checkout's own files may have moved on before."""
    (item,) = look({}, head=f"{HEAD}from vllm.context import Shallow\n")
    assert (item.kind, item.blocking) == (gone.GONE, True)
    assert "has no Shallow in vllm.context" in item.title


def test_what_stands_in_a_conflict_waits_for_the_answer(look) -> None:
    line = "        hidden = self.gather(hidden)\n"
    conflict = f"<<<<<<< ours\n{line}||||||| base\n{line}=======\n        pass\n>>>>>>> theirs\n"
    removed = without("    def gather(self, hidden):\n        return hidden\n")
    assert look(removed, kept=KEPT.replace(line, conflict)) == []
