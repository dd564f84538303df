"""The check for what a base leaves to its heirs, and an NPU class does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import make_world, seen

INTERFACE = "vllm_omni/platforms/interface.py"
NPU = "vllm_omni/platforms/npu/platform.py"
BASE = """
class Harbour:
    _flag: str

    def tide(self):
        raise NotImplementedError

    def berth(self):
        raise NotImplementedError

    def name(self):
        return self._flag + self.tide()
"""
HEIR = """
from vllm_omni.platforms.interface import Harbour


class {name}(Harbour):
    _flag = "{name}"

    def tide(self):
        return "high"

    def other(self):
        return 1
"""


def told(folder: Path, own: str, heirs: tuple[str, ...] = ("East", "West")) -> list[str]:
    files = {f"vllm_omni/platforms/{name.lower()}.py": HEIR.format(name=name) for name in heirs}
    npu = f"from vllm_omni.platforms.interface import Harbour\n\nclass North(Harbour):\n{own}"
    return [
        subject
        for _, _, subject in seen(make_world(folder, files | {INTERFACE: BASE, NPU: npu}), "unmade-hooks")
    ]


TIDE = "    def tide(self):\n        return 'low'\n"
FLAG = "    _flag = 'north'\n"


@pytest.mark.parametrize(("own", "missing"), [(FLAG, ["tide"]), (TIDE, ["_flag"]), (FLAG + TIDE, [])])
def test_what_all_others_have_is_missed(tmp_path: Path, own: str, missing: list[str]) -> None:
    assert told(tmp_path, own) == missing


def test_one_other_heir_tells_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, FLAG, ("East",)) == []


ABSTRACT = """
from abc import ABC, abstractmethod


class Dock(ABC):
    @abstractmethod
    def moor(self):
        ...


class Platform:
    @classmethod
    def crane_cls(cls):
        {default}
"""
MOORED = """
from vllm_omni.platforms.interface import Dock, Platform


class NorthDock(Dock):
    {moor}


class NorthPlatform(Platform):
    {crane}
"""


@pytest.mark.parametrize(
    ("moor", "crane", "default", "missing"),
    [
        ("pass", "pass", "return 1", ["moor"]),
        ("def moor(self): pass", "pass", "return 1", []),
        ("def moor(self): pass", "pass", "return 'vllm.worker.gpu_crane.Crane'", ["crane_cls"]),
        ("def moor(self): pass", "pass", "from vllm.gpu.crane import Crane; return Crane", ["crane_cls"]),
        ("def moor(self): pass", "pass", "return 'the gpu. Or another'", []),
        ("def moor(self): pass", "def crane_cls(self): return 2", "return 'vllm.gpu.Crane'", []),
    ],
)
def test_what_cannot_be_made_and_what_is_for_gpus(
    tmp_path: Path, moor: str, crane: str, default: str, missing: list[str]
) -> None:
    files = {
        INTERFACE: ABSTRACT.replace("{default}", default),
        NPU: MOORED.replace("{moor}", moor).replace("{crane}", crane),
    }
    assert [name for _, _, name in seen(make_world(tmp_path, files), "unmade-hooks")] == missing


OPS = """
class Op:
    def forward_npu(self, x):
        raise NotImplementedError


class Norm(Op):
    def __init__(self, size):
        self.size = size

    def forward_native(self, x):
        return x

    def {norm}(self, x):
        return x


class ForCudaOnly(Op):
    def forward_cuda(self, x):
        return x
"""


@pytest.mark.parametrize("other", ["forward_native", "helper"])  # with a form for another device or none
@pytest.mark.parametrize(("name", "told"), [("forward_npu", []), ("forward_oot", [("unmade", "Norm")])])
def test_the_form_for_the_device_that_a_class_had_is_missed(
    tmp_path: Path, name: str, told: list[tuple[str, str]], other: str
) -> None:
    path = "vllm_omni/layers/norm.py"
    text = OPS.replace("forward_native", other)
    old = make_world(tmp_path / "old", {path: text.replace("{norm}", "forward_npu")})
    world = make_world(tmp_path / "new", {path: text.replace("{norm}", name)}, old=old)
    assert [(kind, owner) for kind, owner, _ in seen(world, "unmade-hooks")] == told
    assert seen(make_world(tmp_path / "alone", {path: OPS.replace("{norm}", name)}), "unmade-hooks") == []


@pytest.mark.parametrize(("line", "told"), [("forward_npu = forward_cuda", ["Norm"]), ("pass", [])])
def test_the_form_that_all_others_of_the_file_have_is_missed(
    tmp_path: Path, line: str, told: list[str]
) -> None:
    more = f"\n    def forward_native(self, x):\n        return x\n\n    limit = 1\n    {line}\n"
    text = OPS.replace("{norm}", "forward_oot") + more
    world = make_world(tmp_path, {"vllm_omni/layers/norm.py": text})
    assert [owner for _, owner, _ in seen(world, "unmade-hooks")] == told
