"""The first root cause in a serve log, and what only followed from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.gates.serving.log_lines import LogLine
from npu_upgrade.gates.serving.signatures import Matcher, Signature, signatures
from npu_upgrade.gates.serving.tracebacks import Finding, Process

_QUIET = ("DEBUG", "INFO", "WARNING")
_MOST_PROCESSES = 512


@dataclass
class Explanation:
    """What a log of ``lines`` lines says. ``root`` without a signature is an error nobody described yet.

    ``later`` and ``wrappers``: signature id -> the line it is first seen at. ``ended_after``: see
    :func:`explain`.
    """

    lines: int = 0
    root: Finding | None = None
    later: dict[str, int] = field(default_factory=dict)
    wrappers: dict[str, int] = field(default_factory=dict)
    odd: Finding | None = None
    ended_after: int | None = None

    @property
    def first(self) -> Finding | None:
        """The root cause; where there is none and nothing was wrapped either, the first odd error line."""
        return self.root or (None if self.wrappers else self.odd)

    def as_json(self) -> dict[str, Any]:
        first = self.first
        return {
            "lines": self.lines,
            "root": _as_json(first) if first else None,
            "later": {name: at for name, at in self.later.items() if not (first and name == _name(first))},
            "wrappers": self.wrappers,
        }


def explain(
    lines: Iterable[LogLine], known: Iterable[Signature] | None = None, ended_after: int | None = None
) -> Explanation:
    """Read a log once, in order; memory does not grow with its length.

    ``ended_after``: the number of the last line from before somebody ended the server on purpose. A server
    that is ended complains of it: what no signature describes does not count any more after that line.
    """
    result = Explanation(ended_after=ended_after)
    matcher = Matcher(signatures() if known is None else known)
    processes: dict[str, Process] = {}
    for line in lines:
        result.lines = line.number
        if line.level in _QUIET:
            continue
        process = processes.get(line.who)
        if process is None:
            if len(processes) >= _MOST_PROCESSES:
                processes.pop(next(iter(processes))).end()
            process = processes[line.who] = _process(result, matcher)
        process.take(line)
    for process in processes.values():
        process.end()
    return result


def _process(result: Explanation, matcher: Matcher) -> Process:
    def _of_the_ending(finding: Finding) -> bool:
        late = result.ended_after is not None and finding.line > result.ended_after
        return late and finding.signature is None

    def found(finding: Finding) -> None:
        if _of_the_ending(finding):
            return
        _note(result.later, _name(finding), finding.line)
        if result.root is None or finding.line < result.root.line:
            result.root = finding

    def wrapped(finding: Finding) -> None:
        _note(result.wrappers, _name(finding), finding.line)

    def odd(finding: Finding) -> None:
        if not _of_the_ending(finding):
            result.odd = result.odd or finding

    return Process(matcher, found, wrapped, odd)


def _note(where: dict[str, int], name: str, line: int) -> None:
    where[name] = min(line, where.get(name, line))


def _name(finding: Finding) -> str:
    return finding.signature.id if finding.signature else "UNKNOWN"


def _as_json(finding: Finding) -> dict[str, Any]:
    place = {"line": finding.line, "process": finding.who, "text": finding.text[:2000]}
    if finding.signature:
        return finding.signature.as_json() | place
    return {
        "id": "UNKNOWN",
        "cause": "no signature describes this error",
        "next_step": "read the traceback's innermost frame; when the cause is found, add a signature for it",
        **place,
        "traceback_tail": list(finding.tail),
    }
