"""Brings the error of a log home: to the step of upstream's behind it, and to the edit that answers it.

Three ways, the surest first: a mention names what the error names; the merge of our copy has another
statement where the error was raised; upstream changed a function on the traceback or called there.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.outline import outline
from npu_upgrade.code.statements import split_statements
from npu_upgrade.gates.serving.root_cause import Finding
from npu_upgrade.lineage.items import Item
from npu_upgrade.threeway.pieces import resolved
from npu_upgrade.watch.flags import sets_and_reads
from npu_upgrade.watch.judge import Judge
from npu_upgrade.watch.line import Step, open_line
from npu_upgrade.watch.look import mergeable, versions_of
from npu_upgrade.watch.records import Entry
from npu_upgrade.watch.ties import Tie, signature_of

_FRAME = re.compile(r'\s*File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_NAMED = re.compile(r"\b(?:name|attribute|named|arguments?:?|and) ['\"]([\w.]+)['\"]")
_CALLED = re.compile(r"\b([\w.]+)\(\) (?:got|missing|takes)\b")
_MODULE = re.compile(r"\b(?:from|named) '([\w.]+)'")
_QUOTED = re.compile(r"['\"`]([\w.]+)['\"`]")
_CALLS = re.compile(r"\b([A-Za-z_]\w*)\(")
_AROUND, _OTHERS = 3, 3


@dataclass(frozen=True)
class Frame:
    """One frame of a traceback; ``path`` is as the log has it, ``source`` its line, empty if unsaid."""

    path: str
    line: int
    function: str
    source: str

    def within(self, package: str) -> str:
        """The path from the package on; empty for a file of another one."""
        path = self.path.replace("\\", "/")
        at = f"/{path}".rfind(f"/{package}/")
        return path[at:] if at >= 0 else ""


@dataclass(frozen=True)
class Error:
    """An error of a log: what it says, the names it is about, what else it quotes, and where it was raised.

    ``frames`` are the innermost first.
    """

    text: str
    names: frozenset[str]
    quoted: frozenset[str]
    frames: tuple[Frame, ...] = ()

    @classmethod
    def of(cls, finding: Finding) -> Error:
        text = finding.text
        names = {_last(name) for pattern in (_NAMED, _CALLED) for name in pattern.findall(text)}
        quoted = {_last(name) for name in _QUOTED.findall(text)}
        return cls(text, frozenset(names), frozenset(quoted - names), tuple(_frames(finding.tail))[::-1])

    @property
    def modules(self) -> set[str]:
        """The files that the modules which it names may be."""
        names = (name.replace(".", "/") for name in _MODULE.findall(self.text))
        return {path for name in names for path in (f"{name}.py", f"{name}/__init__.py")}


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _frames(tail: Sequence[str]) -> Iterator[Frame]:
    for at, text in enumerate(tail):
        if found := _FRAME.match(text):
            below = tail[at + 1].strip() if at + 1 < len(tail) and not _FRAME.match(tail[at + 1]) else ""
            yield Frame(found["path"], int(found["line"]), found["function"] or "", below)


@dataclass(frozen=True)
class Home:
    """The step behind an error, the unit or item that shows it, and the edit that answers it, if any.

    ``sure`` is False where the step only changed what the error came through; ``others`` did as well.
    """

    label: str
    spec: str
    date: str
    subject: str
    shown_by: str
    edit: str
    sure: bool = True
    others: list[str] = field(default_factory=list)


def naming(error: Error, item: Item) -> tuple[int, bool, int] | None:
    """How well an item names what the error names, None where it does not."""
    title, detail = (set(re.findall(r"\w+", text)) for text in (item.title, item.detail))
    package = item.path.partition("/")[0]
    here = bool(package) and item.path in {frame.within(package) for frame in error.frames}
    # A word that is only quoted ('layer', a key) stands in many texts.
    if not (error.names & title or (here and (error.names & detail or error.quoted & title))):
        return None
    return len(error.names & title), here, len((error.names | error.quoted) & (title | detail))


def by_mention(error: Error, entries: Iterable[Entry]) -> Home | None:
    """The last mention with an item that names what the error names, best where the error was raised."""
    best: tuple[tuple[int, bool, int], Entry, Item] | None = None
    for entry in entries:
        for item in entry.items:
            rank = naming(error, item)
            if rank and (best is None or rank >= best[0]):
                best = rank, entry, item
    if best is None:
        return None
    _, entry, item = best
    return Home(entry.label, entry.spec, entry.date, entry.subject, item.title, item.detail)


def by_merge(error: Error, judge: Judge) -> Home | None:
    """The first step with which the merge has other code where a copy of ours raised the error.

    That is the statement itself; less sure is one above it that makes what it reads.
    """
    unsure = None
    for frame in error.frames:
        for tie, unit, key in _raised(frame, judge):
            merges = [(step, judge.outcome(tie, text, step)) for step, text in versions_of(judge, tie)]
            where = f"{tie.unit.path}: {tie.unit.name}"
            for one in (key, *_makers(unit, key)):
                for step, outcome in merges:
                    if outcome.merged is None and one == key:
                        return _home(step, f"{where}: upstream removed what this is a copy of", "")
                    merged = resolved(outcome.merged.pieces, "theirs") if outcome.merged else []
                    if outcome.merged is None or one in {statement.key for statement in merged}:
                        continue
                    edit = _hunks(unit, outcome.merged.text(), tie.unit.path, one)
                    if one == key:
                        title = f"{where}: the merge has other code where the error was raised"
                        return _home(step, title, edit)
                    title = f"{where}: the merge makes otherwise what is read where the error was raised"
                    unsure = unsure or replace(_home(step, title, edit), sure=False)
    return unsure


def by_change(error: Error, judge: Judge) -> Home | None:
    """The last step that changed upstream's part of the traceback, or what our failing line calls.

    What the error names comes first, and is sure where it is gone or has other parameters.
    """
    package, places = judge.ours.package, _places(error, judge)
    start = judge.line.start
    point = start.spec.rpartition("@")[2] if start.spec.startswith("git:") else start.label
    line = open_line(judge.spec, package, point, places)
    blobs = dict(line.start.blobs)
    wanted = {blob for step in [line.start, *line.steps] for blob in step.blobs.values() if blob}
    texts = line.texts(wanted)
    found: list[tuple[tuple[bool, int], Step, str, str]] = []
    for step in line.steps:
        before, blobs = blobs, blobs | step.blobs
        for path in places.keys() & step.blobs.keys():
            was, now = (outline(texts[blob]) if (blob := some.get(path)) else {} for some in (before, blobs))
            for name in was:
                if _last(name) in places[path] and was[name] != now.get(name):
                    how, title, edit = _changed(f"{path}: {name}", was[name], now.get(name))
                    found.append(((_last(name) in error.names, how), step, title, edit))
    if not found:
        return None
    rank, step, title, edit = max(found[::-1], key=lambda one: one[0])
    edit = edit or _beside_methods(error, judge, step)
    others = [one.label for _, one, _, _ in found[::-1] if one is not step]
    return replace(_home(step, title, edit), sure=all(rank), others=list(dict.fromkeys(others))[:_OTHERS])


def _places(error: Error, judge: Judge) -> dict[str, set[str]]:
    """File of upstream's -> the functions in it that an error came through, names or calls."""
    package, found = judge.ours.package, defaultdict[str, set[str]](set)
    for frame in error.frames:
        if path := frame.within(package):
            found[path].add(_last(frame.function))
    for path in error.modules:
        if path.startswith(f"{package}/"):
            found[path] |= error.names
    ours = [frame for frame in error.frames if frame.within(judge.ours.side.project.package)]
    if ours and judge.ours.runners:
        found[judge.ours.side.upstream.path] |= {*_CALLS.findall(ours[0].source), *error.names}
    return found


