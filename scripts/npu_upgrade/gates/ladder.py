"""The ladder after a failure: the same again, then with less, until it serves; a diagnosis, never a pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.gates.features.started import Start, Started, Starter
from npu_upgrade.ground.tables import table

EAGER, DYNAMO_OFF = "--enforce-eager", {"TORCHDYNAMO_DISABLE": "1"}
_TEXT_ONLY = "--limit-mm-per-prompt"
_NARROWS = {
    "same": "the failure does not come every time: look for what differs between two starts",
    "eager": "graphs: their capture, their replay, or memory for them",
    "dynamo off": "torch.compile and Dynamo: an operator or a construct it cannot trace",
    "text only": "the processor or the encoder of the other modalities, not the language model",
}


@dataclass(frozen=True)
class Rung:
    """One step down; ``state`` is of a diagnosis, and passes nothing."""

    step: str
    state: str
    why: str
    root: Any = None
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        said = {"step": self.step, "state": self.state, "root": self.root, "why": self.why}
        said |= {"arguments": list(self.arguments), "environment": self.environment, "diagnostic": True}
        return {key: value for key, value in said.items() if value not in (None, [], {})}


def as_text(rungs: Sequence[Rung]) -> str:
    """The rungs as a table, under words that say what they are not."""
    rows = [(one.step, one.state, one.why[:120]) for one in rungs]
    return f"diagnosis, no pass:\n{table(('step', 'state', 'why'), rows)}"


@dataclass
class Ladder:
    """The rungs in their order. ``narrowed``: what the first one that serves says about the cause."""

    rungs: list[Rung] = field(default_factory=list)
    starts: list[Started] = field(default_factory=list)

    @property
    def narrowed(self) -> str:
        serving = next((one for one in self.rungs if one.state == "PASS"), None)
        return _NARROWS[serving.step] if serving else ""


def descend(
    starter: Starter, modalities: Sequence[str], asked: Sequence[str] = (), ladder: Ladder | None = None
) -> Ladder:
    """Start again, each time with less than before, and stop at the first that serves: at most four starts.

    ``modalities`` are those the model takes beside text, ``asked`` the arguments of the start that failed. A
    step that changes nothing is left out. ``ladder`` is filled as the starts are made.
    """
    ladder = ladder or Ladder()
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    first_root: str | None = None
    for step in ("same", "eager", "dynamo off", "text only"):
        if step == "eager":
            if EAGER in asked:
                continue
            arguments = (*arguments, EAGER)
        elif step == "dynamo off":
            environment = DYNAMO_OFF
        elif step == "text only":
            if not modalities:
                continue
            arguments = (*arguments, _TEXT_ONLY, json.dumps(dict.fromkeys(modalities, 0)))
        started = starter(Start(f"ladder-{len(ladder.starts) + 1}", (), arguments, environment))
        ladder.starts.append(started)
        first_root = first_root or _root(started)
        ladder.rungs.append(_rung(step, started, first_root))
        if started.served:
            break
    return ladder


def _root(started: Started) -> str | None:
    return str(started.root.get("id")) if started.root else None


def _rung(step: str, started: Started, first_root: str | None) -> Rung:
    state = "PASS" if started.served else started.verdict.value
    root = _root(started)
    if started.served:
        why = f"it serves with this; the cause is narrowed to: {_NARROWS[step]}"
    elif root and root != first_root:
        why = f"another root cause than before ({first_root}): {started.summary}"
    else:
        why = started.summary
    start = started.start
    return Rung(step, state, why, started.root, start.arguments, dict(start.environment))
