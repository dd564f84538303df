"""The log of a failed run, brought home to what came upstream, also since the last look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from npu_upgrade.audit.world import ASCEND
from npu_upgrade.commands.job_arguments import merging
from npu_upgrade.gates.serving.root_cause import explain_file
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.watch.home import Error, Home, by_change, by_mention, by_merge, naming
from npu_upgrade.watch.judge import Judge
from npu_upgrade.watch.line import open_line, source_of
from npu_upgrade.watch.look import look
from npu_upgrade.watch.open import Asked, open_asked, open_judge
from npu_upgrade.watch.records import Entry, Seen, Watched


def explained(log: Path, state: Watched, given: tuple[str, Sequence[str]] | None) -> Result:
    """The root cause of a log, what upstream brought it, and the edit; nothing is written.

    FAIL where a step is to blame; INCONCLUSIVE where one only may be, or none is found. ``given`` are the
    downstream and its upstreams; None: all that was watched here.
    """
    first = explain_file(log).first
    if first is None:
        return Result(Verdict.INCONCLUSIVE, f"{log} names no error", {"log": str(log)})
    error, best, follow = Error.of(first), None, None
    looked = [_looked(error, *one) for one in _sources(state, given)]
    for entries, judge, asked in looked:
        home = by_mention(error, entries)
        shown = _shown(error, judge) if judge else None
        if home and shown and shown.label == home.label and shown.sure:
            home = replace(home, edit=shown.edit)  # code, in place of what there is to do
        home = home or shown
        if home and (best is None or home.sure > best.sure):
            best, follow = home, _next(asked)
    data: dict[str, Any] = {"log": str(log), "line": first.line, "cause": first.text}
    text = "\n".join((first.text, *first.tail))
    if best is None:
        why = "no upstream mention, merge or change shows it" if looked else "nothing was watched here"
        summary = f"{first.text[:160]}: {why}"
        return Result(Verdict.INCONCLUSIVE, summary, data, text, upgrade("explain", str(log)))
    data |= _as_json(best)
    verb, verdict = ("brought by", Verdict.FAIL) if best.sure else ("perhaps by", Verdict.INCONCLUSIVE)
    summary = f"{first.text[:120]}: {verb} {best.label}, {best.subject[:80]}"
    return Result(verdict, summary, data, f"{best.shown_by}\n{best.edit}", follow)


def _shown(error: Error, judge: Judge) -> Home | None:
    """What no mention names, shown by a merge or by a change of upstream's, rather by what is sure."""
    merged = by_merge(error, judge)
    if merged and merged.sure:
        return merged
    changed = by_change(error, judge)
    return changed if changed and changed.sure else merged or changed


def _as_json(home: Home) -> dict[str, Any]:
    step = {"label": home.label, "spec": home.spec, "date": home.date, "subject": home.subject}
    found: dict[str, Any] = {"brought_by": step, "item": home.shown_by, "edit": home.edit}
    return found | ({"others": home.others} if home.others else {})


def _sources(
    state: Watched, given: tuple[str, Sequence[str]] | None
) -> Iterator[tuple[Seen | None, Sequence[str]]]:
    if given:
        downstream, upstreams = given
        yield state.upstreams.get(source_of(upstreams[0])), (downstream, *upstreams)
    else:
        yield from ((seen, seen.asked) for seen in state.upstreams.values())


def _looked(
    error: Error, seen: Seen | None, specs: Sequence[str]
) -> tuple[list[Entry], Judge | None, Asked | None]:
    """The mentions with those since the last look, and the judge of all steps since ours were copied.

    What cannot be opened here any more leaves the mentions that are kept.
    """
    entries = list(seen.entries) if seen else []
    try:
        asked = open_asked(specs[0], specs[1:]) if specs else None
        judge = _judge(asked, seen) if asked else None
    except UpgradeError as missing:
        if seen is None:
            raise
        say(f"note: only what earlier looks found: {missing.what}")
        asked = judge = None
    if asked and judge:
        whole = judge.line
        if seen:
            judge.line = open_line(asked.spec, asked.package, seen.point, judge.ours.paths)
        say(f"looking at {len(judge.line.steps)} steps after {judge.line.start.label}")
        entries += look(judge, asked=lambda item: naming(error, item) is not None).entries
        judge.line = whole
    return entries, judge, asked


def _judge(asked: Asked, seen: Seen | None) -> Judge:
    """From what ours were copied from on; without copies from what was seen last."""
    try:
        return open_judge(asked, None)
    except BadInput:
        if seen is None:
            raise
        return open_judge(asked, seen.point)


def _next(asked: Asked | None) -> Command | None:
    if asked is None or asked.package != ASCEND:
        return None
    return merging(asked.downstream.requested, asked.newest.spec)
