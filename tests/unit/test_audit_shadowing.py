"""The check for methods of vllm-ascend that a GPU-side class before it hides."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import AR, ASCEND, BASE, GENERATION, GPU_BASE, VLLM, findings, make_world, seen

GPU = "from vllm.v1.worker.gpu_model_runner import GPUModelRunner\n"
VLLM_RUNNER = """
    class GPUModelRunner:
        def step(self, batch):
            return self.count(batch)

        def count(self, batch):
            return len(batch)
"""
ASCEND_STEP = "def step(self, batch):\n    self.pad_for_npu(batch)\n    return super().step(batch)\n"
GPU_STEP = "def step(self, batch):\n    self.note(batch)\n    return self.count(batch)\n"


def cls(head: str, name: str, bases: str, body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return f"{head}\n\nclass {name}({bases}):\n{lines}\n"


def files(ascend: str, gpu: str, npu: str = "pass", ar: str = "pass") -> dict[str, str]:
    ascend_import = f"from {ASCEND[:-3].replace('/', '.')} import NPUModelRunner\n"
    omni_import = f"from {GPU_BASE[:-3].replace('/', '.')} import OmniGPUModelRunner\n"
    base_import = f"from {BASE[:-3].replace('/', '.')} import OmniNPUModelRunner\n"
    bases = "OmniGPUModelRunner, NPUModelRunner"
    return {
        VLLM: VLLM_RUNNER,
        ASCEND: cls(GPU, "NPUModelRunner", "GPUModelRunner", ascend),
        GPU_BASE: cls(GPU, "OmniGPUModelRunner", "GPUModelRunner", gpu),
        BASE: cls(ascend_import + omni_import, "OmniNPUModelRunner", bases, npu),
        AR: cls(base_import, "NPUARModelRunner", "OmniNPUModelRunner", ar),
    }


def shadowed(folder: Path, *bodies: str) -> list[tuple[str, str, str]]:
    return seen(make_world(folder, files(*bodies)), "shadowing")


def test_a_hidden_method_is_found_once_for_all_runners(tmp_path: Path) -> None:
    found = findings(make_world(tmp_path, files(ASCEND_STEP, GPU_STEP)), "shadowing")
    assert [(f.kind, f.owner, f.subject) for f in found] == [("shadowed", "OmniNPUModelRunner", "step")]
    assert found[0].here.path == GPU_BASE
    assert found[0].there is not None
    assert found[0].there.path == ASCEND
    assert "pad_for_npu" in found[0].what


@pytest.mark.parametrize(
    ("ascend", "gpu", "npu"),
    [
        (ASCEND_STEP, "def step(self, batch):\n    return super().step(batch)\n", "pass"),
        (ASCEND_STEP, GPU_STEP, "def step(self, batch):\n    return 0\n"),
        (
            ASCEND_STEP,
            GPU_STEP,
            "def step(self, batch):\n    self.pad_for_npu(batch)\n    return super().step(batch)\n",
        ),
        ("def step(self, batch):\n    return self.count(batch)\n", GPU_STEP, "pass"),
        (
            ASCEND_STEP,
            "def step(self, batch):\n    self.pad_for_npu(batch)\n    return self.count(batch)\n",
            "pass",
        ),
        (ASCEND_STEP, "def other(self):\n    pass\n", "pass"),
    ],
    ids=[
        "passes on",
        "overridden",
        "overridden with both",
        "only a copy of vLLM's",
        "nothing lost",
        "another",
    ],
)
def test_nothing_is_lost(tmp_path: Path, ascend: str, gpu: str, npu: str) -> None:
    assert shadowed(tmp_path, ascend, gpu, npu) == []


def test_an_override_that_goes_past_vllm_ascends(tmp_path: Path) -> None:
    npu = "def step(self, batch):\n    return OmniGPUModelRunner.step(self, batch)\n"
    found = findings(make_world(tmp_path, files(ASCEND_STEP, GPU_STEP, npu)), "shadowing")
    assert [found.here.path for found in found] == [BASE]
    assert "goes on" in found[0].what


def test_other_words_for_the_same_in_an_override(tmp_path: Path) -> None:
    ascend = (
        "def step(self, batch):\n    size = len(batch)\n    self.pad(size)\n    return super().step(batch)\n"
    )
    npu = (
        "def step(self, batch):\n    self.pad(len(batch))\n    return OmniGPUModelRunner.step(self, batch)\n"
    )
    assert shadowed(tmp_path, ascend, GPU_STEP, npu) == []


def test_a_method_of_vllm_ascends_own(tmp_path: Path) -> None:
    ascend, gpu = "def pack(self):\n    return self.npu_pack()\n", "def pack(self):\n    return 1\n"
    assert shadowed(tmp_path, ascend, gpu) == [("shadowed", "OmniNPUModelRunner", "pack")]


def test_statements_count_where_no_name_is_new(tmp_path: Path) -> None:
    ascend = (
        "def step(self, batch):\n    if self.count(batch) > 100:\n        return\n    super().step(batch)\n"
    )
    assert shadowed(tmp_path, ascend, GPU_STEP) == [("shadowed", "OmniNPUModelRunner", "step")]


def test_a_call_that_does_not_fit_what_it_passes_on_to(tmp_path: Path) -> None:
    ascend = "def step(self, size, batch):\n    return self.npu_step(size, batch)\n"
    found = shadowed(tmp_path, ascend, "def step(self, batch):\n    return super().step(batch)\n")
    assert found == [("shadow-misfit", "OmniNPUModelRunner", "step")]


def test_arguments_that_arrive_in_another_place(tmp_path: Path) -> None:
    ascend = "def step(self, size, batch, **rest):\n    return self.npu_step(size, batch)\n"
    gpu = "def step(self, batch=None, **rest):\n    return super().step(batch=batch, **rest)\n"
    assert shadowed(tmp_path, ascend, gpu) == [("shadow-misfit", "OmniNPUModelRunner", "step")]


def test_only_the_runner_that_does_not_override_is_named(tmp_path: Path) -> None:
    texts = files(ASCEND_STEP, GPU_STEP, ar="def step(self, batch):\n    return 0\n")
    found = seen(make_world(tmp_path, texts), "shadowing")
    assert found == [("shadowed", "NPUGenerationModelRunner", "step")]
    assert GENERATION not in texts


def test_a_mixin_of_the_omni_side_hides_too(tmp_path: Path) -> None:
    texts = files(ASCEND_STEP, "pass")
    texts["vllm_omni/mixins.py"] = cls("", "NotesMixin", "object", GPU_STEP)
    texts[GPU_BASE] = cls(
        GPU + "from vllm_omni.mixins import NotesMixin\n",
        "OmniGPUModelRunner",
        "NotesMixin, GPUModelRunner",
        "pass",
    )
    assert seen(make_world(tmp_path, texts), "shadowing") == [("shadowed", "OmniNPUModelRunner", "step")]


def test_without_omni_there_is_nothing_to_hide(tmp_path: Path) -> None:
    assert seen(make_world(tmp_path, files(ASCEND_STEP, GPU_STEP), omni=False), "shadowing") == []


MIXED = """
class Base:
    def start(self, config):
        self.config = config


