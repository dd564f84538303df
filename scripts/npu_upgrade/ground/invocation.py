"""How this process was called: to run a step again, and to print commands that run from anywhere."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from npu_upgrade.ground.command import current as current
from npu_upgrade.ground.command import note as note
from npu_upgrade.ground.command import program as program


def named(text: str, prog: str, commands: Iterable[str]) -> str:
    """``text`` with ``prog`` for ``upgrade.py`` in front of ``commands``, which both have."""
    names = "|".join(map(re.escape, sorted(commands)))
    return re.sub(rf"\bupgrade\.py(?= (?:{names})\b)", prog, text) if names else text


def runnable(command: str, prog: str) -> str:
    """``PROGRAM SUB ...`` with the interpreter and the place of the script, as a shell can run it.

    PROGRAM is this one or one beside it. Left as it is when this process was not started as ``prog``.
    """
    script, (program, _, rest) = Path(sys.argv[0]), command.partition(" ")
    beside = script.resolve().with_name(program)
    if script.name != prog or beside.suffix != ".py" or not beside.is_file():
        return command
    return f"{shlex.join(['python3', str(beside)])} {rest}"
