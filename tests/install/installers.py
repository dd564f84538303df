"""The `skills` installer in two versions, and a git source of this working tree to install from."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAME = "vllm-npu-upgrade"
OLD = "1.5.18"
"""The newest installer that Node 20 takes; later ones want Node 22.20."""
NEWER_NODE = "22"
_SECONDS = 180


@dataclass(frozen=True)
class Installer:
    """One version of the installer as the start of a command line; ``why_not`` tells why it cannot run."""

    version: str
    command: tuple[str, ...] = ()
    node: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class Layout:
    """Where a skill lands: the agents asked for, copied or linked, and the folders that have to be there."""

    name: str
    options: tuple[str, ...]
    folders: tuple[str, ...]


LAYOUTS = (
    Layout("claude-copy", ("-a", "claude-code", "--copy"), (".claude/skills",)),
    Layout("agents-copy", ("-a", "codex", "--copy"), (".agents/skills",)),
    Layout("both-linked", ("-a", "claude-code", "codex"), (".claude/skills", ".agents/skills")),
)


def environment() -> dict[str, str]:
    """The environment of an installer: no telemetry, no prompts, and byte code as Python does it."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return plain | {"DO_NOT_TRACK": "1", "NPM_CONFIG_UPDATE_NOTIFIER": "false", "GIT_TERMINAL_PROMPT": "0"}


def git_source(root: Path, folder: Path) -> str:
    """A bare repository with one commit of ``root`` as it is now, ignored files left out; its URL."""
    listed = _ran(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], root)
    tree = folder / "tree"
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, tree / name)
    identity = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.com"]
    _ran(["git", "init", "-q", "-b", "main"], tree)
    _ran(["git", "add", "-A"], tree)
    _ran(["git", *identity, "commit", "-qm", "The skill as it is"], tree)
    _ran(["git", "clone", "-q", "--bare", str(tree), str(folder / "source.git")], folder)
    return (folder / "source.git").as_uri()


@functools.cache
def old_installer() -> Installer:
    """The version that Node 20 resolves to."""
    return _found(OLD)


@functools.cache
def newest_installer() -> Installer:
    """The newest one of the npm registry."""
    try:
        shown = json.loads(_ran(["npm", "view", "skills@latest", "version", "engines.node", "--json"]))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Installer("latest", why_not=f"the npm registry does not say what is newest: {_short(error)}")
    return _found(shown["version"], shown.get("engines.node", ""))


def install(installer: Installer, source: str, project: Path, layout: Layout) -> Path:
    """Install the skill into ``project``; the folder an agent finds it in first."""
    project.mkdir(parents=True, exist_ok=True)
    _ran([*installer.command, "add", source, *layout.options, "-y"], project)
    return project / layout.folders[0] / NAME


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder with a hash of its bytes; folders stand for themselves."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "/"
        for path in sorted(folder.rglob("*"))
    }


def _found(version: str, wants: str = "") -> Installer:
    """The installer of a version with this machine's Node, else with one from the npm registry."""
    try:
        node = _ran(["node", "--version"]).strip().removeprefix("v")
        if _at_least(node, wants):
            return _tried(version, ("npx", "-y", f"skills@{version}"), node)
        newer = ("npx", "-y", "-p", f"node@{NEWER_NODE}", "-p", f"skills@{version}")
        given = _ran([*newer, "node", "--version"]).strip().removeprefix("v")
        if not _at_least(given, wants):
            return Installer(version, why_not=f"skills {version} wants Node {wants}; here is {node}")
        return _tried(version, (*newer, "skills"), given)
    except (OSError, subprocess.SubprocessError) as error:
        return Installer(
            version, why_not=f"skills {version} wants Node {wants or 'and npx'}: {_short(error)}"
        )


def _tried(version: str, command: tuple[str, ...], node: str) -> Installer:
    _ran([*command, "--version"])
    return Installer(version, command, node)


def _at_least(node: str, wants: str) -> bool:
    """Whether ``20.19.1`` is what ``>=22.20.0`` asks for; nothing asked for is always met."""
    numbers = [tuple(map(int, re.findall(r"\d+", text)[:3])) for text in (node, wants)]
    return numbers[0] >= numbers[1]


def _ran(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise subprocess.SubprocessError(f"{' '.join(command[:4])}: {(done.stderr or done.stdout)[-400:]}")
    return done.stdout


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "/"


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[-300:]
