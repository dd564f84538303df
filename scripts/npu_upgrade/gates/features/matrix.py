"""The feature matrix: from the model, the release and a few starts to one row for each feature.

All are asked for in one start, but for one that the release refuses beside others; when that does not serve,
all but the one that its failure names, and one by one only when that does not serve either.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from npu_upgrade.gates.features.capability import ARGUMENT, FEATURES, Capability, Way
from npu_upgrade.gates.features.judge import judge, not_started
from npu_upgrade.gates.features.model import (
    NOT_PROVEN,
    UNSUPPORTED,
    VERIFIED,
    Checkpoint,
    Row,
    best_way,
    needs_request,
    ruled_out,
)
from npu_upgrade.gates.serving.launch import clashing, given_json
from npu_upgrade.gates.serving.session import Stopped
from npu_upgrade.gates.serving.starts import Start, Started, Starter
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.tables import cut, table
from npu_upgrade.ground.verdict import Verdict

_ADDITIONAL = "--additional-config"
_NEEDS = {"flashcomm1": "expert_parallel"}  # it has an effect only together with it
# what a failure says that has to do with a feature that no other one needs
_SAYS = {
    "lora": re.compile(r"lora", re.IGNORECASE),
    "mtp": re.compile(r"\bmtp\b|specul|draft|eagle", re.IGNORECASE),
    "flashcomm1": re.compile(r"flash_?comm", re.IGNORECASE),
}


def start(
    name: str,
    ways: Mapping[str, Way],
    wanted: Iterable[str],
    asked: Sequence[str] = (),
    more: Mapping[str, Sequence[str]] | None = None,
) -> Start:
    """One start with the wanted features, and with those they have no effect without.

    ``asked`` are the user's own arguments: what is in them already is not said twice. ``more``: further
    arguments of a feature.
    """
    chosen = with_needs(wanted, ways)
    arguments: list[str] = []
    environment: dict[str, str] = {}
    additional = given_json(asked, _ADDITIONAL)
    own = dict(additional)
    for feature in chosen:
        way = ways[feature]
        if way.kind == ARGUMENT and not clashing(asked, [way.name]):
            arguments += way.words
        elif way.kind == "environment":
            environment[way.name] = str(way.value)
        elif way.kind == "additional_config":
            additional[way.name] = way.value
        arguments += (more or {}).get(feature, ())
    if additional != own:
        arguments += [_ADDITIONAL, json.dumps(additional, separators=(",", ":"))]
    return Start(name, chosen, tuple(arguments), environment)


def with_needs(wanted: Iterable[str], ways: Mapping[str, Way]) -> tuple[str, ...]:
    """The features in the order of ``ways``, completed."""
    names = set(wanted)
    names |= {_NEEDS[name] for name in names if name in _NEEDS}
    return tuple(name for name in ways if name in names)


@dataclass(frozen=True)
class Setting:
    """What the matrix is made for. ``asked``: the user's own arguments of vllm serve. ``ranks``: tensor times
    data parallel. ``more``: further arguments of a feature, such as the adapter of LoRA; ``lacking``: what a
    feature needs and does not have; ``aside``: those that no start is made for alone, as nobody asked for
    them by name."""

    model: Checkpoint
    dummy: bool
    on_cpu: bool
    ranks: int = 1
    asked: Sequence[str] = ()
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)
    aside: Collection[str] = ()


@dataclass
class Matrix:
    """``rows`` by feature; ``starts`` in their order; ``serves``: the model serves with nothing asked for."""

    rows: dict[str, Row] = field(default_factory=dict)
    starts: list[Started] = field(default_factory=list)
    serves: bool | None = None

    def as_text(self) -> str:
        head = ("feature", "status", "requested", "resolved", "evidence", "why")
        rows = [[cut(getattr(one, name), 100) for name in head] for one in self.rows.values()]
        return table(head, rows)

    def judged(self, stopped: Stopped = None) -> tuple[Verdict, str]:
        """The verdict over the rows, and one line about them; ``stopped`` is what ended the starts early."""
        counts = Counter(row.status for row in self.rows.values())
        order = sorted(counts, key=lambda one: (one != VERIFIED, one))
        summary = ", ".join(f"{counts[one]} {one}" for one in order) + f" in {len(self.starts)} starts"
        if isinstance(stopped, Blocked):
            return Verdict.BLOCKED, f"{summary}; ended early: {stopped.what}"
        if stopped is not None:
            return Verdict.INCONCLUSIVE, f"{summary}; interrupted"
        if self.serves is False:
            return Verdict.FAIL, f"the model does not serve, with no feature asked for; {summary}"
        if counts[UNSUPPORTED]:
            return Verdict.FAIL, summary
        return (Verdict.INCONCLUSIVE if counts[NOT_PROVEN] else Verdict.PASS), summary


def make(
    capabilities: Mapping[str, Capability],
    setting: Setting,
    starter: Starter,
    only: Iterable[str] = FEATURES,
    matrix: Matrix | None = None,
) -> Matrix:
    """All features at once first; when that does not serve, all but the one that the failure names, and that
    one alone unless it is set aside; else none, then each alone, then what worked together. Where the release
    refuses one of them beside others, the start with all is left out.

    At most ``features + 4`` starts. ``matrix`` is filled as they are made, so that it holds what was found
    when one of them raises.
    """
    matrix = matrix or Matrix()
    tried = _sorted_out(matrix, capabilities, setting, [name for name in FEATURES if name in set(only)])
    if not tried:
        return matrix
    ways = {
        name: best_way(capabilities[name], setting.model, setting.asked)
        for name in capabilities
        if capabilities[name].ways
    }
    run = _Run(matrix, capabilities, ways, setting, starter)
    asked_for = [name for name in tried if needs_request(ways[name])]
    suspect = _refused(capabilities, setting.model, asked_for)
    if not suspect:
        if run.together("all", tried, asked_for) or not asked_for:
            return _in_order(matrix)
        suspect = _named(matrix.starts[-1], asked_for) if len(asked_for) > 1 else ""
    if suspect and run.apart(suspect, tried, asked_for):
        return _in_order(matrix)
    serves = run.together("nothing", [name for name in tried if name not in asked_for], [])
    if serves and len(asked_for) > 1:  # one alone is what the first start was
        run.alone(tried, asked_for)
    return _in_order(matrix)


def _refused(capabilities: Mapping[str, Capability], model: Checkpoint, features: Sequence[str]) -> str:
    """The feature that the release refuses beside others of ``features`` for this model; empty for none."""
    beside = [name for name in features if not set(capabilities[name].apart).isdisjoint(features)]
    return beside[0] if beside and model.experts().value else ""


def _named(failed: Started, features: Sequence[str]) -> str:
    """The feature that a failure names first; empty where it names none."""
    root = failed.root or {}
    said = f"{root.get('text', '')} {root.get('cause', '')}"
    places = {name: words.search(said) for name, words in _SAYS.items() if name in features}
    found = {name: place.start() for name, place in places.items() if place}
    return min(found, key=lambda name: found[name], default="")


def _sorted_out(
    matrix: Matrix, capabilities: Mapping[str, Capability], setting: Setting, names: Sequence[str]
) -> list[str]:
    """Write down the features that no start can show; returns the others."""
    tried = []
    for name in names:
        one = capabilities[name]
        ruling = ruled_out(one, setting.model, setting.dummy, setting.on_cpu, setting.ranks)
        lacking = setting.lacking.get(name)
        if ruling is None and lacking:
            ruling = Row(name, NOT_PROVEN, why=lacking)
        if ruling:
            matrix.rows[name] = ruling
        else:
            tried.append(name)
    return tried


@dataclass
class _Run:
    matrix: Matrix
    capabilities: Mapping[str, Capability]
    ways: Mapping[str, Way]
    setting: Setting
    starter: Starter

    def together(self, name: str, features: Sequence[str], asked_for: Sequence[str]) -> bool:
        """One start; whether it served. All its features are judged by it, or said to be not proven."""
        started = self._start(name, asked_for)
        if not asked_for:
            self.matrix.serves = started.served
        for one in features:
            self.matrix.rows[one] = self._row(one, started)
        return started.served

    def apart(self, suspect: str, tried: Sequence[str], asked_for: Sequence[str]) -> bool:
        """All but one feature, and that one alone unless it failed beside them and is set aside; whether the
        others serve without it."""
        together = self.matrix.starts[-1] if self.matrix.starts else None
        one = self.capabilities[suspect]
        others = [name for name in asked_for if name != suspect]
        if not self.together(f"without {suspect}", [name for name in tried if name != suspect], others):
            return False
        self.matrix.serves = True
        if together and suspect in self.setting.aside:
            row = self._row(suspect, together)
            self.matrix.rows[suspect] = replace(row, why=f"{row.why}; --only {suspect} tries it alone")
            return True
        row = self._row(suspect, self._start(suspect, [suspect]))
        if row.status == VERIFIED:
            refused = f"the release refuses it beside {' and '.join(one.apart)} ({one.places[0]})"
            row = _alone_only(row, _failed_beside(others, together) if together else refused)
        self.matrix.rows[suspect] = row
        return True

    def alone(self, tried: Sequence[str], asked_for: Sequence[str]) -> None:
        """Each feature that needs asking for by itself; then those that serve together, when that is new."""
        working = []
        for name in asked_for:
            started = self._start(name, [name])
            self.matrix.rows[name] = self._row(name, started)
            if started.served:
                working.append(name)
        if 1 < len(working) < len(asked_for):
            started = self._start("those that work", working)
            if started.served:
                self._better(tried, started, working)
            else:
                self._note(working, started)

    def _better(self, tried: Sequence[str], started: Started, working: Sequence[str]) -> None:
        for name in tried:
            if name in working or not needs_request(self.ways[name]):
                row = self._row(name, started)
                if row.status == VERIFIED or self.matrix.rows[name].status != VERIFIED:
                    self.matrix.rows[name] = row

    def _note(self, working: Sequence[str], started: Started) -> None:
        """What works alone and not together is said in each row."""
        for name in working:
            others = [one for one in working if one != name]
            self.matrix.rows[name] = _alone_only(self.matrix.rows[name], _failed_beside(others, started))

    def _start(self, name: str, features: Sequence[str]) -> Started:
        number = len(self.matrix.starts) + 1
        wanted = start(f"start-{number}", self.ways, features, self.setting.asked, self.setting.more)
        started = self.starter(wanted)
        self.matrix.starts.append(started)
        return started

    def _row(self, name: str, started: Started) -> Row:
        one, way = self.capabilities[name], self.ways[name]
        if started.served:
            return judge(one, way, started, self.setting.dummy)
        row = not_started(one, way, started)
        others = [other for other in with_needs(started.start.features, self.ways) if other != name]
        if row.status == UNSUPPORTED and (others or not needs_request(way)):
            return replace(row, status=NOT_PROVEN)
        return row


def _failed_beside(others: Sequence[str], together: Started) -> str:
    return f"not together with {', '.join(others)} ({together.shown_log})"


def _alone_only(row: Row, reason: str) -> Row:
    return replace(row, why=f"{f'{row.why}; ' if row.why else ''}alone only: {reason}")


def _in_order(matrix: Matrix) -> Matrix:
    matrix.rows = {name: matrix.rows[name] for name in FEATURES if name in matrix.rows}
    return matrix
