"""An exception as data: what a gate shows a person, and what it needs to tell causes apart."""

from __future__ import annotations

import traceback

_OURS = "/npu_emulator/"
_PROJECTS = ("/vllm_omni/", "/vllm_ascend/", "/vllm/")


def describe(error: BaseException) -> dict:
    """Type, text and place of the root cause of ``error``, and the last lines of its traceback.

    ``where`` is the innermost frame in vllm-omni, vllm-ascend or vllm; ``inside`` tells that the innermost
    frame of all is the emulator's own.
    """
    root = _root(error)
    frames = traceback.extract_tb(root.__traceback__)
    projects = [frame for frame in frames if any(name in frame.filename for name in _PROJECTS)]
    place = projects[-1] if projects else (frames[-1] if frames else None)
    return {
        "type": type(root).__name__,
        "text": str(root)[:2000],
        "where": f"{place.filename}:{place.lineno} in {place.name}" if place else "",
        "inside": bool(frames) and _OURS in frames[-1].filename,
        "traceback": "".join(traceback.format_exception(root)).splitlines()[-40:],
    }


def _root(error: BaseException) -> BaseException:
    """The error all others were raised from."""
    seen = set()
    while error.__cause__ is not None and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__
    return error
