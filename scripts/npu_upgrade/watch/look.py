"""One look: the steps that touch something of ours, with what each newly leaves to a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from npu_upgrade.ground.collector import no_collector
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.merge.overridden import OVERRIDDEN
from npu_upgrade.watch.judge import Judge, Problems
from npu_upgrade.watch.line import Step
from npu_upgrade.watch.records import Entry, Seen, State, Touch
from npu_upgrade.watch.ties import Tie, signature_of, text_of

REMOVED = "upstream-gone"


@dataclass
class Look:
    """What a look found: the mentions, how many steps it went over, and the ids that are open at its end."""

    entries: list[Entry] = field(default_factory=list)
    steps: int = 0
    open: set[str] = field(default_factory=set)

    def count(self, state: State) -> int:
        return sum(entry.state is state for entry in self.entries)


def look(
    judge: Judge,
    importing: Callable[[Step], Problems] | None = None,
    asked: Callable[[Item], bool] = lambda item: True,
) -> Look:
    """Go over the steps of the judge's line. ``importing`` says what an emulated import breaks on.

    Of what the audit finds at the end, only the step of what is ``asked`` for is looked for.
    """
    with no_collector(last=True):
        return _look(judge, importing, asked)


def _look(judge: Judge, importing: Callable[[Step], Problems] | None, asked: Callable[[Item], bool]) -> Look:
    line = judge.line
    found = Look(steps=len(line.steps))
    new = _first_found([line.start, *line.steps], judge.audited, asked)
    if importing:
        found_there = _first_found([line.start, *line.steps], lambda step, _: importing(step), asked)
        for label, items in found_there.items():
            new[label] = new.get(label, {}) | items
    texts = _Texts(judge)
    merged = {tie for tie in judge.ours.ties if mergeable(tie)}
    passed = {tie for tie in merged if judge.left_behind(tie)}
    left = {tie: texts.merge(tie, line.start) for tie in merged - passed}
    for step in line.steps:
        touches, items = [], dict(new.get(step.label, {}))
        changes = list(texts.changed(step))
        gone = {(tie.path, tie.name) for tie, _, now in changes if now is None}
        for tie, was, now in changes:
            if tie not in left and (tie.path, tie.name.rpartition(".")[0]) in gone:
                continue  # with its class
            if tie not in left:
                items |= {item.id: item for item in _changed(tie, was, now) if tie not in passed}
                touches.append(_touch(tie, was, now))
                continue
            before, left[tie] = left[tie], texts.merge(tie, step)
            items |= {item.id: item for item in left[tie] if item.id not in {one.id for one in before}}
            touches.append(_touch(tie, was, now, left[tie]))
        if touches or items:
            found.entries.append(_entry(step, touches, items))
    last = line.steps[-1] if line.steps else line.start
    found.open = {item.id for items in left.values() for item in items} | set(judge.audited(last))
    found.open |= set(importing(last)) if importing else set()
    told = (item for entry in found.entries for item in entry.items)
    found.open |= {item.id for item in told if item.kind in (OVERRIDDEN, REMOVED)}
    return found


def seen_after(judge: Judge, found: Look, before: Seen | None) -> Seen:
    """What is to be kept of a look, with what was kept before it."""
    line = judge.line
    last = line.steps[-1] if line.steps else line.start
    kept = before.entries if before else []
    known = {entry.label for entry in found.entries}
    left = found.open
    if before and before.ours == judge.ours.digest:  # what was overridden is as it was
        told = {item.id: item for entry in kept for item in entry.items}
        left = left | {key for key in before.open if key in told and told[key].kind in (OVERRIDDEN, REMOVED)}
    entries = [*(entry for entry in kept if entry.label not in known), *found.entries]
    return Seen(last.label, last.spec, _day(last), judge.ours.digest, entries, sorted(left))


def mergeable(tie: Tie) -> bool:
    """Whether a unit is merged: a copy that is a function, a method or a class without methods."""
    return tie.unit.copied and bool(tie.unit.statements)


def first_unclean(judge: Judge, tie: Tie) -> tuple[Step, tuple[Item, ...]] | None:
    """The first step at which a copy does not merge by itself, and why; None when it always does."""
    for step, text in versions_of(judge, tie):
        wrong = tuple(item for item in judge.merged(tie, text, step) if item.blocking)
        if wrong:
            return step, wrong
    return None


def versions_of(judge: Judge, tie: Tie) -> Iterator[tuple[Step, str | None]]:
    """Upstream's texts of what a unit hangs on, each with the step that brought it, oldest first."""
    texts = _Texts(judge)
    for step in judge.line.steps:
        yield from ((step, now) for one, _, now in texts.changed(step) if one is tie)


