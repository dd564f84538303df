"""How this process was called: to run a step again, and to print commands that run from anywhere."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_command: list[str] = []


def note(prog: str, argv: list[str]) -> None:
    """Remember the command that is being run."""
    _command[:] = [prog, *argv]


def current() -> list[str]:
    """The command as argv, its program by its plain name."""
    return list(_command) or [Path(sys.argv[0]).name, *sys.argv[1:]]


def runnable(command: str, prog: str) -> str:
    """``prog SUB ...`` with the interpreter and the place of the script, as a shell can run it.

    Left as it is when this process was not started as that script.
    """
    script = Path(sys.argv[0])
    if script.name != prog or not command.startswith(f"{prog} "):
        return command
    return f"{shlex.join(['python3', str(script.resolve())])} {command[len(prog) + 1 :]}"
