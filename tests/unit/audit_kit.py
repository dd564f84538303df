"""Invented trees for tests of the audit: a vllm, a vllm-ascend on it, and a vllm-omni on both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import run_checks
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.program.program import Program
from npu_upgrade.sources.tree import SourceTree, open_source

NPU = "vllm_omni/platforms/npu/worker"
GPU = "vllm_omni/worker"
BASE, AR, GENERATION = (f"{NPU}/npu_{kind}model_runner.py" for kind in ("", "ar_", "generation_"))
GPU_BASE, GPU_AR = (f"{GPU}/gpu_{kind}model_runner.py" for kind in ("", "ar_"))
ASCEND = "vllm_ascend/worker/model_runner_v1.py"
VLLM = "vllm/v1/worker/gpu_model_runner.py"

PLAIN = {
    VLLM: "class GPUModelRunner:\n    pass\n",
    ASCEND: f"""
        from {VLLM[:-3].replace("/", ".")} import GPUModelRunner

        class NPUModelRunner(GPUModelRunner):
            pass
    """,
    GPU_BASE: f"""
        from {VLLM[:-3].replace("/", ".")} import GPUModelRunner

        class OmniGPUModelRunner(GPUModelRunner):
            pass
    """,
    GPU_AR: f"""
        from {GPU_BASE[:-3].replace("/", ".")} import OmniGPUModelRunner

        class GPUARModelRunner(OmniGPUModelRunner):
            pass
    """,
    BASE: f"""
        from {ASCEND[:-3].replace("/", ".")} import NPUModelRunner
        from {GPU_BASE[:-3].replace("/", ".")} import OmniGPUModelRunner

        class OmniNPUModelRunner(OmniGPUModelRunner, NPUModelRunner):
            pass
    """,
    AR: f"""
        from {BASE[:-3].replace("/", ".")} import OmniNPUModelRunner

        class NPUARModelRunner(OmniNPUModelRunner):
            pass
    """,
    GENERATION: f"""
        from {BASE[:-3].replace("/", ".")} import OmniNPUModelRunner

        class NPUGenerationModelRunner(OmniNPUModelRunner):
            pass
    """,
}
"""The runner files with nothing in them; tests replace the ones they are about."""


def make_world(
    folder: Path, files: Mapping[str, str], *, omni: bool = True, old: World | None = None
) -> World:
    """A world of :data:`PLAIN` with ``files`` (path -> text, dedented) in place of or beside its own."""
    return World(make_triple(folder, files, omni=omni), old)


def make_triple(folder: Path, files: Mapping[str, str], *, omni: bool = True) -> Triple:
    for path, text in ({"vllm/__init__.py": "", "vllm_ascend/__init__.py": ""} | PLAIN | dict(files)).items():
        place = folder / path.partition("/")[0] / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(dedent(text).lstrip("\n"))
    (folder / "vllm_omni" / "vllm_omni" / "__init__.py").touch()
    trees: dict[str, SourceTree] = {
        top: open_source(f"dir:{folder / top}") for top in ("vllm", "vllm_ascend", "vllm_omni")
    }
    return Triple(trees["vllm_omni"] if omni else None, trees["vllm_ascend"], trees["vllm"])


def findings(world: World, check: str) -> list[Finding]:
    """What one check finds, which is the same where several worlds share its vllm."""
    found = run_checks(world, [check])
    beneath = Program({"vllm": world.triple.vllm})
    assert run_checks(World(world.triple, world.old, beneath), [check]) == found
    return found


def seen(world: World, check: str) -> list[tuple[str, str, str]]:
    """The findings of one check as (kind, owner, subject)."""
    return [(found.kind, found.owner, found.subject) for found in findings(world, check)]
