"""The check for attributes that an NPU class sets and only its GPU counterpart reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import AR, ASCEND, BASE, GPU_AR, GPU_BASE, VLLM, findings, make_world, seen

GPU_HEAD = f"from {GPU_BASE[:-3].replace('/', '.')} import OmniGPUModelRunner\n"
NPU_HEAD = f"from {BASE[:-3].replace('/', '.')} import OmniNPUModelRunner\n"
WRITES = "def load(self):\n    self.keep_hidden = 1\n"
READS = "def load(self):\n    self.keep_hidden = 1\n\ndef pay(self):\n    return self.keep_hidden\n"


def cls(head: str, name: str, base: str, body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return f"{head}\n\nclass {name}({base}):\n{lines}\n"


def world_files(npu: str, gpu: str, **more: str) -> dict[str, str]:
    return {
        AR: cls(NPU_HEAD, "NPUARModelRunner", "OmniNPUModelRunner", npu),
        GPU_AR: cls(GPU_HEAD, "GPUARModelRunner", "OmniGPUModelRunner", gpu),
    } | {path.replace("__", "/") + ".py": text for path, text in more.items()}


def unread(folder: Path, npu: str, gpu: str, **more: str) -> list[str]:
    return [
        subject
        for _, _, subject in seen(make_world(folder, world_files(npu, gpu, **more)), "unread-attributes")
    ]


def test_what_only_the_gpu_side_reads_is_found(tmp_path: Path) -> None:
    found = findings(make_world(tmp_path, world_files(WRITES, READS)), "unread-attributes")
    assert [(f.kind, f.owner, f.subject) for f in found] == [("unread", "NPUARModelRunner", "keep_hidden")]
    assert (found[0].here.path, found[0].here.line) == (AR, 6)
    assert found[0].there is not None
    assert (found[0].there.path, found[0].there.line) == (GPU_AR, 9)


@pytest.mark.parametrize(
    ("npu", "gpu"),
    [
        (READS, READS),
        (WRITES + "\ndef pay(self):\n    return getattr(self, 'keep_hidden', 0)\n", READS),
        (WRITES, WRITES),
        (WRITES, "def __init__(self):\n    self.keep_hidden = 1\n    print(self.keep_hidden)\n"),
    ],
    ids=["both read", "asks for it", "nobody reads", "only read where it is made"],
)
def test_no_difference(tmp_path: Path, npu: str, gpu: str) -> None:
    assert unread(tmp_path, npu, gpu) == []


@pytest.mark.parametrize(
    "text",
    ["def use(runner):\n    return runner.keep_hidden\n", "FIELDS = ['keep_hidden']\n"],
)
def test_what_a_collaborator_reads_is_not(tmp_path: Path, text: str) -> None:
    assert unread(tmp_path, WRITES, READS, vllm_omni__helper=text) == []


def test_a_collaborator_that_only_sets_it_does_not_read_it(tmp_path: Path) -> None:
    text = "def use(runner):\n    runner.keep_hidden = 2\n"
    assert unread(tmp_path, WRITES, READS, vllm_omni__helper=text) == ["keep_hidden"]


@pytest.mark.parametrize(
    ("asks", "elsewhere", "found"),
    [
        ("if hasattr(self, 'began'):\n        self.tell()", "", True),
        ("self.tell(getattr(self, 'began', None))", "", True),
        ("if hasattr(\n        self, 'began'\n    ):\n        self.tell()", "", True),
        ("if hasattr(self, 'began'):\n        self.began = 2", "", False),
        (
            "if hasattr(self, 'began'):\n        self.tell()",
            "def use(runner):\n    runner.began = 2\n",
            False,
        ),
        ("if hasattr(self, 'began'):\n        self.tell()", "FIELDS = ['began']\n", False),
        ("if hasattr(self, 'began'):\n        self.tell()", "class Base:\n    began: int\n", False),
        ("if hasattr(self, 'began'):\n        self.tell()", "print(getattr(runner, 'began', 1))\n", True),
    ],
)
def test_what_is_asked_for_and_set_by_nothing_any_more_is_found(
    tmp_path: Path, asks: str, elsewhere: str, found: bool
) -> None:
    npu = f"def load(self):\n    {asks}\n\ndef tell(self, *began_at):\n    pass\n"
    gpu = "def load(self):\n    pass\n"
    more = {"vllm_omni__helper": elsewhere} if elsewhere else {}
    sets = {"vllm_omni__other": "def run(runner):\n    runner.began = 1\n"}
    for then, told in ((sets, found), ({}, False)):  # where nothing set it before, it is an option
        old = make_world(tmp_path / f"old{len(then)}", world_files(npu, gpu, **more, **then))
        new = make_world(tmp_path / f"new{len(then)}", world_files(npu, gpu, **more), old=old)
        assert ([one for _, _, one in seen(new, "unread-attributes")] == ["began"]) is told


def test_a_worker_of_the_gpu_side_does_not_count(tmp_path: Path) -> None:
    gpu = READS + "\ndef other(self, peer):\n    return peer.keep_hidden\n"
    assert unread(tmp_path, WRITES, gpu) == ["keep_hidden"]


def test_what_the_shared_base_sets_and_only_the_gpu_heir_reads(tmp_path: Path) -> None:
    files = world_files("pass", "def pay(self):\n    return self.keep_hidden\n")
    files[GPU_BASE] = cls("", "OmniGPUModelRunner", "object", WRITES)
    found = findings(make_world(tmp_path, files), "unread-attributes")
    assert [(f.subject, f.here.path) for f in found] == [("keep_hidden", GPU_BASE)]


def test_an_heir_leaves_out_what_it_overrides_on_purpose(tmp_path: Path) -> None:
    vllm = "class GPUModelRunner:\n    def pay(self):\n        return self.keep_hidden\n"
    ascend = WRITES + "\ndef pay(self):\n    return 1\n"
    head = "from vllm.v1.worker.gpu_model_runner import GPUModelRunner\n"
    files = {VLLM: vllm, ASCEND: cls(head, "NPUModelRunner", "GPUModelRunner", ascend)}
    assert seen(make_world(tmp_path, files, omni=False), "unread-attributes") == []


ASKS = "def step(self):\n    if not getattr(self, 'cleared', False):\n        self.clear()\n"
SETS = ASKS + "        self.cleared = True\n"


@pytest.mark.parametrize(
    ("npu", "gpu", "more", "told"),
    [
        (ASKS, SETS, {}, ["cleared"]),
        (SETS, SETS, {}, []),
        (ASKS, ASKS, {}, []),
        (f"cleared = False\n\n{ASKS}", SETS, {}, []),
        (ASKS, SETS, {"vllm_omni__helper": "def use(runner):\n    runner.cleared = True\n"}, []),
        (ASKS, SETS, {"vllm_omni__helper": "def use(runner):\n    setattr(runner, 'cleared', 1)\n"}, []),
    ],
)
def test_what_only_the_gpu_side_sets_is_found(
    tmp_path: Path, npu: str, gpu: str, more: dict[str, str], told: list[str]
) -> None:
    assert unread(tmp_path, npu, gpu, **more) == told
