"""How a feature is asked for in one release, and what would prove it there: read from its source."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from npu_upgrade.gates.features.source import LogCall, Place

FEATURES = ("graph", "expert_parallel", "flashcomm1", "mtp", "multimodal", "quantization", "lora")
ARGUMENT, DEFAULT, AUTOMATIC = "argument", "default", "automatic"
LOG, RESOLVED, METRIC, PROCESS, ANSWER = "log", "resolved", "metric", "process", "answer"


@dataclass(frozen=True)
class Way:
    """One way to ask for a feature. ``value`` None: the name alone asks for it.

    ``kind`` is ``argument``, ``environment``, ``additional_config``, ``default`` (on unless switched off by
    the argument ``name``) or ``automatic`` (follows from the checkpoint).
    """

    kind: str
    name: str
    place: Place
    value: Any = None
    note: str = ""

    @property
    def words(self) -> list[str]:
        """The argument and its value."""
        if self.value is None:
            return [self.name]
        is_json = isinstance(self.value, Mapping)
        return [self.name, json.dumps(self.value, separators=(",", ":")) if is_json else str(self.value)]

    @property
    def shown(self) -> str:
        """As a person would type it."""
        if self.kind == "environment":
            return f"{self.name}={self.value}"
        if self.kind == "additional_config":
            return f"--additional-config '{json.dumps({self.name: self.value}, separators=(',', ':'))}'"
        if self.kind == ARGUMENT:
            return shlex.join(self.words)
        return "on by default" if self.kind == DEFAULT else "follows from the checkpoint"


@dataclass(frozen=True)
class Proof:
    """What shows that a feature worked. ``text`` is a pattern for ``log`` and ``process``, a name otherwise.

    ``after_ready``: the line counts only behind the one that says that the server serves.
    """

    kind: str
    text: str
    shown: str
    place: Place
    after_ready: bool = False

    def matches(self, line: str) -> bool:
        return re.search(self.text, line) is not None


@dataclass(frozen=True)
class Capability:
    """What one release has of a feature.

    ``ways`` best first. All ``proofs`` groups are needed, one of each group is enough. ``against``: lines
    that say that the feature was taken away; ``lowered``: that it became less. ``names``: what else the
    source accepts, such as methods of quantization. ``apart``: features beside which it refuses a mixture of
    experts. ``known``: whether the sources could say anything.
    """

    feature: str
    known: bool
    ways: tuple[Way, ...] = ()
    proofs: tuple[tuple[Proof, ...], ...] = ()
    against: tuple[Proof, ...] = ()
    lowered: tuple[Proof, ...] = ()
    names: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    why: str = ""
    places: tuple[Place, ...] = ()

    @property
    def exists(self) -> bool:
        return bool(self.ways)

    def as_json(self) -> dict[str, Any]:
        return {
            "feature": self.feature,
            "exists": self.exists if self.known else None,
            "asked_for_by": [
                {"kind": way.kind, "text": way.shown, "source": str(way.place), "note": way.note}
                for way in self.ways
            ],
            "proven_by": [
                [{"kind": one.kind, "text": one.shown, "source": str(one.place)} for one in group]
                for group in self.proofs
            ],
            "taken_away_by": [{"text": one.shown, "source": str(one.place)} for one in self.against],
            "lowered_by": [{"text": one.shown, "source": str(one.place)} for one in self.lowered],
            "names": list(self.names),
            "apart_for_experts": list(self.apart),
            "why": self.why,
            "source": [str(place) for place in self.places],
        }


def logged(calls: Iterable[LogCall], after_ready: bool = False) -> tuple[Proof, ...]:
    """Log calls as proofs, each text once."""
    found = {call.text: Proof(LOG, call.pattern, call.shown, call.place, after_ready) for call in calls}
    return tuple(found.values())
