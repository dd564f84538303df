"""A model implemented in two checkouts, its evidence, and the repository it is delivered to: real git."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import artifacts_kit
import pytest
from deliver_support import copied, forget_people, git, new_folder, write

from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.subject import Subject

MODEL_FILE = "vllm/model_executor/models/tiny.py"
REGISTRY = "vllm/model_executor/models/registry.py"
PATCH_FILE = "vllm_ascend/patch/tiny.py"
OPS = "vllm_ascend/ops.py"


@dataclass
class World:
    """``repo`` is a clone of vllm-ascend on a branch of its own; ``vllm`` and ``ascend`` hold the work."""

    folder: Path
    repo: Path
    vllm: Path
    ascend: Path
    workspace: Path

    @property
    def code(self) -> Subject:
        """What the gates judge: the packages as they are now."""
        return judged({"vllm": self.vllm / "vllm", "vllm_ascend": self.ascend / "vllm_ascend"})[0]

    def serve(self, label: str = "NPU real", gate: str = "serve", **changes: Any) -> Path:
        return artifacts_kit.add(self.workspace, gate, label, code=self.code, **changes)

    def prove(self, label: str = "NPU real", **changes: Any) -> None:
        artifacts_kit.add_all(self.workspace, label, code=self.code, **changes)

    def generate(
        self, capsys: pytest.CaptureFixture[str], tree: Path | None = None, more: Sequence[str] = ()
    ) -> None:
        given = ("--tree", str(tree or self.repo), "--workspace", str(self.workspace), *more)
        code, result = artifacts_kit.run(capsys, "artifacts", artifacts_kit.HF_ID, *given)
        assert code == 0, result

    def head(self) -> str:
        return git(self.repo, "rev-parse", "HEAD").strip()

    def committed(self) -> list[str]:
        return git(self.repo, "diff-tree", "-r", "--name-only", "--no-commit-id", "HEAD").split()

    def body(self) -> str:
        return git(self.repo, "show", "-s", "--format=%B", "HEAD")


def start(repo: Path, message: str = "Start") -> None:
    """Make ``repo`` a repository with all its files in one commit, by a person that git knows."""
    git(repo.parent, "init", "-q", "-b", "main", str(repo))
    git(repo, "config", "user.name", "Ada Lovelace")
    git(repo, "config", "user.email", "ada@example.com")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", message)


def make_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Everything up to the delivery: work uncommitted in both roots, no evidence yet."""
    forget_people(monkeypatch)
    copied(Path(_world().name), folder, "delivery/.git/config")
    return _places(folder)


def _places(folder: Path) -> World:
    work = folder / "work"
    return World(folder, folder / "delivery", work / "vllm", work / "vllm-ascend", folder / "workspace")


@functools.cache
def _world() -> tempfile.TemporaryDirectory[str]:
    made = new_folder()
    _make(_places(Path(made.name).resolve()))
    return made


def _make(world: World) -> None:
    folder, ascend, vllm, repo = world.folder, world.ascend, world.vllm, world.repo
    artifacts_kit.mkdocs_tree(ascend)
    write(ascend, OPS, "".join(f"line_{number} = {number}\n" for number in range(30)))
    start(ascend)
    write(vllm, REGISTRY, "MODELS = {}\n")
    start(vllm)
    git(folder, "clone", "-q", str(ascend), str(repo))
    git(repo, "config", "user.name", "Ada Lovelace")
    git(repo, "config", "user.email", "ada@example.com")
    git(repo, "switch", "-q", "-c", "adapt-tiny")
    write(vllm, MODEL_FILE, "class Tiny:\n    pass\n")
    write(vllm, REGISTRY, "MODELS = {'Tiny': 1}\n")
    write(ascend, PATCH_FILE, "PATCHED = True\n")
    text = (ascend / OPS).read_text().replace("line_3 = 3\n", "line_3 = 'three'\n")
    write(ascend, OPS, text)
    world.workspace.mkdir()


def deliver(world: World, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """One ``adapt.py deliver`` with both roots, everything in their packages named."""
    given = ["--repo", str(world.repo), "--workspace", str(world.workspace)]
    if "--bare" not in options:
        given += ["--ascend", str(world.ascend), "--vllm", str(world.vllm)]
        given += ["--include", "vllm", "--include", "vllm_ascend"]
    options = tuple(option for option in options if option != "--bare")
    return artifacts_kit.run(capsys, "deliver", artifacts_kit.HF_ID, *given, *options)
