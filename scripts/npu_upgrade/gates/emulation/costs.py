"""What a step costs in an emulated run, and what of that the new pair has worse than the old one.

Operators, graphs and waits of the host are counted, not timed: nothing here says how long a step takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from npu_upgrade.ground.tables import table

DECODE, NOT_WAITED = "decode", "copy to host, not waited for"
_OFTEN = 0.5  # of a step's mean: what comes at least every other time
_SHOWN = 4


class Cost(Struct, frozen=True):
    """The mean of the ``steps`` of a ``kind`` in a ``stage``: calls of operators and graphs, waits by place.

    A wait is "KIND in MODULE:FUNCTION", the innermost function of the three projects that was at work.
    """

    stage: str
    kind: str
    steps: int
    operators: dict[str, float]
    graphs: dict[str, float]
    waits: dict[str, float]

    @property
    def name(self) -> tuple[str, str]:
        return self.stage, self.kind

    @property
    def replays(self) -> float:
        return self.graphs.get("replayed", 0.0)

    def waited(self, package: str = "") -> float:
        """How often the host waits, in functions of ``package`` or of any."""
        return sum(number for wait, number in self.waits.items() if _waits_in(wait, package))


def _waits_in(wait: str, package: str) -> bool:
    kind, _, place = wait.partition(" in ")
    return kind != NOT_WAITED and (not package or place.startswith(f"{package}."))


def read(events: Iterable[Mapping[str, Any]]) -> tuple[Cost, ...]:
    """The costs by stage and kind of step, of the record's events."""
    steps: dict[tuple[str, str], set[tuple[str, int]]] = {}
    sums: dict[tuple[str, str], tuple[Counter[str], ...]] = {}
    for one in events:
        if one["event"] != "step":
            continue
        name = one["stage"], one["kind"]
        steps.setdefault(name, set()).add((one["process"], one["number"]))
        parts = sums.setdefault(name, (Counter(), Counter(), Counter()))
        for part, found in zip(parts, (one["operators"], one["graphs"], one["waits"]), strict=True):
            part.update(found)
    return tuple(
        Cost(*name, len(steps[name]), *(_mean(part, len(steps[name])) for part in sums[name]))
        for name in sorted(steps)
    )


def _mean(part: Counter[str], steps: int) -> dict[str, float]:
    return {name: round(number / steps, 2) for name, number in sorted(part.items()) if number}


def findings(old: Sequence[Cost], new: Sequence[Cost], package: str) -> list[str]:
    """What slows each decode step on a device: a graph no longer replayed, or a new wait in ``package``.

    A wait that only moved, or that comes from the projects below, is no finding.
    """
    found: dict[str, list[Cost]] = {}
    for before, after in _pairs(old, new):
        if not after.kind.startswith(DECODE):
            continue
        if before.replays >= _OFTEN and not after.replays:
            found.setdefault(f"no graph is replayed, the old pair {before.replays:g} a step", []).append(
                after
            )
        if any(after.waited(part) < before.waited(part) + _OFTEN for part in ("", package)):
            continue  # what only moved
        for wait, more in _grown(before.waits, after.waits):
            if _waits_in(wait, package):
                found.setdefault(f"the host waits, {wait}: {more}", []).append(after)
    return [f"{_named(costs)}: {text}" for text, costs in found.items()]


def _named(costs: Sequence[Cost]) -> str:
    """The stages with their kinds of steps, such as "talker decode of 1, decode of 2"."""
    stages = dict.fromkeys(one.stage for one in costs)
    kinds = ([one.kind for one in costs if one.stage == stage] for stage in stages)
    return "; ".join(f"{stage} {', '.join(some)}" for stage, some in zip(stages, kinds, strict=True))


def _pairs(old: Sequence[Cost], new: Sequence[Cost]) -> list[tuple[Cost, Cost]]:
    known = {one.name: one for one in old}
    return [(known[one.name], one) for one in new if one.name in known]


def _grown(before: Mapping[str, float], after: Mapping[str, float]) -> list[tuple[str, str]]:
    """What is done at least half a time more a step, the most first."""
    more = {name: number - before.get(name, 0.0) for name, number in after.items()}
    names = sorted((name for name in more if more[name] >= _OFTEN), key=lambda name: -more[name])
    return [(name, f"{after[name]:g} a step, the old pair {before.get(name, 0.0):g}") for name in names]


def as_rows(old: Sequence[Cost], new: Sequence[Cost]) -> list[dict[str, str]]:
    """Each kind of step that both pairs have, old -> new where they differ, with what grew."""
    return [
        {
            "stage": after.stage,
            "step": after.kind,
            "steps": _beside(before.steps, after.steps),
            "operators": _beside(*(round(sum(one.operators.values())) for one in (before, after))),
            "replays": _beside(before.replays, after.replays),
            "captures": _beside(*(one.graphs.get("captured", 0) for one in (before, after))),
            "waits": _beside(before.waited(), after.waited()),
            "copies not waited for": _beside(_copies(before), _copies(after)),
            "more": "; ".join(
                f"{name} {more}"
                for one, other in ((before.waits, after.waits), (before.operators, after.operators))
                for name, more in _grown(one, other)[:_SHOWN]
            ),
        }
        for before, after in _pairs(old, new)
    ]


def _beside(old: float, new: float) -> str:
    return f"{old:g}" if old == new else f"{old:g} -> {new:g}"


def _copies(one: Cost) -> float:
    return sum(number for wait, number in one.waits.items() if wait.startswith(NOT_WAITED))


def as_text(run: str, rows: Sequence[Mapping[str, str]]) -> str:
    """A table of the counts a step, and below it what grew."""
    if not rows:
        return f"{run}: no kind of step is in both pairs"
    head = [name for name in rows[0] if name != "more"]
    grown: dict[str, list[str]] = {}
    for row in rows:
        if row["more"]:
            grown.setdefault(f"{row['stage']}: {row['more']}", []).append(row["step"])
    lines = [f"  {', '.join(steps)} of {more}" for more, steps in grown.items()]
    text = table(head, [[row[name] for name in head] for row in rows])
    return "\n".join([f"what a step of {run} costs, the old pair -> the new one", text, *lines])
