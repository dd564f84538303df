"""A model that vLLM lacks, from its folder to one signed-off commit, and three faults on the way: real vLLM.

Three servers in all. The commands are those of the runbook, each a process of its own; the adapter is the
scaffold, installed as a plugin by the gates, and delivered from the checkout it lies in.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from adaptation_kit import (
    ARCHITECTURE,
    PACKAGE,
    WEIGHTS,
    adapt,
    make_checkpoint,
    make_fp8,
    set_mapping,
)

from bench.gates_cases import SMALL
from npu_upgrade.sources.tree import open_source

NAME = "Tidal-1M"
VLLM, ASCEND = "pypi:vllm==0.30.0", "pypi:vllm-ascend==0.30.0rc2"
OPEN = {"npu", "graph", "capacity", "accuracy", "throughput"}  # what this way leaves open, whatever else
PAGE = f"docs/source/tutorials/models/{NAME}.md"
CODE = [
    f"tidal/{name}"
    for name in (
        *("pyproject.toml", f"tests/test_{PACKAGE}.py"),
        *(f"{PACKAGE}/{one}.py" for one in ("__init__", "configuration", "model")),
    )
]

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="no vLLM for this CPU"
    ),
]


@dataclass
class World:
    """``model``: the checkpoint; ``repo``: vllm-ascend's documents in git, with the adapter in ``tidal``."""

    folder: Path
    model: Path
    repo: Path

    @property
    def project(self) -> Path:
        return self.repo / "tidal"

    def adapt(self, *arguments: str | Path) -> tuple[int, dict[str, Any]]:
        return adapt(self.folder, *arguments)

    def serve(self, weights: str) -> tuple[int, dict[str, Any]]:
        """The serve gate on this CPU; with the known answers where weights are real."""
        gate = ("--gate", self.model / "gate.yaml") if weights == "real" else ()
        given = ("--python", "cpu", "--load-format", weights, "--work-dir", self.folder, *gate)
        return self.adapt("serve", self.model, *given, "--", *SMALL)

    def artifacts(self) -> tuple[int, dict[str, Any]]:
        given = ("--tree", self.repo, "--unpublished", f"models/{NAME}")
        return self.adapt("artifacts", self.model, *given)

    def deliver(self, model: Path | None = None, gaps: Iterable[str] = ()) -> tuple[int, dict[str, Any]]:
        opened = [part for gap in gaps for part in ("--open", gap)]
        given = ("--repo", self.repo, "--pending-npu", *opened)
        return self.adapt("deliver", model or self.model, *given)

    def commits(self) -> int:
        return int(git(self.repo, "rev-list", "--count", "main..HEAD"))


def git(repo: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=repo, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Analysed and planned, with the adapter written, and nothing was served yet."""
    folder = tmp_path_factory.mktemp("adaptation")
    made = World(folder, make_checkpoint(folder / NAME), folder / "vllm-ascend")
    release(made.repo)
    code, found = made.adapt("analyze", made.model, "--vllm", VLLM, "--ascend", ASCEND)
    assert (code, found["serving"]["by"], found["strategy"]["name"]) == (0, "nobody", "native adapter")
    assert found["serving"]["architecture"] == ARCHITECTURE
    given = ("--vllm", VLLM, "--ascend", ASCEND, "--delivery", made.repo)
    code, plan = made.adapt("plan", made.model, *given, "--scaffold", made.project, "--form", "plugin")
    assert code == 0, plan
    assert sorted(plan["scaffold"]) == sorted(str(made.repo / path) for path in CODE)
    assert (plan["likeness"]["family"], plan["decisions"]) == ("Qwen3ForCausalLM", [])
    return made


def release(repo: Path) -> None:
    """What of vllm-ascend's release a delivery touches, as a repository on a branch of its own."""
    root = open_source(ASCEND).root
    assert root
    for part in ("docs", "mkdocs.yml", "tests/e2e/models", ".gitignore"):
        source, target = root / part, repo / part
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    git(repo.parent, "init", "-q", "-b", "main", str(repo))
    git(repo, "config", "user.name", "Ada Lovelace")
    git(repo, "config", "user.email", "ada@example.com")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "Start")
    git(repo, "switch", "-q", "-c", "adapt-tidal")


def states(result: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["state"] for one in result["checks"]}


