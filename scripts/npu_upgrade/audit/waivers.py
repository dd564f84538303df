"""Findings that people accepted, each with a reason and a version at which to look again.

One file, reviewed like code: a list of ``key``, ``reason`` and ``until``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from npu_upgrade.ground.errors import BadInput

FILE = "npu-audit-waivers.yaml"
_FIELDS = {"key", "reason", "until"}
_EXAMPLE = '- key: attributes-0123456789\n  reason: set by a plugin\n  until: "0.34.0"'


@dataclass(frozen=True)
class Waiver:
    """``until`` is the vllm-ascend version from which the finding counts again."""

    key: str
    reason: str
    until: str

    def expired(self, version: str | None) -> bool:
        """Whether it does not count for this vllm-ascend any more; a tree without a version keeps it."""
        return version is not None and Version(version) >= Version(self.until)


@dataclass(frozen=True)
class Waivers:
    """The waivers of one file by key."""

    entries: dict[str, Waiver]

    def of(self, key: str) -> Waiver | None:
        return self.entries.get(key)

    def unused(self, keys: Iterable[str]) -> list[str]:
        """The waivers that match none of the findings."""
        return sorted(set(self.entries) - set(keys))


NO_WAIVERS = Waivers({})


def read_waivers(text: str, name: str) -> Waivers:
    """The waivers in the YAML ``text`` of the file called ``name``; :class:`BadInput` says what is wrong."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _refusal(name, f"is not YAML: {' '.join(str(error).split())}") from error
    if value is None:
        return NO_WAIVERS
    if not isinstance(value, list):
        raise _refusal(name, "is not a list")
    entries: dict[str, Waiver] = {}
    for number, entry in enumerate(value, start=1):
        waiver = _waiver(entry, name, number)
        if waiver.key in entries:
            raise _refusal(name, f"entry {number} waives {waiver.key} a second time")
        entries[waiver.key] = waiver
    return Waivers(entries)


def read_waivers_file(path: Path) -> Waivers:
    """The waivers of a file; :class:`BadInput` when it cannot be read."""
    try:
        return read_waivers(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal(str(path), f"cannot be read: {error}") from error


def _waiver(entry: Any, name: str, number: int) -> Waiver:
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        raise _refusal(name, f"entry {number} has not exactly key, reason and until")
    texts = {field: entry[field].strip() if isinstance(entry[field], str) else "" for field in _FIELDS}
    empty = sorted(field for field, text in texts.items() if not text)
    if empty:
        raise _refusal(name, f"entry {number} has no text for {', '.join(empty)} (quote versions)")
    try:
        Version(texts["until"])
    except InvalidVersion as error:
        raise _refusal(name, f"entry {number}: {texts['until']!r} is no version") from error
    return Waiver(**texts)


def _refusal(name: str, what: str) -> BadInput:
    return BadInput(f"{name} {what}", expected=f"entries such as\n{_EXAMPLE}", try_="correct the entry")
