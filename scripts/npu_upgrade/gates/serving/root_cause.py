"""The first root cause in a serve log, and what only followed from it.

Each process is followed through the log: tracebacks, chains of them, and lines that stand for themselves.
Source lines inside a traceback are never taken for messages: only what an exception says, and what is
logged as an error or without a level.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.gates.serving.log_lines import LogLine, read
from npu_upgrade.gates.serving.signatures import Matcher, Signature, signatures
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import table

_BEGIN = "Traceback (most recent call last):"
_CONNECTORS = ("The above exception was the direct cause", "During handling of the above exception")
_UNHEEDED = ("Exception ignored in", "Exception in thread", "Task exception was never retrieved")
_EXCEPTION = re.compile(
    r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Unsupported|Timeout|Failed)\b(?:: |$)"
)
_BARE = re.compile(r"[A-Za-z_][\w.]*:?\s*$")
_VLLM = re.compile(
    r"(?:vLLM API server version |LLM engine \(v)(\d+(?:\.\d+)*(?:rc\d+|\.post\d+)?)(?![\w.])"
)  # of a release; a build of a commit is none
_MARKS = re.compile(r"[\s^~]*$")
_MESSAGE_LINES = 40  # further lines that may belong to one message
_TAIL_LINES = 16
_KEPT_LINES = 64


class _State(enum.Enum):
    OUTSIDE = enum.auto()
    FRAMES = enum.auto()
    SOURCE = enum.auto()
    MESSAGE = enum.auto()


@dataclass(frozen=True)
class Finding:
    """An error at a line of the log; ``tail`` is the end of its traceback."""

    line: int
    who: str
    text: str
    signature: Signature | None = None
    tail: tuple[str, ...] = ()


@dataclass
class _Chain:
    """Exceptions that were raised from each other, innermost first."""

    known: Finding | None = None
    unknown: Finding | None = None
    wrapped: bool = False  # it began with a wrapper: what was raised from that explains nothing
    connected: bool = False


@dataclass
class Process:
    """What one process has said so far. ``found`` and ``wrapped`` are told each error, ``odd`` the first line
    that is an error without a traceback and without a signature."""

    matcher: Matcher
    found: Callable[[Finding], None]
    wrapped: Callable[[Finding], None]
    odd: Callable[[Finding], None]
    state: _State = _State.OUTSIDE
    chain: _Chain = field(default_factory=_Chain)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    place: str = ""
    left: int = 0
    unheeded: bool = False

    def take(self, line: LogLine) -> None:
        text = line.text.lstrip(" |+") if line.text.lstrip().startswith(("|", "+ ")) else line.text
        if text.rstrip().endswith(_BEGIN):
            self._begin()
        elif text.startswith(_CONNECTORS):
            self.chain.connected = True
            self.state = _State.OUTSIDE
        elif self.state in (_State.FRAMES, _State.SOURCE):
            self._in_traceback(line, text)
        elif not (self.state is _State.MESSAGE and self._continued(line, text)):
            self._alone(line, text)

    def end(self) -> None:
        """Tell what the chain at hand was about; nothing follows it."""
        best = self.chain.known or self.chain.unknown
        if best:
            self.found(best)
        self.chain = _Chain()

    def _begin(self) -> None:
        if not self.chain.connected:
            self.end()
        self.chain.connected = False
        self.tail.clear()
        self.state = _State.FRAMES

    def _in_traceback(self, line: LogLine, text: str) -> None:
        is_frame = text.lstrip().startswith('File "')
        is_exception = not text.startswith((" ", "\t")) and _EXCEPTION.match(text)
        if is_frame or _MARKS.match(text) or text.startswith((" ", "\t")):
            self.state = _State.SOURCE if is_frame else _State.FRAMES
        elif self.state is _State.SOURCE and not is_exception:
            self.state = _State.FRAMES  # source that lost its indentation
        else:
            self._exception(line, text)
            return
        self.tail.append(text)

    def _exception(self, line: LogLine, text: str) -> None:
        text = self._with_source(text)
        signature = self.matcher.find(text)
        finding = Finding(line.number, line.who, text, signature, tuple(self.tail))
        if signature is None:
            if self.chain.unknown is None and not (self.unheeded or self.chain.wrapped):
                self.chain.unknown = finding
        elif signature.wrapper:
            self.wrapped(finding)
            self.chain.wrapped = True
        elif self.chain.known is None:
            self.chain.known = finding
        self._expect_more(line)
        self.unheeded = False

    def _with_source(self, text: str) -> str:
        """An exception that says nothing, with the source line that raised it."""
        if not _BARE.match(text):
            return text
        source = next((one.strip() for one in reversed(self.tail) if not _MARKS.match(one)), "")
        return f"{text.strip(' :')} at {source}" if source and not source.startswith('File "') else text

    def _expect_more(self, line: LogLine) -> None:
        self.state, self.place, self.left = _State.MESSAGE, line.place, _MESSAGE_LINES

    def _continued(self, line: LogLine, text: str) -> bool:
        """Whether the line belongs to the message before it; it may say more than the first line did."""
        self.left -= 1
        if self.left < 0 or line.place != self.place or text.startswith(_UNHEEDED):
            self.state = _State.OUTSIDE
            return False
        signature = self.matcher.find(text)
        if signature is None:
            return True
        finding = Finding(line.number, line.who, text, signature, tuple(self.tail))
        if signature.wrapper:
            self.wrapped(finding)
            return True
        known = self.chain.known
        if known is None or (known.signature and known.signature.generic and not signature.generic):
            self.chain.known = finding
            return True
        return known.signature is signature or signature.generic or bool(line.place)

    def _alone(self, line: LogLine, text: str) -> None:
        """A line outside tracebacks."""
        self.unheeded = text.startswith(_UNHEEDED)
        if not line.level and "Warning:" in text:
            return
        signature = self.matcher.find(text)
        finding = Finding(line.number, line.who, text, signature)
        if signature is None:
            if line.level or _EXCEPTION.match(text):
                self.odd(finding)
        elif signature.wrapper:
            self.wrapped(finding)
        else:
            self.end()
            self.chain.known = finding
            self._expect_more(line)


_QUIET = ("DEBUG", "INFO", "WARNING")
_MOST_PROCESSES = 512


@dataclass
class Explanation:
    """What a log of ``lines`` lines says. ``root`` without a signature is an error nobody described yet.

    ``later`` and ``wrappers``: signature id -> the line it is first seen at. ``ended_after``: see
    :func:`explain`. ``vllm``: the release that the log names.
    """

    lines: int = 0
    vllm: str = ""
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
            "root": _as_json(first, self.vllm) if first else None,
            "later": {name: at for name, at in self.later.items() if not (first and name == _name(first))},
            "wrappers": self.wrappers,
        }


def explain_file(log: Path) -> Explanation:
    """What :func:`explain` finds in a log file; raises :class:`BadInput` for one that cannot be read."""
    try:
        return explain(read(log))
    except OSError as error:
        raise BadInput(
            f"cannot read {log}: {error.strerror or error}",
            expected="a readable log file",
            try_="redirect the server into one: vllm serve ... > serve.log 2>&1",
        ) from error


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
        if not result.vllm and (named := _VLLM.search(line.text)):
            result.vllm = named[1]
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


def _as_json(finding: Finding, vllm: str) -> dict[str, Any]:
    place = {"line": finding.line, "process": finding.who, "text": finding.text[:2000]}
    if finding.signature:
        known = finding.signature.as_json()
        step = finding.signature.next
        if vllm:
            step = step.replace("--vllm SPEC", f"--vllm pypi:vllm=={vllm}")
        return known | {"next_step": step} | place
    return {
        "id": "UNKNOWN",
        "cause": "no signature describes this error",
        "next_step": "read the traceback's innermost frame; when the cause is found, add a signature for it",
        **place,
        "traceback_tail": list(finding.tail[-_TAIL_LINES:]),
    }


_WIDEST = 200


def as_text(found: Explanation) -> str:
    """The root cause with its next step, and a table of what else the log holds."""
    said = found.as_json()
    parts = []
    if root := said["root"]:
        lines = [
            f"root cause  {root['id']}, line {root['line']}"
            + (f", {root['process']}" if root["process"] else ""),
            f"it says     {root['text'][:_WIDEST]}",
            f"cause       {root['cause']}",
            f"next step   {root['next_step']}",
        ]
        if root["id"] == "UNKNOWN":
            lines += ["", *root["traceback_tail"]]
        else:
            lines.append(f"known from  {', '.join(root['source'])} ({root['versions']})")
        parts.append("\n".join(lines))
    rows = [(name, str(line), "later error") for name, line in said["later"].items()]
    rows += [(name, str(line), "wrapper: passes an error on") for name, line in said["wrappers"].items()]
    if rows:
        parts.append(table(("also in the log", "line", ""), sorted(rows, key=lambda row: int(row[1]))))
    return "\n\n".join(parts)
