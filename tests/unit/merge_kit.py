"""A vllm-ascend clone and a vllm-omni checkout whose runners copy from it, for tests of merge and plan."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_kit import called
from lineage_kit import RUNNERS, UPSTREAM, commit_at, git_at

OLD = """import torch
from vllm.config import VllmConfig


class NPUModelRunner:
    def run(self, batch):
        self.prepare(batch)
        tokens = self.count(batch)
        logits = self.forward(batch, tokens)
        self.record(logits)
        state = self.finish(logits)
        return state

    def load(self, path):
        self.path = path
"""

NEW = """import torch
from vllm.config import VllmConfig
from vllm.stats import GraphStats


class NPUModelRunner:
    def run(self, batch):
        self.prepare(batch)
        tokens = self.count(batch, padded=True)
        stats = GraphStats(tokens)
        logits = self.forward(batch, tokens)
        self.record(stats.of(logits))
        state = self.finish(logits)
        return state

    def load(self, path, device):
        self.path = path
        self.device = device
"""

STATS = """class GraphStats:
    def __init__(self, tokens):
        self.tokens = tokens

    def of(self, logits):
        return logits
"""

OURS = """    def run(self, batch):
        self.prepare(batch)
        # ------- Omni-new -------
        self.talk(batch)
        # ------- Omni-new -------
        tokens = self.count(batch)
        logits = self.forward(batch, tokens)
        self.record(logits)
        state = self.finish(logits)
        return state

    def talk(self, batch):
        self.said = batch
"""

DAY = "2026-03-02"
CONFLICTING = OURS.replace("self.record(logits)", "self.record(logits.cpu())")


def runner_files(base: str = OURS, ar: str = "    pass\n", generation: str = "    pass\n") -> dict[str, str]:
    """The runner files of a vllm-omni, complete with their imports and the GPU base class."""
    own = "from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner\n"
    heads = {
        "base": "from vllm_ascend.worker.model_runner_v1 import NPUModelRunner\n\n"
        "from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner\n",
        "ar": own,
        "generation": own,
    }
    bodies = {"base": base, "ar": ar, "generation": generation}
    files = {
        "vllm_omni/__init__.py": "",
        "vllm_omni/worker/gpu_model_runner.py": "class OmniGPUModelRunner:\n    pass\n",
    }
    for runner in RUNNERS:
        parents = "OmniGPUModelRunner, NPUModelRunner" if runner.kind == "base" else "OmniNPUModelRunner"
        head = f"{heads[runner.kind]}\n\nclass {runner.class_name}({parents}):\n"
        files[runner.path] = head + bodies[runner.kind]
    return files


@dataclass
class World:
    """``ascend`` has the tags ``old`` and ``new``; ``omni`` is a checkout on ``main``."""

    ascend: Path
    omni: Path
    workspace: Path

    @property
    def target(self) -> str:
        return f"git:{self.ascend}@new"


def make_world(folder: Path, ours: str = OURS) -> World:
    ascend, omni, workspace = folder / "ascend", folder / "omni", folder / "workspace"
    commit_at(ascend, "2026-01-01", {UPSTREAM.path: OLD, "vllm_ascend/__init__.py": ""})
    git_at(ascend, "2026-01-01", "tag", "old")
    commit_at(ascend, "2026-03-01", {UPSTREAM.path: NEW})
    git_at(ascend, "2026-03-01", "tag", "new")
    commit_at(omni, "2026-02-01", runner_files(ours))
    workspace.mkdir()
    return World(ascend, omni, workspace)


def made_once(folders: tuple[Path, Path], make: Callable[[Path], object]) -> World:
    """The world that ``make`` makes in the first folder, at the first call; put back as it was made later.

    The second folder keeps it.
    """
    folder, kept = folders
    if kept.exists():
        shutil.rmtree(folder)
        shutil.copytree(kept, folder, symlinks=True)
    else:
        folder.mkdir()
        make(folder)
        shutil.copytree(folder, kept, symlinks=True)
    return World(folder / "ascend", folder / "omni", folder / "workspace")


def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str) -> World:
    """A world whose upgrade is applied to the checkout; the present folder is that checkout."""
    world = make_world(tmp_path, ours)
    monkeypatch.chdir(world.omni)
    for name, value in (("user.name", "T"), ("user.email", "t@example.com")):
        git_at(world.omni, DAY, "config", name, value)
    upgrade(
        "merge", "--omni", f"git:{world.omni}@main", "--ascend", world.target, "--apply", "--branch", "up"
    )
    return world


def audit(world: World) -> tuple[int, dict[str, Any], str]:
    """Audit the merged runners against the ones before, on a vllm with nothing in it."""
    vllm = world.workspace.parent / "vllm-source"
    (vllm / "vllm").mkdir(parents=True, exist_ok=True)
    (vllm / "vllm" / "config.py").write_text("class VllmConfig:\n    pass\n")
    (vllm / "vllm" / "stats.py").write_text(STATS)
    (vllm / "vllm" / "__init__.py").touch()
    old = [f"git:{world.omni}@main", f"git:{world.ascend}@old", f"dir:{vllm}"]
    return upgrade("audit", "--vllm", f"dir:{vllm}", "--baseline", *old)


def upgrade(*args: str) -> tuple[int, dict[str, Any], str]:
    """Run one command: exit code, the JSON on stdout, and stderr."""
    return called("upgrade.py", *args)
