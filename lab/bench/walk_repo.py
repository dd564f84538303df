"""A real git repository of a user's vllm-omni, made from released archives."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable
from email.parser import HeaderParser
from pathlib import Path

from npu_upgrade.gates.emulation.packages import entry_points
from npu_upgrade.lineage.downstream import omni_side
from npu_upgrade.sources.tree import SourceTree, open_source


def make_repo(folder: Path, omni: str, gpu: str) -> None:
    """A repository on ``main``: the release ``omni``, tagged, and when ``gpu`` is another release a commit

    that brings everything but the three NPU runner files to it: the usual state before an upgrade.
    """
    begin_repo(folder)
    release = open_source(f"pypi:vllm-omni=={omni}")
    _commit(folder, release, f"vllm-omni {omni}", keep=())
    git(folder, "tag", f"v{omni}")
    if gpu != omni:
        runners = [runner.path for runner in omni_side(release).runners]
        _commit(folder, open_source(f"pypi:vllm-omni=={gpu}"), f"GPU side of vllm-omni {gpu}", keep=runners)


def begin_repo(folder: Path) -> None:
    """An empty repository on ``main`` with an identity."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "A Maintainer")
    git(folder, "config", "user.email", "maintainer@example.com")
    git(folder, "config", "commit.gpgsign", "false")


def write_texts(folder: Path, paths: Iterable[str], read: Callable[[str], str]) -> None:
    """Those of some files that hold text."""
    for path in paths:
        try:
            text = read(path)
        except (OSError, ValueError):  # pictures and sounds
            continue
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def git(folder: Path, *args: str) -> str:
    """The output of a git command that has to succeed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(
        ["git", *args], cwd=folder, env=env, check=True, capture_output=True, encoding="utf-8"
    )
    return done.stdout


def _commit(folder: Path, tree: SourceTree, message: str, keep: Iterable[str]) -> None:
    """The text files of a release as the working tree, and one commit of it."""
    kept = set(keep)
    old = set(git(folder, "ls-files").split("\n")) - kept - {""}
    for path in old:
        (folder / path).unlink()
    write_texts(folder, [path for path in tree.list("vllm_omni") if path not in kept], tree.read)
    (folder / "pyproject.toml").write_text(_project(tree), encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-s", "-m", message)


def _project(tree: SourceTree) -> str:
    """A pyproject.toml that says what the release's metadata says: what it needs, and its entry points."""
    metadata = next(path for path in tree.list("") if path.endswith(".dist-info/METADATA"))
    needs = HeaderParser().parsestr(tree.read(metadata)).get_all("Requires-Dist") or []
    plain = [need for need in needs if "extra ==" not in need]
    developers = [need.partition(";")[0].strip() for need in needs if re.search(r"; extra == .dev.$", need)]
    lines = [
        "[project]",
        'name = "vllm-omni"',
        'dynamic = ["version"]',
        f"dependencies = {json.dumps(plain)}",
        "",
        "[project.optional-dependencies]",
        f"dev = {json.dumps(developers)}",
    ]
    for group, points in entry_points(tree, "vllm_omni").items():
        table = "scripts" if group == "console_scripts" else f'entry-points."{group}"'
        lines += ["", f"[project.{table}]", *(f"{name} = {json.dumps(to)}" for name, to in points.items())]
    return "\n".join(lines) + "\n"
