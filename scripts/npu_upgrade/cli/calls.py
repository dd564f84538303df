"""The calls that a workspace saw: what was run, for how long, how it ended, how much it printed.

``calls.jsonl`` beside the jobs is only ever added to. What an upgrade cost whoever drove it is read from it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from npu_upgrade.ground.behind import is_behind
from npu_upgrade.ground.command import called_here, within_another
from npu_upgrade.ground.paths import WORKSPACE_DIR

NAME = "calls.jsonl"
_PLACES = ("--workspace", "--repo", "--apply", "--out")


@dataclass(frozen=True)
class Call:
    """One call: ``started`` is UTC ISO 8601, ``exit`` its code, ``stdout`` and ``stderr`` characters."""

    started: str
    command: list[str]
    seconds: float
    exit: int
    stdout: int
    stderr: int


def calls(folder: Path) -> list[Call]:
    """The calls noted in a workspace's ``.npu-upgrade``, oldest first."""
    try:
        return [Call(**json.loads(line)) for line in (folder / NAME).read_bytes().splitlines()]
    except FileNotFoundError:
        return []


class _Counted:
    """A stream that counts the characters written to it, and names the programs as they are called here."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.characters = 0

    def write(self, text: str) -> int:
        text = called_here(text)
        self.characters += len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def counted(prog: str, argv: Sequence[str], run: Callable[[], int]) -> int:
    """The exit code of ``run``, whose call is noted in the workspace that it was made in, if there is one.

    A call that another one makes is a part of that one, and so is what it begins in the background.
    """
    begun, started = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    out, err = _Counted(sys.stdout), _Counted(sys.stderr)
    sys.stdout, sys.stderr = out, err
    code = 0
    try:
        code = run()
        return code
    finally:
        sys.stdout, sys.stderr = out._stream, err._stream
        if not (within_another() or is_behind()) and (place := workspace_of(argv)):
            seconds = round(time.monotonic() - begun, 2)
            call = Call(started, [prog, *argv], seconds, code, out.characters, err.characters)
            # a call is worth more than its note
            with contextlib.suppress(OSError), open(place / NAME, "ab") as stream:
                stream.write(f"{json.dumps(asdict(call))}\n".encode())


def workspace_of(argv: Sequence[str]) -> Path | None:
    """The nearest folder with jobs, from where the options point, else from here."""
    named = [Path(after) for word, after in pairwise(argv) if word in _PLACES]
    here = Path.cwd()
    for start in [*named, here, *here.parents]:
        if (start / WORKSPACE_DIR).is_dir():
            return start / WORKSPACE_DIR
    return None
