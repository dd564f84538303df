"""What a server that ended before it served died of, as its log tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npu_upgrade.gates.serving.log_lines import read
from npu_upgrade.gates.serving.root_cause import explain

ENDED = "NotServing"
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_PROJECTS = ("/vllm_omni/", "/vllm_ascend/", "/vllm/")
_REACH = 16  # lines from an exception back to its innermost frame
# Only what code of another time raises: anything else may come from the emulator below it.
_DRIFT = re.compile(r"(?:ImportError|ModuleNotFoundError|AttributeError|NameError|TypeError): ")


def own_error(error: Mapping[str, Any], log: Path) -> Mapping[str, Any]:
    """The error of the server's process in place of the one that it ended; the same for any other error.

    Taken only when the innermost frame is of vllm-omni, vllm-ascend or vllm.
    """
    if error.get("type") != ENDED or not log.is_file():
        return error
    lines = list(read(log))
    first = explain(lines).first
    if first is None or not _DRIFT.match(first.text):
        return error
    above = [line.text for line in lines if first.line - _REACH <= line.number <= first.line]
    frames = [found for text in above if (found := _FRAME.search(text))]
    if not frames or not any(name in frames[-1][1] for name in _PROJECTS):
        return error
    path, number, function = frames[-1].groups()
    kind, _, text = first.text.partition(": ")
    return {
        "type": kind,
        "text": f"{text} (the server ended before it served)",
        "where": f"{path}:{number} in {function}",
        "inside": False,
        "traceback": above,
    }