class Mixin:
    def start(self, config):
        {body}


class Worker({bases}):
    pass
"""


@pytest.mark.parametrize(
    ("bases", "body", "behind"),
    [
        ("Mixin, Base", "return super().start(config)", []),
        ("Base, Mixin", "return super().start(config)", ["Mixin.start"]),
        ("Base, Mixin", "self.config = config", []),  # another way to do it
    ],
)
def test_a_mixin_behind_what_it_extends_is_found(
    tmp_path: Path, bases: str, body: str, behind: list[str]
) -> None:
    text = MIXED.replace("{bases}", bases).replace("{body}", body)
    world = make_world(tmp_path, {"vllm_omni/platforms/npu/worker/npu_worker.py": text})
    assert [subject for _, _, subject in seen(world, "shadowing")] == behind


SMALL = "vllm_ascend/small/runner.py"


@pytest.mark.parametrize("passes_on", [False, True])
def test_a_method_of_a_special_devices_runner_that_is_imported_under_the_usual_name(
    tmp_path: Path, passes_on: bool
) -> None:
    gpu = "def step(self, batch):\n    return super().step(batch)\n" if passes_on else GPU_STEP
    made = files("def other(self):\n    return 1\n", gpu)
    usual = f"from {ASCEND[:-3].replace('/', '.')} import NPUModelRunner"
    small = f"from {SMALL[:-3].replace('/', '.')} import SmallRunner as NPUModelRunner"
    made[SMALL] = cls(usual, "SmallRunner", "NPUModelRunner", ASCEND_STEP)
    made[BASE] = made[BASE].replace(usual, f"if IS_SMALL:\n    {small}\nelse:\n    {usual}")
    found = findings(make_world(tmp_path, made), "shadowing")
    want = [] if passes_on else [("shadowed", "OmniNPUModelRunner", "SmallRunner.step")]
    assert [(f.kind, f.owner, f.subject) for f in found] == want
