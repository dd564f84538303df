"""The page of a watch: upstream's commits or releases against our units."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.command import Command
from npu_upgrade.report.page import template
from npu_upgrade.watch.issue import ANSWERED, UPGRADE, News, brought, state, title
from npu_upgrade.watch.line import page_of
from npu_upgrade.watch.records import Entry, Seen, State

MOST_ENTRIES = 300
MOST_COLUMNS = 15
"""So many units get a column each; the row of a change names more of them."""

SAYS = {
    "copy": "our copy of what changed",
    "vendored": "in a file that is a copy of upstream's",
    "patch": "replaces what changed when it is imported",
    "override": "overrides what changed in a class of ours",
    "removed": "upstream has it no more",
    "added": "upstream has it again",
    "signature changed": "upstream's takes other parameters",
}
"""The words of a cell: what our unit is to upstream, else what upstream did."""


@dataclass(frozen=True)
class Cell:
    """One unit at one step; ``state`` and ``word`` are empty where it is not touched."""

    unit: str
    state: str = ""
    word: str = ""


def render_watch(names: tuple[str, str], seen: Seen, news: News, follow: Command | None) -> str:
    """The page of a downstream on an upstream, by their names."""
    entries = seen.entries[: -MOST_ENTRIES - 1 : -1]
    units = _in_columns({touch.unit for entry in entries for touch in entry.touches})
    rows = [(entry, [_cell(entry, unit) for unit in units]) for entry in entries]
    left = seen.still_open()
    words = {cell.word for _, cells in rows for cell in cells}
    return template("watch.html.j2").render(
        title=title(*names),
        seen=seen,
        state=state(names, seen),
        worst=State.BROKEN
        if any(_blocks(items) for _, items in left)
        else State.FLAGGED
        if left
        else State.GREEN,
        brought=brought(names, seen, news),
        left=left,
        rows=rows,
        columns=[(name, list(found)) for name, found in groupby(units, _class_of)],
        is_list=len(units) > MOST_COLUMNS,
        states=list(reversed(State)),
        words={word: said for word, said in SAYS.items() if word in words},
        news=news,
        next=follow and follow.short,
        next_heading=ANSWERED if left else UPGRADE,
        page_of=page_of,
        made=utc_now(),
        left_out=len(seen.entries) - len(entries),
    )


def _blocks(items: Iterable) -> bool:
    return any(item.blocking for item in items)


def _in_columns(units: set[str]) -> list[str]:
    """The units, those of a class beside each other."""
    return sorted(units, key=lambda unit: (_class_of(unit), unit))


def _class_of(unit: str) -> str:
    return "" if unit.endswith(".py") else unit.rpartition(".")[0]


def _cell(entry: Entry, unit: str) -> Cell:
    touch = next((one for one in entry.touches if one.unit == unit), None)
    if touch is None:
        return Cell(unit)
    named = re.compile(rf"(?<![\w.]){re.escape(unit)}(?![\w.])")
    about = [item for item in entry.items if named.search(item.title)]
    state = State.BROKEN if _blocks(about) else State.FLAGGED if about else State.GREEN
    return Cell(unit, state, touch.how if touch.how != "changed" else touch.relation)
