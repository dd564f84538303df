"""What is known of one start of a server, as far as features are judged by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.gates.serving.log_lines import LogLine, read
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

    @property
    def served(self) -> bool:
        return self.verdict is Verdict.PASS or self.verdict is Verdict.INCONCLUSIVE

    @property
    def shown_config(self) -> str:
        """The server's resolved configuration, as evidence calls it."""
        return self._beside("config.json")

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