class _Texts:
    """Upstream's text of what ours hang on, at the step that was gone to last."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._blobs = dict(judge.line.start.blobs)
        blobs = {
            blob for step in [judge.line.start, *judge.line.steps] for blob in step.blobs.values() if blob
        }
        self._sources = judge.line.texts(blobs)

    def changed(self, step: Step) -> Iterator[tuple[Tie, str | None, str | None]]:
        """Go to a step: the units whose text it changes, before and after."""
        before, self._blobs = self._blobs, self._blobs | step.blobs
        for tie in self._judge.ours.ties:
            if tie.path in step.blobs:
                was, now = (self._text(tie, blobs.get(tie.path)) for blobs in (before, self._blobs))
                if was != now:
                    yield tie, was, now

    def merge(self, tie: Tie, step: Step) -> tuple[Item, ...]:
        return self._judge.merged(tie, self._text(tie, self._blobs.get(tie.path)), step)

    def _text(self, tie: Tie, blob: str | None) -> str | None:
        return text_of(self._sources[blob], tie.name) if blob else None


def _first_found(
    steps: list[Step], judge: Callable[[Step, Problems | None], Problems], asked: Callable[[Item], bool]
) -> dict[str, Problems]:
    """What the last step has and the first one has not, at the step that brought it, found by halving.

    Between them ``judge`` is asked only for what is there at the last one.
    """
    found: dict[str, Problems] = {}

    def search(low: int, high: int, wanted: Problems) -> None:
        if not wanted:
            return
        if high == low + 1:
            found[steps[high].label] = wanted
            return
        middle = (low + high) // 2
        seen = judge(steps[middle], wanted)
        there = {key: seen[key] for key in wanted if key in seen}
        search(low, middle, there)
        search(middle, high, {key: item for key, item in wanted.items() if key not in there})

    last = len(steps) - 1
    wanted = {key: item for key, item in judge(steps[last], None).items() if asked(item)} if last else {}
    if wanted:
        before = judge(steps[0], wanted)
        search(0, last, {key: item for key, item in wanted.items() if key not in before})
    return found


def _entry(step: Step, touches: list[Touch], items: Problems) -> Entry:
    state = State.FLAGGED if items else State.GREEN
    if any(item.blocking for item in items.values()):
        state = State.BROKEN
    told = tuple(sorted(items.values(), key=lambda item: (not item.blocking, item.title)))
    return Entry(step.label, step.spec, _day(step), step.subject, state, tuple(touches), told)


def _touch(tie: Tie, was: str | None, now: str | None, items: tuple[Item, ...] | None = None) -> Touch:
    how = "changed" if was and now else "removed" if was else "added"
    if was and now and tie.unit.kind != "class" and signature_of(was) != signature_of(now):
        how = "signature changed"
    merge = ""
    if items is not None:
        kinds = {item.kind for item in items}
        merge = next(
            (kind for kind in ("gone", "conflict") if kind in kinds), "flagged" if kinds else "clean"
        )
    unit = tie.unit
    return Touch(unit.path, unit.name, unit.relation.value, f"{tie.path}:{tie.name}", how, merge)


def _changed(tie: Tie, was: str | None, now: str | None) -> Iterator[Item]:
    """What a change of overridden or patched code leaves to a person: nothing while its signature stays."""
    where, name = f"{tie.unit.path}: {tie.unit.name}", f"{tie.path}:{tie.name}"
    verb = "replaces" if tie.unit.relation.value == "patch" else "builds on"
    if was and now is None:
        title = f"{where}: upstream removed {name}, which it {verb}"
        yield Item(item_id(REMOVED, where, name), REMOVED, title, was, tie.unit.path, True)
    elif was and now and signature_of(was) != signature_of(now):
        title = f"{where}: the signature of {name}, which it {verb}, changed"
        detail = f"{signature_of(was)}\n{signature_of(now)}"
        yield Item(item_id(OVERRIDDEN, where, detail), OVERRIDDEN, title, detail, tie.unit.path)


def _day(step: Step) -> str:
    return step.date.isoformat() if step.date else ""
