"""An audit's result for people and for agents."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from npu_upgrade.audit.judge import LAG, NEW, NOTE, STATES, WAIVED, Judged
from npu_upgrade.ground.tables import table

_MOST = 20
_HEADINGS = {
    NEW: "NEW: the matched old pair does not have these",
    LAG: "LAG: the old pair has them too; they do not fail the audit",
    NOTE: "NOTES: nothing breaks by these",
    WAIVED: "WAIVED",
}


def counts(judged: Sequence[Judged]) -> dict[str, int]:
    """How many findings have each state."""
    found = Counter(entry.state for entry in judged)
    return {state: found[state] for state in STATES}


def as_data(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """The findings as JSON, the new ones first."""
    return [_data(entry) for entry in sorted(judged, key=lambda one: STATES.index(one.state))]


def _data(entry: Judged) -> dict[str, Any]:
    state = {"state": entry.state} | ({"waiver": entry.reason} if entry.reason else {})
    return entry.finding.as_json() | state


def as_brief(judged: Sequence[Judged]) -> list[str]:
    """The new findings for agents, a line for each cause."""
    lines = _lines([entry for entry in judged if entry.state == NEW])
    more = len(lines) - _MOST
    return lines[:_MOST] + ([f"and {more} more causes"] if more > 0 else [])


def _lines(judged: Sequence[Judged]) -> list[str]:
    """A line for each cause: what one check finds wrong in one way with one class."""
    causes: dict[tuple[str, str, str], list[Judged]] = {}
    for one in judged:
        causes.setdefault((one.finding.check, one.finding.kind, one.finding.owner), []).append(one)
    return [_line(entries) for entries in causes.values()]


def _line(entries: Sequence[Judged]) -> str:
    found = entries[0].finding
    at = f"{_places(entries)} [{found.check}/{found.kind}]"
    if not entries[1:]:
        return f"{at} {_shortened(found.what)}"
    subjects = ", ".join(dict.fromkeys(entry.finding.subject for entry in entries))
    return f"{at} {found.owner}, {len(entries)} times: {_shortened(subjects)}"


def _places(entries: Sequence[Judged]) -> str:
    """Where they are: each file with all its lines; a file alone where no line of it is meant."""
    lines: dict[str, list[int]] = {}
    for entry in entries:
        here = entry.finding.here
        lines.setdefault(here.path, []).append(here.line)
    shown = {path: ",".join(str(one) for one in sorted({*found} - {0})) for path, found in lines.items()}
    return " ".join(f"{path}:{found}" if found else path for path, found in shown.items())


def _shortened(text: str) -> str:
    return textwrap.shorten(text, 240, placeholder=" ...")


def as_text(judged: Sequence[Judged]) -> str:
    """The findings by state, each new one with both sides, why it matters and what to do."""
    parts = []
    for state in STATES:
        entries = [entry for entry in judged if entry.state == state]
        if entries:
            shown = "\n\n".join(map(_entry, entries)) if state == NEW else "\n".join(_lines(entries))
            parts.append(f"{_HEADINGS[state]}\n\n{shown}")
    parts.append(_by_check(judged))
    return "\n\n".join(parts)


def _entry(entry: Judged) -> str:
    found = entry.finding
    head = f"{found.here.path}:{found.here.line} [{found.check}/{found.kind}] {found.key}"
    about = ".".join(filter(None, (found.owner, found.subject)))
    lines = [head, *_wrapped(f"{about}: {found.what}")]
    sides = [("here", found.here), ("there", found.there)]
    lines += [f"  {name:<6}{side}" for name, side in sides if side and (side.text or name == "there")]
    incident = f"class {found.incident}" + (f", as in {found.like}" if found.like else "")
    lines += _wrapped(f"why   {found.why} ({incident})") + _wrapped(f"do    {found.todo}")
    if entry.reason:
        lines += _wrapped(f"waiver: {entry.reason}")
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent="  ", subsequent_indent="        ")


def _by_check(judged: Sequence[Judged]) -> str:
    checks = sorted({entry.finding.check for entry in judged})
    found = Counter((entry.finding.check, entry.state) for entry in judged)
    rows = [(check, *(str(found[check, state] or "-") for state in STATES)) for check in checks]
    return table(("check", *(state.lower() for state in STATES)), rows) if rows else "no findings"
