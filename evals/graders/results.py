"""The recorded runs of agents: one line each, and the table of them."""

from __future__ import annotations

import datetime
import statistics
from pathlib import Path

import msgspec
from msgspec import Struct

from graders.grade import Cost, Graded
from npu_upgrade.ground.tables import table


class Recorded(Struct, frozen=True):
    """A run: ``agent`` as the one who ran it calls it, ``cores`` of the machine, ``unmet`` assertions."""

    eval: str
    agent: str
    day: str
    cores: int
    cost: Cost
    verdicts: dict[str, str]
    unmet: tuple[str, ...]


def add(path: Path, graded: Graded, agent: str, cores: int) -> None:
    """Add a run to the file at ``path``."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    unmet = tuple(f"{row.grader}: {row.why}" for row in graded.rows if not row.met)
    one = Recorded(graded.eval, agent, day, cores, graded.cost, graded.verdicts, unmet)
    with open(path, "ab") as stream:
        stream.write(msgspec.json.encode(one) + b"\n")


def load(path: Path) -> list[Recorded]:
    """The runs in the file at ``path``; none when there is no such file."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Recorded) for line in path.read_bytes().splitlines()]


def as_table(path: Path) -> str:
    """A line a run, and the medians of the upgrades below."""
    runs = load(path)
    rows = [
        (
            one.eval,
            one.agent,
            one.day,
            f"{one.cost.minutes:.1f}",
            f"{one.cost.after:.1f}",
            f"{one.cost.waited:.1f}",
            str(one.cost.calls),
            str(one.cost.characters),
            " ".join(f"{gate} {verdict}" for gate, verdict in one.verdicts.items()),
            "met" if not one.unmet else "; ".join(text[:70] for text in one.unmet),
        )
        for one in runs
    ]
    heads = (
        "task",
        "agent",
        "day",
        "minutes",
        "after",
        "waited",
        "calls",
        "characters",
        "verdicts",
        "assertions",
    )
    upgrades = [one.cost for one in runs if one.eval.startswith("upgrade-")]
    if not upgrades:
        return table(heads, rows)
    middle = statistics.median(one.minutes for one in upgrades)
    return f"{table(heads, rows)}\n\nupgrades: {len(upgrades)} runs, median {middle:.1f} minutes"
