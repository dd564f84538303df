"""The machine that upgrade and adaptation share: a list of stages, and the one thing to do next.

The state of a stage is derived from the evidence and the journal each time it is asked for; nothing
stores it.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from npu_upgrade.evidence.chain import Record
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.journal import Journal

if TYPE_CHECKING:
    from npu_upgrade.job.ask import Ask

MOST_SECONDS = 300
"""No gate is begun after that: who calls has a limit as well, often of ten minutes."""
_FOR_THE_CALLER = ("deliver", "status", "next", "resolve", "merge")
_TO_FILL_IN = re.compile(r"FILE|DIR|REPO|SPEC|TEXT|WHY|STAGE|ID(=ANSWER)?")


class State(enum.StrEnum):
    """How far a stage is; ``stale``: it was done, for other contents."""

    TODO = "todo"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    STALE = "stale"


@dataclass(frozen=True)
class Stage:
    """``said``: what is known of it, in a sentence; ``command`` runs it; ``asks`` have to be answered first.

    ``failed`` counts the runs that did not pass since the last one that did; ``stuck``: its command was run
    for exactly this, and would say the same again.
    """

    name: str
    state: State
    said: str = ""
    command: Command | None = None
    verdict: str = ""
    at: str = ""
    failed: int = 0
    asks: Sequence[Ask] = ()
    stuck: bool = False

    @property
    def open(self) -> bool:
        return self.state not in (State.DONE, State.SKIPPED)

    def as_json(self) -> dict[str, Any]:
        names = ("name", "state", "said", "verdict", "at", "failed")
        return {name: getattr(self, name) for name in names} | {
            "command": str(self.command) if self.command else ""
        }


def brief(record: Record, id: str = "") -> dict[str, Any]:
    """What is shown of a record; ``id``: what people know it by, where that is not its own."""
    names = ("gate", "label", "verdict", "tree", "started", "seconds", "summary")
    return {"id": id or record.id} | {name: getattr(record, name) for name in names}


class Stop(Struct, frozen=True):
    """Why a person is needed; ``key`` names the cause, ``tried`` is what was done about it."""

    rule: str
    key: str
    why: str
    tried: list[str] = []


@dataclass(frozen=True)
class Walk:
    """One upgrade, or the adaptation of one model, as its commands see it.

    ``root``: the folder with its files; ``naming``: the options that name it from the present folder;
    ``skippable``: what a person may leave out; ``standing`` and ``other``: the evidence that counts and the
    rest; ``facts``: what only this kind of job has; ``heading``: lines for people; ``end``: why nothing is
    left, and what shows the result; ``answered``: what questions said that are answered.
    """

    name: str
    folder: Path
    root: Path
    naming: list[str]
    stages: Sequence[Stage]
    skippable: Sequence[str]
    end: tuple[str, Command | None]
    stop: Stop | None = None
    standing: Sequence[dict[str, Any]] = ()
    other: Sequence[dict[str, Any]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    heading: Sequence[str] = ()
    answered: Sequence[str] = ()

    @property
    def journal(self) -> Journal:
        return Journal(self.folder)

    @property
    def left(self) -> dict[str, int]:
        """How many questions are open, by kind."""
        return dict(Counter(ask.stage for stage in self.stages for ask in stage.asks))


@dataclass(frozen=True)
class Step:
    """What to do next: run ``command``, answer ``asks`` together, or, after a ``stop``, ask a person.

    Of a ``stage`` that is stuck there is no command: something has to be changed first.
    """

    why: str
    command: Command | None
    stage: Stage | None = None
    asks: Sequence[Ask] = ()
    stop: Stop | None = None

    @property
    def verdict(self) -> Verdict:
        """INCONCLUSIVE where a person is needed, FAIL or BLOCKED as the stage that is stuck, else PASS."""
        if self.stop:
            return Verdict.INCONCLUSIVE
        if self.stage and self.stage.stuck:
            return Verdict.BLOCKED if self.stage.verdict == "BLOCKED" else Verdict.FAIL
        return Verdict.PASS

    @property
    def needs_nobody(self) -> bool:
        """Whether it is a gate's command without a word to fill in; a delivery is for who called."""
        command = self.command
        if not self.stage or self.asks or self.stop or command is None or self.stage.state == State.RUNNING:
            return False
        return command.name not in _FOR_THE_CALLER and not any(map(_TO_FILL_IN.fullmatch, command.arguments))


def next_step(walk: Walk) -> Step:
    """The same answer as long as nothing happens in the job; changes nothing."""
    running = next((stage for stage in walk.stages if stage.state == State.RUNNING), None)
    if running:
        return Step(f"{running.name}: {running.said}", upgrade("status", *walk.naming), running)
    stage = next((stage for stage in walk.stages if stage.open), None)
    if walk.stop:
        why = f"a person is needed: {walk.stop.why}"
        return Step(why, upgrade("status", *walk.naming), stage, stop=walk.stop)
    if stage is None:
        return Step(*walk.end)
    if stage.asks:
        first = stage.asks[0]
        together = [one for one in stage.asks if one.group == first.group]
        more = sum(one.stage == first.stage for one in stage.asks) - 1
        why = first.what + (f"; {more} more of these" if more else "")
        return Step(why, first.command(walk.naming), stage, together)
    said = f"{stage.name}: {stage.said}"
    if stage.stuck:
        return Step(said, None, stage)
    if stage.state == State.TODO:
        said = f"{stage.name} is the next stage{f': {stage.said}' if stage.said else ''}"
    return Step(said, stage.command, stage)


def named_from_here(workspace: Path) -> list[str]:
    """The option that names a workspace, where it is not the one around the present folder."""
    return [] if find_workspace(Path.cwd()) == workspace.absolute() else ["--workspace", str(workspace)]


def find_workspace(start: Path) -> Path:
    """The nearest folder from ``start`` upwards that has a ``.npu-upgrade``, else ``start``."""
    start = start.absolute()
    return next((f for f in (start, *start.parents) if (f / WORKSPACE_DIR).is_dir()), start)
