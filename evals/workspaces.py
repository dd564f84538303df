"""The workspaces of the tasks, made of released packages and tiny checkpoints."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.adapt_checkpoints import make
from bench.walk_repo import begin_repo, git, make_repo, write_texts
from graders.task import CHECKOUT, TASK, Handed, Setup, Task
from npu_upgrade.cli import calls
from npu_upgrade.gates.vllm_cpu import tiny
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.paths import workspace_root
from npu_upgrade.sources.tree import open_source

ROOT = Path(__file__).resolve().parents[1]
SKILL = ".claude/skills/vllm-npu-upgrade"
BEGUN = 3
"""So many questions are answered in an upgrade that is to be taken over."""


def prepare(task: Task, folder: Path) -> Handed:
    """Make the workspace of ``task`` in the new folder ``folder``: a checkout with the skill in it.

    The skill is the committed state of this repository, as its installer copies it. Raises OSError when
    ``folder`` is there already, and the errors of :func:`open_source`.
    """
    folder.mkdir(parents=True)
    checkout = folder / CHECKOUT
    BUILDERS[task.setup.kind](task.setup, checkout)
    _install(checkout)
    # calls are noted from the first one of the agent on
    (workspace_root(checkout) / calls.NAME).unlink(missing_ok=True)
    handed = Handed(
        task.id,
        git(checkout, "rev-parse", "main").strip(),
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        git(ROOT, "rev-parse", "HEAD").strip(),
    )
    write_json(folder / TASK, msgspec.to_builtins(handed))
    return handed


def _upgrade(setup: Setup, checkout: Path) -> None:
    make_repo(checkout, setup.omni, setup.gpu)


def _taken_over(setup: Setup, checkout: Path) -> None:
    """An upgrade that somebody merged and began to answer."""
    make_repo(checkout, setup.omni, setup.gpu)
    sources = ["--omni", f"git:{checkout}@main", "--ascend", f"pypi:vllm-ascend=={setup.ascend}"]
    _call(checkout, "merge", *sources, "--apply")
    for _ in range(BEGUN):
        ask = _call(checkout, "next").get("ask")
        if not ask:
            break
        conflict = ask["stage"] == "conflict"
        how = ["--take", "theirs"] if conflict else ["--accept", "--note", "read both sides"]
        _call(checkout, "resolve", ask["id"], *how)


def _call(checkout: Path, *arguments: str) -> dict:
    script = [sys.executable, str(ROOT / "scripts/upgrade.py"), *arguments, "--format", "json"]
    done = subprocess.run(script, cwd=checkout, capture_output=True, text=True, check=False)
    return json.loads(done.stdout or "{}")


def _adapt(setup: Setup, checkout: Path) -> None:
    """A checkout of vllm-ascend with the checkpoints, which git does not see."""
    ascend = open_source(f"pypi:vllm-ascend=={setup.ascend}")
    _begin(checkout, ascend.list(""), ascend.read, f"vllm-ascend {setup.ascend}")
    for folder, which in setup.models.items():
        kind, _, name = which.rpartition(":")
        (checkout / folder).parent.mkdir(exist_ok=True)
        if kind == "bench":
            make(name, checkout / folder)
        else:
            shutil.copytree(tiny(name) if kind == "tiny" else ROOT / "evals/files" / name, checkout / folder)
        _hide(checkout, f"/{folder}/")


def _log(setup: Setup, checkout: Path) -> None:
    """A folder with nothing but the log of a server that failed."""
    text = (ROOT / "tests/fixtures/serve_logs" / f"{setup.log}.log").read_text("utf-8")
    _begin(checkout, ["serve.log"], lambda _: text, "the log")


def _begin(checkout: Path, paths: list[str], read: Callable[[str], str], message: str) -> None:
    begin_repo(checkout)
    write_texts(checkout, paths, read)
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-s", "-m", message)


def _install(checkout: Path) -> None:
    """The committed files of this repository, as the skill of the checkout."""
    skill = checkout / SKILL
    skill.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", os.fspath(skill)], input=archive, check=True)
    _hide(checkout, "/.claude/")


def _hide(checkout: Path, line: str) -> None:
    with open(checkout / ".git/info/exclude", "a", encoding="utf-8") as stream:
        stream.write(f"{line}\n")


BUILDERS: dict[str, Callable[[Setup, Path], None]] = {
    "upgrade": _upgrade,
    "taken over": _taken_over,
    "adapt": _adapt,
    "log": _log,
}
