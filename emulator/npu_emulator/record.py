"""What happened in one emulated process: a file of JSON lines, which the gate reads afterwards.

``missing``: an operator or a vendor module without a reference was called. ``fault``: the emulator itself
failed. ``limit``: an operator was called outside of its documented limits. ``end``: counts of the process.
"""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

FOLDER = "NPU_EMULATOR_RECORD"


def note(event: str, **values: Any) -> None:
    """Append one line to this process's record; nothing happens when no record is wanted."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    line = json.dumps({"event": event, **values}) + "\n"
    with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as stream:
        stream.write(line)


def caller() -> str:
    """The innermost frame outside the emulator and torch, as ``file:line``: who called the operator."""
    here = os.path.dirname(__file__)
    for frame in reversed(traceback.extract_stack()):
        inside = frame.filename.startswith(here) or "/torch/" in frame.filename
        if not inside and not frame.filename.startswith("<"):
            return f"{frame.filename}:{frame.lineno}"
    return ""
