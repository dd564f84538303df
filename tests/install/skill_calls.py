"""The command lines that the skill's documents tell to run, and how each is run from an installed copy."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from documented import COMMANDS, command_lines, skill_documents

_CALL = re.compile(r"(?:python3 +)?(?:SKILL/)?(?:scripts/)?\b((?:upgrade|adapt)\.py)\b([^|;&#]*)")
_SECONDS = 120
JOB_COMMANDS = ("plan", "audit", "emulate", "status", "next")
"""Without a job these answer at once, with what they expected: run as they are where they are told bare."""
LIGHT = ("env list", "emulate --list", "evidence list", "explain --check")


@dataclass(frozen=True)
class Call:
    """One command line: a script of the skill and its arguments as they stand in a document."""

    script: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join([self.script, *self.arguments])

    @property
    def real(self) -> bool:
        """Whether it is run as it is; the others are asked for their help."""
        words = " ".join(self.arguments)
        return words in LIGHT or words in JOB_COMMANDS


def documented_calls(root: Path) -> list[Call]:
    """Every call of a script in SKILL.md and the references, once each."""
    found: dict[Call, None] = {}
    for document in skill_documents(root):
        for line in command_lines(document.read_text()):
            for script, rest in _CALL.findall(line):
                words = _words(rest)
                if script in COMMANDS and (not words or words[0] not in COMMANDS[script]):
                    continue  # the name of the script alone, or a placeholder for a subcommand
                found[Call(script, words)] = None
    return list(found)


def _words(rest: str) -> tuple[str, ...]:
    """The arguments, without the brackets and dots that tell what may be left out or repeated."""
    plain = re.sub(r"""[\[\]]|(?<![\w"'])(?:\.\.\.|…)(?!["'])""", " ", rest)
    try:
        return tuple(shlex.split(plain))
    except ValueError:
        return tuple(plain.split())


def environment(cache: Path) -> dict[str, str]:
    """An environment with a cache of its own, in which Python writes byte code as it does by itself."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return plain | {"XDG_CACHE_HOME": str(cache)}


def run(call: Call, skill: Path, cwd: Path, cache: Path, prefix: tuple[str, ...] = ()) -> str:
    """What is wrong with a call from ``cwd``; empty when it does what it should."""
    own = call.arguments[: call.arguments.index("--")] if "--" in call.arguments else call.arguments
    arguments = call.arguments if call.real else (*own, "--help")
    done = subprocess.run(
        [*prefix, sys.executable, str(skill / "scripts" / call.script), *arguments],
        cwd=cwd,
        env=environment(cache),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    wrong = _wrong_verdict(done) if call.real else _wrong_help(done, call)
    return f"{call}: {wrong}\n{done.stderr[-600:]}" if wrong else ""


def _wrong_help(done: subprocess.CompletedProcess[str], call: Call) -> str:
    if done.returncode:
        return f"exit {done.returncode} for its help"
    usage = f"usage: {call.script}"
    return "" if done.stdout.startswith(usage) else f"no usage in its help: {done.stdout[:80]!r}"


def _wrong_verdict(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode not in range(5):
        return f"exit {done.returncode}"
    try:
        return "" if "verdict" in json.loads(done.stdout) else "no verdict in its JSON"
    except ValueError:
        return f"no JSON on stdout: {done.stdout[:80]!r}"
