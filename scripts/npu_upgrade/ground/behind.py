"""Run this program's own command once more, behind all that somebody waits for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

BEHIND = "NPU_UPGRADE_BEHIND"
"""Set in a process that nobody waits for."""


def go_behind(log: Path, words: Sequence[str] | None = None) -> subprocess.Popen[bytes]:
    """Start the present command without ``--background``, in a session of its own; it writes to ``log``.

    With ``words`` it is another subcommand of the same program. It ends by itself.
    """
    program, *given = sys.argv
    told = [word for word in given if word != "--background"] if words is None else words
    command = [sys.executable, program, *told]
    with open(log, "ab") as out:
        return subprocess.Popen(
            command,
            env=os.environ | {BEHIND: "1"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def is_behind() -> bool:
    """Whether nobody waits for this process."""
    return BEHIND in os.environ


def give_way() -> None:
    """Let what somebody waits for go first, when nobody waits for this process."""
    if is_behind() and hasattr(os, "nice"):  # which Windows does not have
        os.nice(_LAST)
        _put_last(os.getpid())


def let_give_way(process: int) -> None:
    """The same for the sessions that a process and its children began: each has a share of the time.

    Linux divides the time between sessions first (autogroups), and ``nice`` counts within one.
    """
    if is_behind():
        for one in (process, *_children(process)):
            _put_last(one)


_LAST = 19


def _put_last(process: int) -> None:
    with contextlib.suppress(OSError):  # it ended, or this system has no autogroups
        Path(f"/proc/{process}/autogroup").write_text(str(_LAST), "ascii")


def _children(process: int) -> list[int]:
    try:
        return [
            int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()
        ]
    except OSError:
        return []
