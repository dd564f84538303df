"""The Markdown of the one issue that a watch keeps: what is open, and what the last look brought."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from npu_upgrade.ground.command import Command
from npu_upgrade.ground.tables import count, cut, first_of, shortened
from npu_upgrade.lineage.items import Item
from npu_upgrade.watch.line import page_of
from npu_upgrade.watch.records import Entry, Seen, State

MOST = 60_000
"""GitHub takes 65,536 characters."""

ANSWERED, UPGRADE = "The upgrade asks for the answers", "The upgrade"
"""What stands above the next command, with and without anything open."""

_ITEMS, _ROWS = 8, 60


@dataclass(frozen=True)
class News:
    """What the last look went over: so many ``steps`` since a point, of which ``entries`` touch ours.

    ``since`` says in words which point; ``first``: there was no look before it.
    """

    entries: Sequence[Entry]
    steps: int
    since: str
    first: bool = False

    def marks(self, entry: Entry) -> bool:
        """Whether an entry is worth the word "new": the first look has nothing else."""
        return not self.first and any(one.label == entry.label for one in self.entries)


def marker(downstream: str, upstream: str) -> str:
    """The hidden line by which the issue is found again."""
    return f"<!-- npu-upgrade watch: {downstream} on {upstream} -->"


def title(downstream: str, upstream: str) -> str:
    return f"{upstream} moved: what {downstream} has to react to"


def markdown(names: tuple[str, str], seen: Seen, news: News, follow: Command | None) -> str:
    """The body of the issue for a downstream and an upstream by their names."""
    left = seen.still_open()
    fine = [entry for entry in news.entries if entry.state is State.GREEN]
    up_to = f"{_link(seen)} ({seen.date[:10]})" if seen.date else _link(seen)
    lines = [marker(*names), "", f"**{state(names, seen)}**", ""]
    lines += [f"Looked up to {up_to}: {brought(names, seen, news)}.", ""]
    lines += ["## What is open, and who decides", "", *(_open(left, news) if left else ("Nothing.",))]
    if fine:
        said = "Merges by itself" if news.first else "New, and merges by itself"
        lines += ["", f"<details><summary>{said}: {len(fine)}</summary>", ""]
        lines += [*_table(fine), "", "</details>"]
    if follow:
        lines += ["", f"## {ANSWERED if left else UPGRADE}", "", f"```\n{_anywhere(follow).short}\n```"]
    text = "\n".join(lines) + "\n"
    return (
        text
        if len(text) <= MOST
        else f"{text[:MOST].rpartition(chr(10))[0]}\n\nThe rest is cut: see the page.\n"
    )


def state(names: tuple[str, str], seen: Seen) -> str:
    """What is open and for whom, in one sentence."""
    left = seen.still_open()
    items = [item for _, found in left for item in found]
    if not items:
        return f"Nothing is open: what {names[1]} changed merges by itself."
    write = sum(item.blocking for item in items)
    whom = ((write, "a maintainer to write"), (len(items) - write, "a reviewer to look at"))
    said = ", ".join(f"{number} for {one}" for number, one in whom if number)
    return f"{count(len(items), 'open item')} from {count(len(left), 'change')} of {names[1]}: {said}."


def brought(names: tuple[str, str], seen: Seen, news: News) -> str:
    """What the last look went over and found, in one sentence."""
    counts = {one: [entry for entry in news.entries if entry.state is one] for one in reversed(State)}
    told = []
    for one, found in counts.items():
        closed = sum(map(seen.is_closed, found))
        told += (
            [f"{len(found)} {one.value}" + (f" ({closed} closed since)" if closed else "")] if found else []
        )
    verb = "touches" if len(news.entries) == 1 else "touch"
    touch = (
        f"{len(news.entries)} {verb} {names[0]}: {', '.join(told)}" if told else f"none touches {names[0]}"
    )
    return f"{count(news.steps, 'change')} since {news.since}, {touch}"


def _open(left: list[tuple[Entry, list[Item]]], news: News) -> Iterator[str]:
    for entry, items in left[: -_ROWS - 1 : -1]:
        said = f"**{entry.state.value}**, {entry.state.means}{', new' if news.marks(entry) else ''}"
        yield f"- {said}: {_link(entry)} {entry.date[:10]} {_plain(entry.subject)}"
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
