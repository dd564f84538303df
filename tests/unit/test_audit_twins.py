"""Classes for the device beside those that they stand in for, and beside the other heirs of their base."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import make_world, seen

GPU = "vllm_omni/models/graph_codec.py"
NPU = "vllm_omni/platforms/npu/models/codec.py"
USER = "vllm_omni/models/codec.py"
CUDA = """
class CUDAGraphCodec:
    def decode(self, codes, lengths):
        return codes, lengths, 1

    def warm(self, device):
        if self._is_warm:
            return
        self._is_warm = True

    def ready(self):
        return True
"""
OURS = CUDA.replace("CUDA", "NPU")
USES = """
from vllm_omni.models.graph_codec import CUDAGraphCodec
from vllm_omni.platforms.npu.models.codec import NPUGraphCodec


def make(device):
    codec = (NPUGraphCodec if device == "npu" else CUDAGraphCodec)()
    return codec.decode(1, 2) if codec.ready() else None
"""


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("", "", []),
        ("return codes, lengths, 1", "return codes, lengths", [("returns", "decode: 2 for 3")]),
        ("codes, lengths):", "codes, sizes):", []),
        ("codes, lengths):", "codes):", [("takes", "decode: lengths")]),
        (
            "        if self._is_warm:\n            return\n",
            "",
            [("guard", "warm: self._is_warm")],
        ),
        ("def ready", "def is_ready", [("asked", "ready: ready")]),
        # What is asked for under another condition, and what nobody asks for, is its own affair.
        ("if self._is_warm:", "if not device or self._is_warm:", []),
        ("def warm", "def warm_up", []),
    ],
)
def test_a_class_that_answers_otherwise_than_the_one_it_stands_in_for(
    tmp_path: Path, before: str, now: str, told: list[tuple[str, str]]
) -> None:
    assert not before or before in OURS
    world = make_world(tmp_path, {GPU: CUDA, NPU: OURS.replace(before, now), USER: USES})
    assert [(kind, subject) for kind, _, subject in seen(world, "twins")] == told


def test_two_classes_of_the_same_name_are_nobodys_twins(tmp_path: Path) -> None:
    files = {GPU: CUDA, USER: USES, "vllm_omni/models/other.py": CUDA.replace("CUDA", "GPU")}
    ours = OURS.replace("codes, lengths, 1", "codes, lengths")
    assert seen(make_world(tmp_path, files | {NPU: ours}), "twins") == []


BASE = "vllm_omni/attention/base.py"
HEIRS = """
class Impl:
    def __init__(self, heads, **extra):
        self.heads = heads


class One(Impl):
    def __init__(self, heads, backend=None, **extra):
        self.heads = heads


class Two(Impl):
    def __init__(self, heads, backend=None, **extra):
        self.heads = heads


class Three(Impl):
    def __init__(self, heads, backend=None, **extra):
        self.heads = heads
"""


@pytest.mark.parametrize(
    ("takes", "told"),
    [
        ("heads, backend=None, **extra", []),
        ("heads, **extra", []),  # which takes it under any name
        ("heads, backend=None", ["__init__: **"]),
        ("heads", ["__init__: **, backend"]),
    ],
)
def test_a_constructor_that_takes_less_than_all_others(tmp_path: Path, takes: str, told: list[str]) -> None:
    ours = f"""
        from vllm_omni.attention.base import Impl

        class NPUImpl(Impl):
            def __init__(self, {takes}):
                self.heads = heads
    """
    world = make_world(tmp_path, {BASE: HEIRS, "vllm_omni/platforms/npu/impl.py": ours})
    assert [subject for _, _, subject in seen(world, "constructors")] == told


SHARED = "vllm_omni/layers/norm.py"


def test_what_is_named_for_the_device_is_audited_wherever_it_is(tmp_path: Path) -> None:
    """Where the platform's files import nothing of it, and others beside it are not looked at."""
    text = """
        from vllm_ascend.ops import norm
        from vllm_ascend.ops import went


        def forward_npu(x):
            return norm(x, 1, 2)


        def forward_cuda(x):
            return norm(x, 1, 2, 3)


        class NPULayer:
            def forward(self, x):
                from vllm_ascend.ops import gone
                return norm(y, 1)


        class InputLayer:
            def forward(self, x):
                from vllm_omni.platforms import gone
                return norm(x, 1, 2, 3)
    """
    ops = "def norm(x, size):\n    return x\n"
    world = make_world(tmp_path, {SHARED: text, "vllm_ascend/ops.py": ops})
    assert [owner for _, owner, _ in seen(world, "calls")] == ["forward_npu"]
    assert [(owner, subject) for _, owner, subject in seen(world, "undefined-names")] == [
        ("NPULayer.forward", "y")
    ]
    assert [owner for _, owner, _ in seen(world, "imports")] == ["", "NPULayer.forward"]


def test_a_path_to_the_class_that_a_module_only_passes_on(tmp_path: Path) -> None:
    names = {"NPUPlatform": ["vllm_omni.platforms.npu.platform.NPUPlatform"], "NPUOmniPlatform": []}
    for name, told in names.items():
        files = {
            "vllm_ascend/platform.py": "class NPUPlatform:\n    pass\n",
            "vllm_omni/platforms/npu/platform.py": """
                from vllm_ascend.platform import NPUPlatform

                class NPUOmniPlatform(NPUPlatform):
                    pass
            """,
            "vllm_omni/platforms/__init__.py": f"""
                def npu_plugin():
                    return "vllm_omni.platforms.npu.platform.{name}"
            """,
        }
        world = make_world(tmp_path / name, files)
        assert [subject for _, _, subject in seen(world, "imports")] == told


def test_what_is_imported_from_the_plugin_is_looked_for_wherever_it_is(tmp_path: Path) -> None:
    text = """
        from vllm_omni import gone


        def select():
            from vllm_ascend.ops import Norm, OldNorm
            return Norm, OldNorm
    """
    files = {"vllm_omni/layers/utils.py": text, "vllm_ascend/ops.py": "class Norm:\n    pass\n"}
    found = seen(make_world(tmp_path, files), "imports")
    assert [subject for _, _, subject in found] == ["vllm_ascend.ops.OldNorm"]


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("    def apply(self, x):\n        return x\n", [("override", "NPUMethod", "apply")]),
        ("    def forward_npu(self, x):\n        return x\n", [("override", "Rope", "forward_npu")]),
        ("    def forward_cuda(self, x):\n        return x\n", []),
    ],
)
def test_an_override_for_the_device_that_a_shared_file_had(
    tmp_path: Path, gone: str, told: list[tuple[str, str, str]]
) -> None:
    shared = """
class Method:
    def apply(self, x):
        return -x

    def forward_npu(self, x):
        return -x

    def forward_cuda(self, x):
        return -x


class NPUMethod(Method):
    def apply(self, x):
        return x


class Rope(Method):
    def forward_npu(self, x):
        return x

    def forward_cuda(self, x):
        return x
"""
    assert gone in shared
    path = "vllm_omni/layers/method.py"
    old = make_world(tmp_path / "old", {path: shared})
    now = shared.replace(gone, "    pass\n" if "apply" in gone else "")
    assert seen(make_world(tmp_path / "new", {path: now}, old=old), "lost") == told
