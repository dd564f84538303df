"""The page of a watch: upstream's commits or releases against our units."""

from __future__ import annotations

from collections.abc import Sequence

from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.command import Command
from npu_upgrade.report.page import template
from npu_upgrade.watch.issue import brought
from npu_upgrade.watch.line import page_of
from npu_upgrade.watch.records import Entry, Seen

MOST_ENTRIES = 300


def render_watch(names: tuple[str, str], seen: Seen, found: Sequence[Entry], follow: Command | None) -> str:
    """The page of a downstream on an upstream, by their names; ``found`` is of the last look."""
    entries = seen.entries[: -MOST_ENTRIES - 1 : -1]
    units = dict.fromkeys(touch.unit for entry in reversed(entries) for touch in entry.touches)
    return template("watch.html.j2").render(
        downstream=names[0],
        upstream=names[1],
        seen=seen,
        left=seen.still_open(),
        open=set(seen.open),
        rows=[(entry, [_cell(entry, unit) for unit in units]) for entry in entries],
        units=units,
        new={entry.label for entry in found},
        brought=brought(found),
        next=follow and follow.short,
        page_of=page_of,
        made=utc_now(),
        left_out=len(seen.entries) - len(entries),
    )


def _cell(entry: Entry, unit: str) -> tuple[str, str]:
    """The class and the word of one unit at one step, both empty where it is not touched."""
    touch = next((one for one in entry.touches if one.unit == unit), None)
    if touch is None:
        return "", ""
    about = [item for item in entry.items if unit in item.title]
    state = "broken" if any(item.blocking for item in about) else "flagged" if about else "green"
    return state, touch.how if touch.how != "changed" else touch.relation
