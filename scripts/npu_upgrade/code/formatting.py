"""The project's own formatters and linter, run on what a merge or an answer changed.

Which ones they are is read from the hooks of pre-commit, else from pyproject.toml and ruff.toml. A file that
a tool leaves alone as it was before is given to it whole; of another one it gets the changed lines.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import yaml

from npu_upgrade.code.conflict_text import marker_rows
from npu_upgrade.ground.progress import say

_SECONDS = 60
_RUFF = ["ruff", "check", "--fix", "--exit-zero", "--quiet", "--stdin-filename"]
# What reads a file from stdin and writes it to stdout, in the order in which they run; PATH is the file's.
_WHOLE = {
    "ruff check": [*_RUFF, "PATH", "-"],
    "isort": ["isort", "--quiet", "--filename", "PATH", "-"],
    "ruff format": ["ruff", "format", "--quiet", "--stdin-filename", "PATH", "-"],
    "black": ["black", "--quiet", "--stdin-filename", "PATH", "-"],
    "yapf": ["yapf"],
}
# Ruff's range ends before its last line, the others' with it.
_LINES = {"ruff format": "--range={0}-{2}", "black": "--line-ranges={}-{}", "yapf": "--lines={}-{}"}
_HOOKS = {"ruff": "ruff check", "ruff-check": "ruff check", "ruff-format": "ruff format"} | {
    name: name for name in ("isort", "black", "yapf")
}


def configured(folder: Path) -> list[str]:
    """The tools that the project in a folder formats and lints with; none where its files do not tell."""
    try:
        hooks = yaml.safe_load((folder / ".pre-commit-config.yaml").read_text("utf-8"))
        ids = {hook["id"] for repo in hooks["repos"] for hook in repo["hooks"]}
        found = {_HOOKS[one] for one in ids & _HOOKS.keys()}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        found = set()
    return [name for name in _WHOLE if name in (found or _sections(folder))]


def project_of(folder: Path) -> Path | None:
    """The nearest folder, this one or above it, whose files tell the tools; none above its git checkout."""
    for one in (folder, *folder.parents):
        if configured(one):
            return one
        if (one / ".git").exists():
            return None
    return None


def _sections(folder: Path) -> set[str]:
    try:
        tools = tomllib.loads((folder / "pyproject.toml").read_text("utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        tools = {}
    for name in ("ruff.toml", ".ruff.toml"):
        tools |= {"ruff": {"format": {}, "lint": {}}} if (folder / name).exists() else {}
    ruff = {f"ruff {'check' if name == 'lint' else name}" for name in tools.get("ruff", {})}
    return {*ruff, *tools}


def formatted(folder: Path, path: str, before: str, text: str) -> str:
    """A file at ``path`` of the project in a folder, in the project's style; ``before`` it was changed.

    As it is while it holds conflicts. A tool that is not at hand, or fails, is named on stderr.
    """
    if before == text or marker_rows(text):
        return text
    for name in configured(folder):
        program = shutil.which(_WHOLE[name][0], path=str(Path(sys.executable).parent))
        program = program or shutil.which(_WHOLE[name][0])
        if program is None:
            _missing(name)
            continue
        command = [program, *(str(folder / path) if arg == "PATH" else arg for arg in _WHOLE[name][1:])]
        try:
            text = _by(command, _LINES.get(name, ""), folder, before, text)
        except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
            say(f"note: {name} failed on {path}: {error}")
    return text


@cache
def _missing(name: str) -> None:
    say(f"note: nothing is formatted by {name}, which the project uses and which is not at hand")


def _by(command: list[str], lines: str, folder: Path, before: str, text: str) -> str:
    if _run(command, folder, before) == before:
        return _run(command, folder, text)
    for first, last in _changed(before, text) if lines else ():
        text = _run([command[0], *_with(command[1:], lines.format(first, last, last + 1))], folder, text)
    return text


def _with(arguments: list[str], option: str) -> list[str]:
    """The arguments with one more option, before the ``-`` for stdin."""
    return [*arguments[:-1], option, arguments[-1]] if arguments else [option]


def _run(command: list[str], folder: Path, text: str) -> str:
    done = subprocess.run(
        command, cwd=folder, input=text.encode(), capture_output=True, check=True, timeout=_SECONDS
    )
    return done.stdout.decode()


def _changed(before: str, text: str) -> Iterator[tuple[int, int]]:
    """The ranges of lines (1-based, both ends included) that are new, the last one first."""
    matcher = SequenceMatcher(None, before.split("\n"), text.split("\n"), autojunk=False)
    for kind, _, _, first, last in reversed(matcher.get_opcodes()):
        if kind in ("insert", "replace"):
            yield first + 1, last