def _changed(unit: str, was: str, now: str | None) -> tuple[int, str, str]:
    if now is None:
        return 2, f"upstream removed {unit}", ""
    same = signature_of(was) == signature_of(now)
    what = "body" if same else "parameters"
    return int(not same), f"upstream changed the {what} of {unit}", _hunks(was, now, unit, "")


def _raised(frame: Frame, judge: Judge) -> Iterator[tuple[Tie, str, str]]:
    """The copies of ours that a frame is in, each with its text and the statement that failed."""
    path = frame.within(judge.ours.side.project.package)
    for tie in judge.ours.ties:
        if path == tie.unit.path and mergeable(tie) and _last(tie.unit.name) == _last(frame.function):
            unit = parse_module(judge.ours.side.tree.read(path)).units[tie.unit.name].source
            for one in split_statements(unit):
                if frame.source and frame.source in map(str.strip, one.lines):
                    yield tie, unit, one.key
                    break


def _beside_methods(error: Error, judge: Judge, step: Step) -> str:
    """What the merge up to a step does with the line of a runner file, an import maybe, that failed."""
    package = judge.ours.side.project.package
    frame = next((one for one in error.frames if one.within(package)), None)
    path = frame.within(package) if frame else ""
    merged = judge.merged_runners(step).get(path) if frame and frame.function == "<module>" else None
    if frame is None or merged is None:
        return ""
    ours = judge.ours.side.tree.read(path)
    key = next((one.key for one in split_statements(ours) if frame.source in map(str.strip, one.lines)), "")
    return _hunks(ours, merged.text, path, key) if key else ""


def _makers(unit: str, key: str) -> list[str]:
    """The statements before one that set what it reads, the nearest first."""
    statements = split_statements(unit)
    at = next(place for place, one in enumerate(statements) if one.key == key)
    read = sets_and_reads(statements[at])[1]
    return [one.key for one in statements[:at][::-1] if sets_and_reads(one)[0] & read]


def _hunks(was: str, now: str, name: str, key: str) -> str:
    """The difference as a patch: of it what changes a statement, where that is said."""
    rows = difflib.unified_diff(was.split("\n"), now.split("\n"), name, name, n=_AROUND, lineterm="")
    head, *hunks = re.split(r"^(?=@@ )", "\n".join(rows), flags=re.MULTILINE)
    gone = next((one for one in split_statements(was) if key and one.key == key), None)
    lines = {line.strip() for line in gone.lines} if gone else set()
    here = [hunk for hunk in hunks if lines & {row[1:].strip() for row in hunk.split("\n") if row[:1] == "-"}]
    return "".join([head, *(here or hunks)])


def _home(step: Step, title: str, edit: str) -> Home:
    return Home(step.label, step.spec, step.date.isoformat() if step.date else "", step.subject, title, edit)
