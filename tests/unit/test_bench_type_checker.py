"""The trial of a type checker: what is the same diagnostic in another triple, and what is not looked at."""

import sys
from pathlib import Path

import pytest

from bench.type_checker import Checker, settle
from npu_upgrade.audit.world import Triple
from npu_upgrade.sources.tree import SourceTree, open_source

WORKER = """\
import torch
from vllm.runner import Runner


class NPURunner(Runner):
    def run(self):
        self.standing()
        return self.helper(1)
"""
RUNNER = "class Runner:\n    def helper(self, number):\n        return number\n"


@pytest.fixture
def checker(tmp_path: Path) -> Checker:
    (tmp_path / "ty").mkdir()
    return Checker(tmp_path / "ty", str(Path(sys.executable).with_name("ty")), sys.prefix, settled=True)


def tree(folder: Path, package: str, name: str, text: str) -> SourceTree:
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("")
    (folder / package / name).write_text(text)
    return open_source(f"dir:{folder}")


def test_only_what_is_new_is_left(checker: Checker, tmp_path: Path) -> None:
    ascend = tree(tmp_path / "ascend", "vllm_ascend", "worker.py", WORKER)
    moved = tree(tmp_path / "moved", "vllm_ascend", "worker.py", "# a line more\n" + WORKER)
    old = tree(tmp_path / "old", "vllm", "runner.py", RUNNER)
    new = tree(tmp_path / "new", "vllm", "runner.py", RUNNER.replace("helper", "helped"))
    before = checker.said(Triple(None, ascend, old))
    assert [said.code for said in before if said.rule == "missing-attribute"] == ["self.standing()"]
    assert checker.said(Triple(None, moved, old)) == before
    (said,) = checker.said(Triple(None, moved, new)) - before
    assert (said.rule, said.path, said.unit) == (
        "missing-attribute",
        "vllm_ascend/worker.py",
        "NPURunner.run",
    )
    assert "helper" in said.text


def test_a_package_that_is_absent_is_nothing_to_report(checker: Checker, tmp_path: Path) -> None:
    ascend = tree(tmp_path / "ascend", "vllm_ascend", "worker.py", "import torch\nimport vllm.gone\n")
    vllm = tree(tmp_path / "vllm", "vllm", "runner.py", RUNNER)
    (said,) = checker.said(Triple(None, ascend, vllm))
    assert "vllm.gone" in said.text


def test_a_choice_between_imports_is_settled_and_lines_stay_where_they_are() -> None:
    choice = (
        b"import os\nif special():\n    from a import A as Base\nelse:\n    from b import B as Base\nx = 1\n"
    )
    assert settle(choice) == b"import os\nif True:\n\n\n    from b import B as Base\nx = 1\n"
    other = b"if special():\n    x = 1\nelse:\n    from b import B as Base\n"
    assert settle(other) == other