def test_from_an_architecture_that_vllm_lacks_to_one_commit(world: World) -> None:
    """Dummy weights sign nothing off; real ones find the wrong name, and serve with the right one."""
    code, dummy = world.serve("dummy")
    assert (code, dummy["label"]) == (0, "CPU dummy"), dummy
    assert dummy["architectures"] == [ARCHITECTURE]
    assert states(dummy)["plugin"] == "PASS"
    (python,) = world.folder.glob(f".npu-upgrade/adapt/{NAME}/env-*/bin/python")
    code, found = world.adapt("analyze", world.model, "--vllm", VLLM, "--python", python)
    assert (found["serving"]["by"], found["serving"]["module"]) == ("plugin", f"{PACKAGE}.model"), found
    assert world.artifacts()[0] == 0
    code, refused = world.deliver()
    assert code == 2
    assert "dummy" in str(refused)

    set_mapping(world.project, wrong=True)
    code, failed = world.serve("real")
    assert (code, failed["root"]["id"]) == (1, "weight-name-unmapped"), failed
    assert "output_proj" in failed["root"]["text"]
    assert world.artifacts()[0] == 0
    code, refused = world.deliver()
    assert code == 2
    assert "failed for this code" in str(refused)
    assert world.commits() == 0

    set_mapping(world.project, wrong=False)
    code, real = world.serve("real")
    assert (code, real["label"]) == (0, "CPU real"), real
    semantic = {name: state for name, state in states(real).items() if name.startswith("semantic:")}
    assert set(semantic.values()) == {"PASS"}
    code, written = world.artifacts()
    assert code == 0
    gaps = [gap["id"] for gap in written["gaps"]]
    assert set(gaps) >= OPEN

    set_mapping(world.project, wrong=True)  # the plugin is not what was judged
    code, refused = world.deliver(gaps=gaps)
    assert code == 2
    assert "is not what gate serve (CPU real) judged" in str(refused)
    set_mapping(world.project, wrong=False)
    assert world.deliver(gaps=gaps[:-1])[0] == 2
    code, done = world.deliver(gaps=gaps)
    assert code == 0, done
    assert world.commits() == 1
    assert git(world.repo, "status", "--porcelain") == ""
    committed = git(world.repo, "show", "--format=", "--name-only", "HEAD").split()
    assert set(CODE) | {PAGE, "mkdocs.yml"} <= set(committed)
    assert all(path in CODE or path.startswith(("docs/", "mkdocs.yml")) for path in committed)
    body = git(world.repo, "show", "-s", "--format=%B", "HEAD").strip().splitlines()
    assert body[-1] == "Signed-off-by: Ada Lovelace <ada@example.com>"
    assert "NPU-Validation: pending" in body
    assert f"Open gaps ({len(gaps)}):" in body


def test_a_corrupt_shard_is_found_by_the_analysis_and_by_real_weights(world: World) -> None:
    weights, before = world.model / WEIGHTS, git(world.repo, "rev-parse", "HEAD")
    whole = weights.read_bytes()
    weights.write_bytes(b"\xff" * 64 + whole[64:])
    try:
        code, found = world.adapt("analyze", world.model, "--vllm", VLLM)
        assert code == 1
        assert [one["kind"] for one in found["findings"]] == ["shard-header"]
        code, failed = world.serve("real")
        assert (code, failed["root"]["id"]) == (1, "shard-corrupt"), failed
        assert world.artifacts()[0] == 0
        assert world.deliver()[0] == 2
        scaffold = world.folder / "none"
        assert world.adapt("plan", world.model, "--vllm", VLLM, "--scaffold", scaffold)[0] == 1
        assert not scaffold.exists()
        assert git(world.repo, "rev-parse", "HEAD") == before
    finally:
        weights.write_bytes(whole)


def test_an_fp8_checkpoint_without_one_scale_stops_at_the_analysis(world: World) -> None:
    folder = world.folder / "Tidal-fp8"
    victim = make_fp8(folder, world.model)
    code, found = world.adapt("analyze", folder, "--vllm", VLLM, "--ascend", ASCEND)
    assert (code, found["quantization"]["method"]) == (1, "fp8")
    errors = [(one["kind"], one["where"]) for one in found["findings"] if one["severity"] == "error"]
    assert errors == [("scale-missing", victim)]
    code, plan = world.adapt("plan", folder, "--vllm", VLLM, "--scaffold", world.folder / "fp8")
    assert code == 1
    assert not (world.folder / "fp8").exists()
    assert " analyze " in plan["next"]
    assert world.deliver(folder)[0] == 2
