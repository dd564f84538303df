"""Reading the files of a checkpoint, which may hold anything, and what is found wrong with them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from npu_upgrade.ground.tables import shortened

Severity = Literal["error", "unsure", "note"]
SEVERITIES = get_args(Severity)


class Finding(msgspec.Struct, frozen=True):
    """``error``: the checkpoint is inconsistent; ``unsure``: it could not be judged; ``note``: worth knowing.

    ``kind`` is a stable name (``shard-truncated``), ``where`` the file, tensor or key it is about.
    """

    severity: Severity
    kind: str
    what: str
    where: str = ""


def error(kind: str, what: str, where: str = "") -> Finding:
    """The checkpoint is inconsistent."""
    return Finding("error", kind, what, where)


def unsure(kind: str, what: str, where: str = "") -> Finding:
    """Something could not be judged."""
    return Finding("unsure", kind, what, where)


def note(kind: str, what: str, where: str = "") -> Finding:
    """Worth knowing."""
    return Finding("note", kind, what, where)


def listed(kind: str, what: str, names: Iterable[str], where: str = "", most: int = 3) -> list[Finding]:
    """An error about ``names``, of which the first are shown, none where there are none."""
    found = sorted(names)
    return [error(kind, f"{what}: {shortened(found, most)}", where or found[0])] if found else []


_MOST_BYTES = 256 * 1024 * 1024


def regular(path: Path) -> str:
    """Why ``path`` is no file to read, empty when it is one (links are followed)."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as problem:
        if path.is_symlink():
            return f"is a link to {os.readlink(path)}, which is not there"
        return f"is not there ({getattr(problem, 'strerror', None) or problem})"
    if not stat.S_ISREG(mode):
        return "is no regular file"
    return "" if os.access(path, os.R_OK) else "is not readable"


def parse_json(data: bytes, name: str) -> tuple[Any, list[Finding]]:
    """The value of JSON text; duplicate keys and constants that are no JSON are findings."""
    duplicates: list[str] = []
    constants: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            keys = [key for key, _ in items]
            duplicates.extend(sorted({key for key in keys if keys.count(key) > 1})[:5])
        return found

    def constant(text: str) -> float:
        constants.append(text)
        return float(text.replace("Infinity", "inf"))

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        return None, [error("json-too-deep", f"{name} nests too deep to be read", name)]
    except ValueError as problem:
        what = "is empty" if not data.strip(b" \t\r\n\0") else f"is no JSON: {problem}"
        return None, [error("json-invalid", f"{name} {what}", name)]
    found = []
    if duplicates:
        text = f"{name} has keys twice: {shortened(sorted(set(duplicates)))}"
        found.append(error("json-duplicate-key", text, name))
    if constants:
        text = f"{name} has values that are no JSON: {shortened(sorted(set(constants)))}"
        found.append(note("json-constant", text, name))
    return value, found


def read_object(path: Path) -> tuple[dict[str, Any], list[Finding]]:
    """The JSON object in a file, empty when it holds none, and what is wrong with it."""
    name = path.name
    if problem := regular(path):
        return {}, [error("file-unreadable", f"{name} {problem}", name)]
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            what = f"{name} has {size} bytes, at most {_MOST_BYTES} are read"
            return {}, [error("json-too-large", what, name)]
        value, found = parse_json(path.read_bytes(), name)
    except OSError as problem:
        return {}, [error("file-unreadable", f"{name}: {problem.strerror}", name)]
    if not isinstance(value, dict) and not (found and value is None):
        found.append(error("json-no-object", f"{name} holds a {type(value).__name__}, not an object", name))
    return value if isinstance(value, dict) else {}, found
