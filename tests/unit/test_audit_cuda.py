"""The check for CUDA names in NPU code and in what it inherits."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest
from audit_kit import AR, ASCEND, BASE, GPU_BASE, NPU, findings, make_world, seen
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.audit.checks.cuda_names import cuda_uses

FILE = f"{NPU}/tools.py"
WRAP = """
    import torch
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    class NPUModelRunner(GPUModelRunner):
        def __init__(self):
            torch.cuda.Event = torch.npu.Event
            torch.cuda.synchronize = torch.npu.synchronize
"""
GPU = """
    import torch
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    from vllm_omni.copies import fetch

    class OmniGPUModelRunner(GPUModelRunner):
        def keep(self, value):
            if value.is_cuda:
                value = fetch(value)
            return value

        def measure(self):
            torch.cuda.Event().record()
            return torch.cuda.max_memory_allocated()

        def collect(self, value):
            return fetch(value)
"""


def uses(text: str) -> list[tuple[str, str]]:
    return [(use.kind, use.name) for use in cuda_uses(ast.parse(dedent(text)).body)]


def test_every_way_to_name_cuda(tmp_path: Path) -> None:
    text = """
        import torch
        from vllm.graphs import CUDAGraphWrapper

        class Runner:
            def run(self, x, graph):
                torch.cuda.Event()
                torch.cuda.set_stream(x)
                x = x.cuda()
                y = torch.zeros(3, device="cuda")
                z = torch.zeros(3, device=f"cuda:{x}").to("cuda:0")
                torch.distributed.init_process_group(backend="nccl")
                return CUDAGraphWrapper(graph)

            def later(self, graph):
                from vllm.graphs import CUDAGraphRunner

                return CUDAGraphRunner(graph)
    """
    files = {
        FILE: text,
        ASCEND: WRAP,
        "vllm/graphs.py": "class CUDAGraphWrapper:\n    pass\n\n\nclass CUDAGraphRunner:\n    pass\n",
        "vllm_ascend/graphs.py": "class ACLGraphWrapper:\n    pass\n",
    }
    found = findings(make_world(tmp_path, files), "cuda-names")
    assert {(one.kind, one.owner, one.subject) for one in found} == {
        ("call", "Runner.run", "torch.cuda.set_stream"),
        ("redirected", "Runner.run", "torch.cuda.Event"),
        ("device", "Runner.run", ".cuda()"),
        ("device", "Runner.run", "cuda"),
        ("device", "Runner.run", "cuda:"),
        ("device", "Runner.run", "cuda:0"),
        ("device", "Runner.run", "nccl"),
        ("name", "Runner.run", "vllm.graphs.CUDAGraphWrapper"),
        ("name", "Runner.later", "vllm.graphs.CUDAGraphRunner"),
    }
    assert [one.todo for one in found if one.kind == "name"] == [
        "use vllm_ascend.graphs.ACLGraphWrapper",
        "use what vllm-ascend's own runner uses here",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "if torch.cuda.is_available():\n    torch.cuda.set_stream(x)\n",
        "if platform.is_cuda():\n    torch.cuda.set_stream(x)\n",
        "def run(stream: torch.cuda.Stream) -> None:\n    'torch.cuda.set_stream'\n",
        "stream: torch.cuda.Stream | None = None\n",
        "def run():\n    if not platform.is_cuda_alike():\n        return\n    torch.cuda.set_stream(x)\n",
        "a = torch.cuda.memory() if platform.is_cuda() else 0\n",
        "ok = platform.is_cuda() and torch.cuda.memory() > 3\n",
        "log('running on', 'cuda')\n",
        "torch.cuda.Event = torch.npu.Event\n",
    ],
)
def test_what_runs_on_cuda_only_or_not_at_all(text: str) -> None:
    assert uses(text) == []


def test_the_other_branch_counts() -> None:
    assert uses("if x.device.type != 'cuda':\n    y = x.cuda()\nelse:\n    torch.cuda.set_stream(x)\n") == [
        ("test", "x.device.type"),
        ("device", ".cuda()"),
    ]
    assert uses("if not platform.is_cuda():\n    pass\ntorch.cuda.set_stream(x)\n") == [
        ("call", "set_stream")
    ]


def test_what_npu_classes_inherit_and_call(tmp_path: Path) -> None:
    files = {
        GPU_BASE: GPU,
        ASCEND: WRAP,
        "vllm_omni/copies.py": "import torch\n\ndef fetch(value):\n    return torch.cuda.comm.join(value)\n",
    }
    assert sorted(seen(make_world(tmp_path / "a", files), "cuda-names")) == [
        ("inherited-call", "OmniGPUModelRunner.measure", "torch.cuda.max_memory_allocated"),
        ("inherited-call", "fetch", "torch.cuda.comm.join"),
        ("inherited-test", "OmniGPUModelRunner.keep", "is_cuda"),
    ]
    override = """
        from vllm_ascend.worker.model_runner_v1 import NPUModelRunner
        from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner

        class OmniNPUModelRunner(OmniGPUModelRunner, NPUModelRunner):
            def keep(self, value):
                return value

            def measure(self):
                return super().measure()

            def collect(self, value):
                return value
    """
    assert seen(make_world(tmp_path / "b", files | {BASE: override}), "cuda-names") == [
        ("inherited-call", "OmniGPUModelRunner.measure", "torch.cuda.max_memory_allocated"),
    ]


def test_names_that_vllm_ascend_uses_itself_are_neutral(tmp_path: Path) -> None:
    files = {
        AR: "from vllm.modes import CUDAGraphMode\n\nMODE = CUDAGraphMode\n",
        "vllm/modes.py": "class CUDAGraphMode:\n    pass\n",
    }
    world = make_world(tmp_path / "a", files)
    assert seen(world, "cuda-names") == [("name", "", "vllm.modes.CUDAGraphMode")]
    used = {"vllm_ascend/graphs.py": "from vllm.modes import CUDAGraphMode\n"}
    assert seen(make_world(tmp_path / "b", files | used), "cuda-names") == []


def test_transfer_to_npu_redirects_everything(tmp_path: Path) -> None:
    patch = {"vllm_ascend/patch/cuda.py": "from torch_npu.contrib import transfer_to_npu\n"}
    assert seen(make_world(tmp_path, {GPU_BASE: GPU, **patch}), "cuda-names") == []


@given(
    st.lists(
        st.sampled_from(
            [
                "x = x.cuda()",
                "if a:\n    x = x.cuda()",
                "with a:\n    x = x.cuda()",
                "for x in a:\n    x = x.cuda()",
                "try:\n    x = x.cuda()\nfinally:\n    pass",
                "def f():\n    x = x.cuda()",
                "while b:\n    x = x.cuda()",
            ]
        ),
        max_size=5,
    )
)
def test_no_block_hides_a_use(parts: list[str]) -> None:
    assert len(uses("\n".join(parts))) == len(parts)
