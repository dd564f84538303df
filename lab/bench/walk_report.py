"""What walks came to, as a table and as figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.ground.tables import table

WARM_S, COLD_S, WALK_S = 30.0, 300.0, 360.0
MOST_CHARACTERS = 25_000


@dataclass(frozen=True)
class Transition:
    """From a release of vllm-omni to a vllm-ascend; ``gpu`` is the release of everything but the runners,

    ``answers`` the one whose runners answer, ``baseline`` the old pair that the emulated run compares with.
    """

    id: str
    omni: str
    gpu: str
    ascend: str
    answers: str
    baseline: tuple[str, ...] = ()


@dataclass(frozen=True)
class Commit:
    """Seconds of commands and characters printed until it was made, and the verdict of each gate then."""

    seconds: float
    characters: int
    verdicts: dict[str, str]


@dataclass
class Walk:
    """What one walk came to.

    ``last`` is the result of the last command, ``verdicts`` are the last of each gate, ``steps`` the seconds
    and ``printed`` the characters by command. ``commit`` is what it was when the commit was made: what is
    named there as pending runs afterwards.
    """

    transition: Transition
    repo: Path
    prove: bool = True
    to_plan_s: float = 0.0
    steps: list[tuple[str, float]] = field(default_factory=list)
    answered: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    verdicts: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    waived: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rounds: int = 0
    last: dict[str, Any] = field(default_factory=dict)
    printed: dict[str, int] = field(default_factory=dict)
    commit: Commit | None = None

    @property
    def good(self) -> bool:
        return not self.problems

    @property
    def seconds(self) -> float:
        """To the commit, else of all."""
        return self.commit.seconds if self.commit else sum(seconds for _, seconds in self.steps)

    @property
    def characters(self) -> int:
        """Printed to the commit, else in all."""
        return self.commit.characters if self.commit else sum(self.printed.values())


def report(walks: list[Walk]) -> str:
    head = ("walk", "rounds", "to plan", "seconds", "answers", "waived", "gates", "end")
    rows = []
    for one in walks:
        answers = ", ".join(f"{number} {name}" for name, number in sorted(one.answered.items()))
        gates = ", ".join(f"{gate} {verdict}" for gate, verdict in one.verdicts.items())
        end = "one signed-off commit" if one.good else "; ".join(one.problems)
        row = (
            one.transition.id,
            one.rounds,
            f"{one.to_plan_s:.1f} s",
            f"{one.seconds:.0f}",
            answers,
            f"{len(one.waived)} + {len(one.unproven)}",
        )
        rows.append(tuple(map(str, (*row, gates, end))))
    parts = [table(head, rows)]
    for one in walks:
        spent: dict[str, float] = {}
        for name, seconds in one.steps:
            spent[name] = spent.get(name, 0.0) + seconds
        calls = Counter(name for name, _ in one.steps)
        parts.append(f"\n{one.transition.id}: seconds and characters printed, by command")
        parts += [
            f"  {name:<8}{calls[name]:>3} calls {spent[name]:>8.1f} s{one.printed.get(name, 0):>9} characters"
            for name in spent
        ]
        parts += [f"  waived, {one.transition.answers} has it: {text}" for text in one.waived]
        parts += [
            f"  waived, {one.transition.answers} was not seen to have it: {text}" for text in one.unproven
        ]
        parts += [f"  refused at first: {text}" for text in one.refused]
    return "\n".join(parts)


def summary(walks: list[Walk], cold: float | None) -> dict[str, str]:
    figures = {
        "walks": str(len(walks)),
        "good": str(sum(one.good for one in walks)),
        "rounds": str(sum(one.rounds for one in walks)),
        "answers": str(sum(sum(one.answered.values()) for one in walks)),
        "waived": str(sum(len(one.waived) for one in walks)),
        "waived_unproven": str(sum(len(one.unproven) for one in walks)),
        "characters": str(sum(one.characters for one in walks)),
        "slowest_s": f"{max(one.seconds for one in walks):.0f}",
        "slowest_to_plan_s": f"{max(one.to_plan_s for one in walks):.1f}",
    }
    return figures | ({"cold_to_plan_s": f"{cold:.1f}"} if cold is not None else {})


def short_of_goals(walks: list[Walk], cold: float | None) -> list[str]:
    """What was missed, in words; nothing when every walk ended well and in time."""
    missed = [f"{one.transition.id}: {text}" for one in walks for text in one.problems]
    missed += [
        f"{one.transition.id}: {one.to_plan_s:.0f} s to the plan, at most {WARM_S:.0f}"
        for one in walks
        if one.to_plan_s > WARM_S
    ]
    missed += [
        f"{one.transition.id}: {one.seconds:.0f} s to the commit, less than {WALK_S:.0f}"
        for one in walks
        if one.seconds >= WALK_S
    ]
    missed += [
        f"{one.transition.id}: {one.characters} characters printed, less than {MOST_CHARACTERS}"
        for one in walks
        if one.characters >= MOST_CHARACTERS
    ]
    if cold is not None and cold > COLD_S:
        missed.append(f"{cold:.0f} s to the plan with an empty cache, at most {COLD_S:.0f}")
    return missed
