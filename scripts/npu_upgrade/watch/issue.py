"""The Markdown of the one issue that a watch keeps: what is open, and what the last look brought."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from npu_upgrade.ground.command import Command
from npu_upgrade.ground.tables import cut, first_of, shortened
from npu_upgrade.lineage.items import Item
from npu_upgrade.watch.line import page_of
from npu_upgrade.watch.records import Entry, Seen, State

MOST = 60_000
"""GitHub takes 65,536 characters."""

_ITEMS, _ROWS = 8, 60


def marker(downstream: str, upstream: str) -> str:
    """The hidden line by which the issue is found again."""
    return f"<!-- npu-upgrade watch: {downstream} on {upstream} -->"


def title(downstream: str, upstream: str) -> str:
    return f"{upstream} moved: what {downstream} has to react to"


def markdown(names: tuple[str, str], seen: Seen, new: Sequence[Entry], follow: Command | None) -> str:
    """The body of the issue for a downstream and an upstream by their names; ``new`` is of the last look."""
    left = seen.still_open()
    count = sum(len(items) for _, items in left)
    fine = [entry for entry in new if entry.state is State.GREEN]
    lines = [marker(*names), "", f"Looked up to {_link(seen)} ({seen.date[:10]}). {brought(new)}.", ""]
    lines += [f"## Open items: {count} (changes of {names[1]}: {len(left)})", ""]
    lines += list(_open(left, {entry.label for entry in new})) or [
        "Nothing. What was touched merges by itself."
    ]
    if fine:
        lines += ["", f"<details><summary>New, and merges by itself: {len(fine)}</summary>", ""]
        lines += [*_table(fine), "", "</details>"]
    if follow:
        lines += ["", "## Next, in a checkout", "", f"```\n{_anywhere(follow).short}\n```"]
    text = "\n".join(lines) + "\n"
    return (
        text
        if len(text) <= MOST
        else f"{text[:MOST].rpartition(chr(10))[0]}\n\nThe rest is cut: see the page.\n"
    )


def brought(new: Sequence[Entry]) -> str:
    """What the last look brought, in one sentence."""
    counts = [(sum(entry.state is state for entry in new), state.value) for state in reversed(State)]
    told = ", ".join(f"{count} {state}" for count, state in counts if count)
    return f"New since the look before: {told or 'nothing that touches ours'}"


def _open(left: list[tuple[Entry, list[Item]]], new: set[str]) -> Iterator[str]:
    for entry, items in left[: -_ROWS - 1 : -1]:
        state = f"**{entry.state.value}**{', new' if entry.label in new else ''}"
        yield f"- {state}: {_link(entry)} {entry.date[:10]} {_plain(entry.subject)}"
        yield from (f"  - {line}" for line in first_of([_plain(item.title) for item in items], _ITEMS))
    if len(left) > _ROWS:
        yield f"- and {len(left) - _ROWS} older"


def _table(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| upstream | date | what | our units |"
    yield "|---|---|---|---|"
    for entry in list(entries)[: -_ROWS - 1 : -1]:
        units = shortened((f"`{touch.unit}`" for touch in entry.touches), 3)
        yield f"| {_link(entry)} | {entry.date[:10]} | {_plain(entry.subject)} | {units} |"
    if len(entries) > _ROWS:
        yield f"\n{len(entries) - _ROWS} older ones are left out."


def _link(at: Entry | Seen) -> str:
    page = page_of(at.spec)
    return f"[`{at.label}`]({page})" if page else f"`{at.label}`"


def _anywhere(command: Command) -> Command:
    """The command as somebody on another machine gives it: from the checkout, with a clone of his own."""
    specs = (re.sub(r"^git:.*@", "git:CLONE@", one) for one in command.arguments)
    return replace(command, arguments=tuple(re.sub(r"^dir:.*", "dir:.", one) for one in specs))


def _plain(text: str) -> str:
    """Text of others in one line: no markup, no mentions, no references to issues."""
    line = cut(" ".join(text.split()), 300)
    for sign, other in (
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("<", "&lt;"),
        ("@", "@\u200b"),
        ("#", "#\u200b"),
        ("`", "'"),
        ("*", "\\*"),
        ("__", "\\_\\_"),
    ):
        line = line.replace(sign, other)
    return line
