"""Which findings count: new ones against the matched old pair, less what was waived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml
from packaging.version import InvalidVersion, Version

from npu_upgrade.audit.finding import Finding
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import shortened

NEW, LAG, NOTE, WAIVED = "NEW", "LAG", "NOTE", "WAIVED"
STATES = (NEW, LAG, NOTE, WAIVED)


@dataclass(frozen=True)
class Judged:
    """A finding with its state: ``NEW`` fails the audit, ``LAG`` the old pair has too, with all its parts,
    ``NOTE`` is advice that breaks nothing, ``WAIVED`` a person accepted.

    ``reason`` is the waiver's, or why it does not count any more.
    """

    finding: Finding
    state: str
    reason: str = ""


def judge(
    found: Iterable[Finding], old: Sequence[Finding] | None, waivers: Waivers, version: str | None
) -> list[Judged]:
    """Give every finding its state. ``old`` are the old pair's, None when there is no such pair;
    ``version`` is the audited version, by which waivers expire.
    """
    known: dict[str, set[str]] = {}
    for finding in old or ():
        known.setdefault(finding.key, set()).update(finding.parts)
    return [_one(finding, known, waivers, version) for finding in found]


def _one(finding: Finding, known: Mapping[str, set[str]], waivers: Waivers, version: str | None) -> Judged:
    waiver = waivers.entries.get(finding.key)
    if waiver and not waiver.expired(version):
        return Judged(finding, WAIVED, f"{waiver.reason} (until {waiver.until})")
    reason = f"its waiver ended with {waiver.until}: {waiver.reason}" if waiver else ""
    if not finding.incident:
        return Judged(finding, NOTE, reason)
    if finding.key not in known:
        return Judged(finding, NEW, reason)
    if grown := [part for part in finding.parts if part not in known[finding.key]]:
        what = f"{finding.what}; the old pair has it without {shortened(grown)}"
        return Judged(msgspec.structs.replace(finding, what=what), NEW, reason)
    return Judged(finding, LAG, reason)


FILE = "npu-audit-waivers.yaml"
_EXAMPLE = '- key: attributes-0123456789\n  reason: set by a plugin\n  until: "0.34.0"'


class Waiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding that a person accepted; from the vllm-ascend version ``until`` on it counts again."""

    key: str
    reason: str
    until: str

    def __post_init__(self) -> None:
        empty = [name for name in ("key", "reason", "until") if not getattr(self, name).strip()]
        if empty:
            raise ValueError(f"no text for {', '.join(empty)}")
        try:
            Version(self.until)
        except InvalidVersion as error:
            raise ValueError(f"{self.until!r} is no version") from error

    def expired(self, version: str | None) -> bool:
        """Whether it does not count for this vllm-ascend any more; a tree without a version keeps it."""
        return version is not None and Version(version) >= Version(self.until)


@dataclass(frozen=True)
class Waivers:
    """The waivers of one file by key."""

    entries: dict[str, Waiver]

    def unused(self, keys: Iterable[str]) -> list[str]:
        """The waivers that match none of the findings."""
        return sorted(set(self.entries) - set(keys))


NO_WAIVERS = Waivers({})


def read_waivers(text: str, name: str) -> Waivers:
    """The waivers in the YAML ``text`` of the file called ``name``; :class:`BadInput` says what is wrong."""
    try:
        value = yaml.safe_load(text)
        found = msgspec.convert([] if value is None else value, list[Waiver])
    except yaml.YAMLError as error:
        raise _refusal(name, f"is not YAML: {' '.join(str(error).split())}") from error
    except msgspec.ValidationError as error:
        raise _refusal(name, f"holds no list of waivers: {error}") from error
    entries: dict[str, Waiver] = {}
    for number, waiver in enumerate(found, start=1):
        if waiver.key in entries:
            raise _refusal(name, f"waives {waiver.key} a second time, in entry {number}")
        entries[waiver.key] = waiver
    return Waivers(entries)


def read_waivers_file(path: Path) -> Waivers:
    """The waivers of a file; :class:`BadInput` when it cannot be read."""
    try:
        return read_waivers(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal(str(path), f"cannot be read: {error}") from error


def _refusal(name: str, what: str) -> BadInput:
    return BadInput(
        f"{name} {what}",
        expected=f"entries such as\n{_EXAMPLE}",
        try_="correct the entry, with versions in quotes",
    )
