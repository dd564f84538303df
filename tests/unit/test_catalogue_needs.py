"""What a block uses of omni, and what it is compared with."""

from __future__ import annotations

from pathlib import Path

from lineage_kit import write_tree

from npu_upgrade.code.module import parse_module
from npu_upgrade.lineage.catalogue.build import counterparts
from npu_upgrade.lineage.catalogue.needs import needs, omni_names
from npu_upgrade.lineage.marker_places import counted, dialect
from npu_upgrade.program.program import Program
from npu_upgrade.sources.tree import SourceTree, open_source

WORKER = "vllm_omni/worker"
UPSTREAM = """class Up:
    def run(self, batch):
        self.prepare(batch)
        self.count(batch)
        self.forward(batch)
        self.record(batch)
        self.finish(batch)

    def other(self):
        self.model = None
"""
OMNI = """from up.worker import Up
from vllm_omni.payload import flatten


def loudly(batch):
    return batch


class Talker:
    def talk(self):
        self.said = 1


class Runner(Up, Talker):
    def run(self, batch):
        self.prepare(batch)
        self.count(batch)
        self.talk(batch)
        self.forward(batch)
        self.record(batch)
        self.finish(batch)

    def other(self):
        return flatten(self.said)
"""


def trees(folder: Path) -> dict[str, SourceTree]:
    write_tree(folder / "omni", {f"{WORKER}/runner.py": OMNI, "vllm_omni/__init__.py": ""})
    write_tree(folder / "up", {"up/worker.py": "from up.base import Up\n", "up/base.py": UPSTREAM})
    return {"vllm_omni": open_source(f"dir:{folder / 'omni'}"), "up": open_source(f"dir:{folder / 'up'}")}


def found(folder: Path, *keys: str) -> list[str]:
    omni = Program(trees(folder))
    module = parse_module(OMNI)
    return list(needs(keys, module, f"{WORKER}/runner.py", omni_names(omni, [WORKER], [UPSTREAM])))


def test_attributes_with_the_class_that_has_them(tmp_path: Path) -> None:
    assert found(tmp_path, "self.talk(self.said)") == ["`self.said` (Talker)", "`self.talk` (Talker)"]


def test_what_upstream_has_is_no_need(tmp_path: Path) -> None:
    assert found(tmp_path, "self.prepare(batch)", "self.model.prepare(batch)") == []


def test_imports_of_omni_at_the_top_and_in_the_method(tmp_path: Path) -> None:
    assert found(tmp_path, "flatten(batch)") == ["`vllm_omni.payload.flatten`"]
    assert found(tmp_path, "from vllm_omni.audio import cut") == ["`vllm_omni.audio.cut`"]


def test_helpers_of_the_same_file(tmp_path: Path) -> None:
    assert found(tmp_path, "loudly(batch)", "batch.loudly(batch)") == ["`loudly` (same file)"]


def test_hooks_of_the_model(tmp_path: Path) -> None:
    keys = ["if hasattr(self.model, 'speak'):", "self.model.listen(batch)"]
    assert found(tmp_path, *keys) == ["`model.listen`", "`model.speak`"]


def test_attributes_asked_for_by_name(tmp_path: Path) -> None:
    assert found(tmp_path, "x = getattr(self, 'said', None)") == ["`self.said` (Talker)"]


def test_a_copy_is_told_from_an_override(tmp_path: Path) -> None:
    units = counterparts(Program(trees(tmp_path)), f"{WORKER}/runner.py", None, {"up": "1.0"})
    told = {one.unit.qualname: (one.upstream, one.version, one.base is not None) for one in units}
    assert told == {
        "loudly": ("", "", False),
        "Talker.talk": ("", "", False),
        "Runner.run": ("up/base.py:Up.run", "1.0", True),
        "Runner.other": ("up/base.py:Up.other", "1.0", False),
    }


def test_dialects() -> None:
    assert dialect("#  ----- Omni-new -----") == "Omni-new"
    assert dialect("# [Omni] first") == "[Omni]"
    assert dialect("# OMNI: keep") == "OMNI:"
    assert dialect("# Omni-specific: wrap") == "Omni-specific"
    assert dialect("# the omni way") is None
    source = "a = '# [Omni] no'\n# [Omni] yes\nb = 1  # OMNI: yes\n"
    assert dict(counted(source)) == {"[Omni]": 1, "OMNI:": 1}
    assert dict(counted(source, 3)) == {"OMNI:": 1}
