"""Several starts of servers, each judged by the serve gate, and what is known of each afterwards.

The ladder after a failure starts the same again, then with less, until it serves: a diagnosis, never a pass.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.gates.features.model import read as checkpoint
from npu_upgrade.gates.serving.checks import Check
from npu_upgrade.gates.serving.device import Device
from npu_upgrade.gates.serving.gate import Extra, Options, Served, judge
from npu_upgrade.gates.serving.launch import Launch
from npu_upgrade.gates.serving.log_lines import LogLine, read
from npu_upgrade.gates.serving.requests import Exchange, counted
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Verdict

READY = "Application startup complete"


@dataclass(frozen=True)
class Start:
    """What to start: ``arguments`` and ``environment`` come on top of what the user asked for."""

    name: str
    features: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Started:
    """How it went.

    ``checks``: name -> (state, why). ``metrics``: name -> sum over engines at the end. ``cache_tokens``: how
    many tokens its KV cache takes, as it said. ``log`` is read where it lies, ``shown_log`` is what evidence
    calls it.
    """

    start: Start
    verdict: Verdict
    summary: str
    log: Path
    shown_log: str
    resolved: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    checks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    root: Mapping[str, Any] | None = None
    cache_tokens: int | None = None
    exchanges: Sequence[Exchange] = ()

    @property
    def served(self) -> bool:
        return self.verdict is Verdict.PASS or self.verdict is Verdict.INCONCLUSIVE

    @property
    def shown_root(self) -> str:
        """The line of the root cause, as evidence cites it; empty when there is none."""
        root = self.root or {}
        return (
            f"{self.shown_log}:{root['line']}: {str(root['text']).strip()[:300]}" if root.get("line") else ""
        )

    @property
    def shown_config(self) -> str:
        """Where evidence has the engine's configuration."""
        return self._beside("observed.json")

    @property
    def shown_metrics(self) -> str:
        return self._beside("metrics-after.txt")

    @property
    def shown_exchanges(self) -> str:
        return self._beside("exchanges.json")

    def _beside(self, name: str) -> str:
        return f"{self.shown_log.rpartition('/')[0]}/{name}"

    def lines(self) -> Iterator[LogLine]:
        if self.log.is_file():
            yield from read(self.log)

    def shown(self, line: LogLine) -> str:
        """A line as evidence cites it."""
        said = f"{line.who} {line.text}".strip()
        return f"{self.shown_log}:{line.number}: {said[:300]}"


Starter = Callable[[Start], Started]


def setting(resolved: Mapping[str, Any], name: str) -> Any:
    """A value of the resolved configuration, wherever in it ``name`` stands; None when it is not there."""
    if name in resolved:
        return resolved[name]
    for value in resolved.values():
        if isinstance(value, Mapping) and (found := setting(value, name)) is not None:
            return found
    return None


Judge = Callable[[Launch, Device, Options, Path], Served]


@dataclass
class Servers:
    """Starts servers one after the other. ``served`` is the whole of what each showed, in order.

    ``extra`` gives what a start is asked beside the smoke checks. ``metrics``: counters to read at the end.
    ``called``: what the folders of their evidence are called.
    """

    launch: Launch
    device: Device
    options: Options
    folder: Path
    extra: Callable[[Start], Sequence[Extra]] = lambda start: ()
    metrics: Sequence[str] = ()
    judge: Judge = judge
    called: str = "start"
    served: list[Served] = field(default_factory=list)

    def __call__(self, start: Start) -> Started:
        """One start. Raises :class:`Blocked` when the one before it left something behind, and
        KeyboardInterrupt when somebody interrupted it; both leave ``served`` complete."""
        self._check_clean()
        number = len(self.served) + 1
        said = " ".join([*(f"{key}={value}" for key, value in start.environment.items()), *start.arguments])
        say(f"start {number} ({', '.join(start.features) or start.name}): {said or 'nothing added'}")
        launch = replace(
            self.launch,
            arguments=(*self.launch.arguments, *start.arguments),
            environment={**self.launch.environment, **start.environment},
        )
        options = replace(self.options, extra=(*self.options.extra, *self.extra(start)))
        served = self.judge(launch, self.device, options, self.folder / f"{self.called}-{number}.log")
        self.served.append(served)
        say(f"start {number}: {served.verdict.value}: {served.summary}")
        if served.interrupted:
            raise KeyboardInterrupt
        return started(start, served, self.metrics, f"{self.called}-{number}/server.log")

    def _check_clean(self) -> None:
        if left := _left_behind(self.served[-1]) if self.served else None:
            raise Blocked(
                f"the start before left something behind: {left.why}",
                expected="a device as it was before",
                try_="end what holds it, and run this again",
            )


def _left_behind(served: Served) -> Check | None:
    return next((one for one in served.checks if one.name == "teardown" and one.state == "FAIL"), None)


def started(start: Start, served: Served, metrics: Iterable[str], shown: str) -> Started:
    """What a served start showed, as features and capacity are judged by it."""
    text = served.metrics.get("after", "")
    found = {name: counted(text, name) or counted(text, f"{name}_total") for name in metrics}
    cache = served.kv_cache or {}
    return Started(
        start,
        served.verdict,
        served.summary,
        served.log,
        shown,
        served.resolved,
        {name: value for name, value in found.items() if value is not None},
        {one.name: (one.state, one.why) for one in served.checks},
        served.root,
        cache.get("tokens"),
        served.exchanges,
    )


EAGER, DYNAMO_OFF = "--enforce-eager", {"TORCHDYNAMO_DISABLE": "1"}
_TEXT_ONLY = "--limit-mm-per-prompt"
_NARROWS = {
    "same": "the failure does not come every time: look for what differs between two starts",
    "eager": "graphs: their capture, their replay, or memory for them",
    "dynamo off": "torch.compile and Dynamo: an operator or a construct it cannot trace",
    "text only": "the processor or the encoder of the other modalities, not the language model",
}


class Rung(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step down; ``state`` is of a diagnosis, and passes nothing."""

    step: str
    state: str
    why: str
    diagnostic: bool
    root: Any = None
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}


def ladder_text(rungs: Sequence[Rung]) -> str:
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


def diagnose(servers: Servers, served: Served, ladder: Ladder) -> None:
    """Descend after a start that failed and left nothing behind; ``ladder`` is filled as far as it goes."""
    if served.verdict is not Verdict.FAIL or served.interrupted or _left_behind(served):
        return
    config = Path(served.launch.model) / "config.json"
    modalities = checkpoint(config.parent).inputs() if config.is_file() else ()
    say("it failed; starting it again with less and less, to find the cause (this passes nothing)")
    with contextlib.suppress(KeyboardInterrupt):  # ``servers.served`` says so
        try:
            descend(servers, modalities, served.launch.arguments, ladder)
        except Blocked as error:
            say(f"the diagnosis ends early: {error.what}")


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
    return Rung(step, state, why, True, started.root, start.arguments, dict(start.environment))
