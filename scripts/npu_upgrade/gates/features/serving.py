"""Starts of real servers for the matrix, the capacity and the ladder: each judged by the serve gate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from npu_upgrade.gates.features.capability import METRIC, Capability
from npu_upgrade.gates.features.started import Start, Started
from npu_upgrade.gates.serving.checks import Check
from npu_upgrade.gates.serving.device import Device
from npu_upgrade.gates.serving.gate import Options, Served, judge
from npu_upgrade.gates.serving.launch import Launch
from npu_upgrade.gates.serving.requests import Client, counted
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.progress import say

Extra = Callable[[Client, str], list[Check]]
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
        options = replace(self.options, extra=_all([*_given(self.options.extra), *self.extra(start)]))
        served = self.judge(launch, self.device, options, self.folder / f"{self.called}-{number}.log")
        self.served.append(served)
        say(f"start {number}: {served.verdict.value}: {served.summary}")
        if served.interrupted:
            raise KeyboardInterrupt
        return started(start, served, self.metrics, f"{self.called}-{number}/server.log")

    def _check_clean(self) -> None:
        checks = self.served[-1].checks if self.served else []
        left = next((one for one in checks if one.name == "teardown" and one.state == "FAIL"), None)
        if left:
            raise Blocked(
                f"the start before left something behind: {left.why}",
                expected="a device as it was before",
                try_="end what holds it, and run this again",
            )


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
    )


def counters(capabilities: Iterable[Capability]) -> list[str]:
    """The metrics by which features are proven."""
    groups = [group for one in capabilities for group in one.proofs]
    return [proof.text for group in groups for proof in group if proof.kind == METRIC]


def _given(extra: Extra | None) -> list[Extra]:
    return [extra] if extra else []


def _all(extras: Sequence[Extra]) -> Extra | None:
    if not extras:
        return None
    return lambda client, name: [check for extra in extras for check in extra(client, name)]
