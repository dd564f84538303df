"""Whether the description brings the skill up: judged by an agent that sees it among twenty others."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

HERE = Path(__file__).resolve().parents[1]


class Query(Struct, frozen=True):
    query: str
    should_trigger: bool


class Triggers(Struct, frozen=True):
    """``others``: name -> description of skills of the field, in our own words."""

    skill_name: str
    queries: tuple[Query, ...]
    others: dict[str, str]


class Triggered(Struct, frozen=True):
    """Of the queries that should: ``hits``; of those that should not: ``alarms``; both with their texts."""

    wanted: int
    unwanted: int
    missed: tuple[str, ...]
    alarms: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not self.missed and not self.alarms

    def as_text(self) -> str:
        hits = self.wanted - len(self.missed)
        lines = [f"hits {hits} of {self.wanted}, false alarms {len(self.alarms)} of {self.unwanted}"]
        lines += [f"missed: {one}" for one in self.missed] + [f"false alarm: {one}" for one in self.alarms]
        return "\n".join(lines)


def question() -> str:
    """What to ask: the descriptions in an order that says nothing, the queries, the form of the answer."""
    given = _load()
    described = given.others | {given.skill_name: _description()}
    names = sorted(described)
    random.Random(0).shuffle(names)
    skills = "\n".join(f"- {name}: {described[name]}" for name in names)
    queries = "\n".join(f"{at}. {one.query}" for at, one in enumerate(given.queries, 1))
    return (
        "You are a coding agent with these skills installed; all you know of each is its description:\n\n"
        f"{skills}\n\nFor each request below, which one skill would you load before you begin? 'none' where"
        " you would begin without one. Answer with one JSON object: number of the request -> name or 'none'."
        f"\n\n{queries}\n"
    )


def score(answer: str) -> Triggered:
    """The score of an agent's answer. Raises ValueError when it holds no JSON object with every number."""
    given = _load()
    found = re.search(r"\{.*\}", answer, re.DOTALL)
    chosen = json.loads(found[0]) if found else {}
    missing = [str(at) for at in range(1, len(given.queries) + 1) if str(at) not in chosen]
    if missing:
        raise ValueError(f"the answer has no request {', '.join(missing)}; expected a JSON object of all")
    up = [chosen[str(at)] == given.skill_name for at in range(1, len(given.queries) + 1)]
    pairs = list(zip(given.queries, up, strict=True))
    return Triggered(
        sum(one.should_trigger for one in given.queries),
        sum(not one.should_trigger for one in given.queries),
        tuple(one.query for one, came in pairs if one.should_trigger and not came),
        tuple(one.query for one, came in pairs if not one.should_trigger and came),
    )


def _load() -> Triggers:
    return msgspec.json.decode((HERE / "triggers.json").read_bytes(), type=Triggers)


def _description() -> str:
    head = (HERE.parent / "SKILL.md").read_text("utf-8").split("---\n")[1]
    return str(yaml.safe_load(head)["description"])
