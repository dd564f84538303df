"""What the parity tests share: runner classes written as bodies, on an invented vllm and vllm-ascend."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

from audit_kit import AR, ASCEND, BASE, GPU_AR, GPU_BASE, VLLM, make_world, seen

from npu_upgrade.audit.world import World


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _class(name: str, bases: str, body: str) -> str:
    return f"class {name}({bases}):\n{indent(dedent(body).strip() or 'pass', '    ')}\n"


def runners(
    folder: Path,
    *,
    gpu: str = "",
    npu: str = "",
    gpu_base: str = "",
    npu_base: str = "",
    vllm: str = "",
    ascend: str = "",
    head: str = "",
    npu_head: str = "",
    more: dict[str, str] | None = None,
) -> World:
    """A world whose AR runners have these bodies; ``head`` stands before the GPU class."""
    files = {
        VLLM: _class("GPUModelRunner", "object", vllm),
        ASCEND: f"from {_module(VLLM)} import GPUModelRunner\n"
        + _class("NPUModelRunner", "GPUModelRunner", ascend),
        GPU_BASE: f"from {_module(VLLM)} import GPUModelRunner\n"
        + _class("OmniGPUModelRunner", "GPUModelRunner", gpu_base),
        GPU_AR: f"from {_module(GPU_BASE)} import OmniGPUModelRunner\n{dedent(head)}\n"
        + _class("GPUARModelRunner", "OmniGPUModelRunner", gpu),
        BASE: f"from {_module(ASCEND)} import NPUModelRunner\n"
        f"from {_module(GPU_BASE)} import OmniGPUModelRunner\n"
        + _class("OmniNPUModelRunner", "OmniGPUModelRunner, NPUModelRunner", npu_base),
        AR: f"from {_module(BASE)} import OmniNPUModelRunner\n{dedent(npu_head)}\n"
        + _class("NPUARModelRunner", "OmniNPUModelRunner", npu),
    }
    return make_world(folder, files | (more or {}))


def told(world: World, check: str) -> list[tuple[str, str]]:
    """The findings of a check as (owner, subject)."""
    return [(owner, subject) for _, owner, subject in seen(world, check)]
