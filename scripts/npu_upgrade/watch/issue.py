"""The Markdown of the one issue that a watch keeps: what is open, and what the last look brought."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npu_upgrade.ground.command import Command
from npu_upgrade.ground.tables import first_of
from npu_upgrade.lineage.items import Item
from npu_upgrade.watch.records import Entry, Seen

MOST = 60_000
"""GitHub takes 65,536 characters."""

_ITEMS, _ROWS = 8, 60


def marker(downstream: str, upstream: str) -> str:
    """The hidden line by which the issue is found again."""
    return f"<!-- npu-upgrade watch: {downstream} on {upstream} -->"


def title(downstream: str, upstream: str) -> str:
    return f"{upstream} moved: what {downstream} has to react to"


def markdown(names: tuple[str, str], seen: Seen, new: Sequence[Entry], follow: Command | None) -> str:
    """The body of the issue for a downstream and an upstream by their names."""
    lines = [marker(*names), "", f"Looked up to **{seen.label}** ({seen.date[:10]})."]
    left = seen.still_open()
    count = sum(len(items) for _, items in left)
    lines += ["", f"## Open: {count} from {len(left)} {names[1]} changes", ""]
    lines += list(_open(left)) or ["Nothing. What was touched merges by itself."]
    lines += ["", f"## New in the last look: {len(new)}", ""]
    lines += list(_table(new)) or ["Nothing that touches this project."]
    if follow:
        lines += ["", "## Next", "", f"```\n{follow.short}\n```"]
    text = "\n".join(lines) + "\n"
    return (
        text
        if len(text) <= MOST
        else f"{text[:MOST].rpartition(chr(10))[0]}\n\nThe rest is cut: see the page.\n"
    )


def _open(left: list[tuple[Entry, list[Item]]]) -> Iterator[str]:
    for entry, items in left[:_ROWS]:
        yield f"- {entry.state.value} `{entry.label}` {entry.date[:10]} {_plain(entry.subject)}"
        yield from (f"  - {line}" for line in first_of([_plain(item.title) for item in items], _ITEMS))
    if len(left) > _ROWS:
        yield f"- and {len(left) - _ROWS} more"


def _table(entries: Sequence[Entry]) -> Iterator[str]:
    if not entries:
        return
    yield "| | upstream | date | what | our units |"
    yield "|---|---|---|---|---|"
    for entry in list(entries)[: -_ROWS - 1 : -1]:
        units = ", ".join(dict.fromkeys(f"`{touch.unit}`" for touch in entry.touches))
        cells = (entry.state.value, f"`{entry.label}`", entry.date[:10], _plain(entry.subject), units)
        yield f"| {' | '.join(cells)} |"
    if len(entries) > _ROWS:
        yield f"\n{len(entries) - _ROWS} older ones are left out."


def _plain(text: str) -> str:
    """Text of others in one line: no markup, no mentions, no references to issues."""
    line = " ".join(text.split())[:200]
    for sign, other in (
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("<", "&lt;"),
        ("@", "@\u200b"),
        ("#", "#\u200b"),
        ("`", "'"),
    ):
        line = line.replace(sign, other)
    return line
