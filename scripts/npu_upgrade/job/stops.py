"""When a person is needed: rounds without progress, changes without effect, a changed architecture.

The counts are read from the evidence, which nobody edits; ``next --continue`` starts them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile

from npu_upgrade.code.conflict_text import MarkedConflict
from npu_upgrade.code.conflict_text import answers as answered
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.statements import split_statements, statements_of
from npu_upgrade.evidence.chain import Record
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.job.ask import FINDING, PORT
from npu_upgrade.job.conflicts import conflicts_in
from npu_upgrade.job.job import STAGES, Job
from npu_upgrade.job.journal import Answer, Continued, Journal
from npu_upgrade.job.plan_file import Plan
from npu_upgrade.job.stages import Stop

PLAN, PAIR = "plan", "pair"
ROUNDS = 4
"""So many failing runs of a gate over changed files, and none with fewer findings than the best before."""
UNCHANGED = 2
"""So many failing runs over different files with the same findings, one of them said to be corrected."""
UNSAID = 3
"""So many of them where nobody said so: the files may have been edited for another reason."""
DISPUTED = 0.5
"""From this share of upstream's statements in conflict on, a method is another method."""
BROKEN_OFF = 3
"""So many runs of a step that never ended."""
FEWEST = 12
"""Of a method with fewer statements a share says nothing."""


def find_stop(job: Job, plan: Plan | None, records: Sequence[Record]) -> Stop | None:
    """The first rule that says stop, None when none does or a person said to go on."""
    found = _pair(plan) or _architecture(job, plan) or _cannot_run(job, plan)
    if found:
        return None if any(entry.id == found.key for entry in job.journal.of(Continued)) else found
    gates = dict.fromkeys(record.gate for record in records if record.verdict == "FAIL")
    return next((stop for gate in gates if (stop := _of_gate(gate, records, job.journal))), None)


def _pair(plan: Plan | None) -> Stop | None:
    """What cannot be loaded together: which version is to change comes before all other questions."""
    open_ = plan.items_in("open") if plan else ()
    found = next((item for item in open_ if item["kind"] == PAIR), None)
    if found is None:
        return None
    lines = [line for line in found["detail"].split("\n") if not line.startswith("  ")]
    return Stop(PAIR, found["id"], f"{found['title']}: which one is to change?", lines)


def _architecture(job: Job, plan: Plan | None) -> Stop | None:
    """The target's runner is gone or moved, or most of a method is in dispute."""
    merged = job.attempt("merge").ended
    moved = merged and merged.outputs.get("architecture")
    if moved:
        return Stop("architecture", "architecture-moved", str(moved), ["merge: refused"])
    for path in plan.files if plan else ():
        merged = job.folder / "merged" / path
        if merged.exists():
            for method, share, count in disputed(merged.read_text("utf-8"), path):
                if share > DISPUTED and count >= FEWEST:
                    why = f"{share:.0%} of upstream's {count} statements of {method} are in conflict"
                    return Stop("architecture", f"architecture-{method}", why)
    return None


def _cannot_run(job: Job, plan: Plan | None) -> Stop | None:
    """A gate that ended without a verdict, for a reason that running it again does not change.

    Where files of the plan were edited since, it may: a file that had conflict markers has none now.
    """
    for name in STAGES:
        attempt = job.attempt(name)
        begun, ended = attempt.begun, attempt.ended
        if begun and attempt.tries >= BROKEN_OFF and attempt.interrupted:
            why = f"{name} was broken off {attempt.tries} times (memory? a time limit?), last at {begun.at}"
            return Stop(
                "cannot run", f"broken-off-{name}-{begun.at}", why, [f"{begun.at} {name}: never ended"]
            )
        error = ended.outputs.get("error") if ended and not attempt.tries else None
        if ended and error and name not in job.skipped and not _edited_since(ended.at, job, plan):
            tried = [f"{ended.at} {name}: {error}", f"it says to try: {ended.outputs.get('try')}"]
            why = f"gate {name} cannot judge: {error}"
            return Stop("cannot run", f"cannot-run-{name}-{ended.at}", why, tried)
    return None


def disputed(text: str, path: str) -> list[tuple[str, float, int]]:
    """For each method with conflicts: the share of upstream's statements in them, and how many it has."""
    by_method: dict[str, int] = {}
    for conflict in conflicts_in(text, path, {}):
        by_method[conflict.method] = by_method.get(conflict.method, 0) + _count(conflict.marked)
    if not by_method:
        return []
    try:
        units = parse_module(answered(text)[1].text).units
        whole = {name: len(split_statements(units[name].source)) for name in by_method if name in units}
    except (SyntaxError, BadInput):
        return []
    return [(name, min(1.0, by_method[name] / max(1, count)), count) for name, count in whole.items()]


def _count(conflict: MarkedConflict) -> int:
    try:
        return len(statements_of(conflict.theirs))
    except SyntaxError:
        return conflict.theirs.count("\n") + 1


def _edited_since(at: str, job: Job, plan: Plan | None) -> bool:
    """Whether a file of the plan was written more than a second after that time."""
    files = [job.root / path for path in (plan.files if plan else ())]
    last = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
    return last > datetime.fromisoformat(at).timestamp() + 1


def _of_gate(gate: str, records: Sequence[Record], journal: Journal) -> Stop | None:
    went_on = max((entry.at for entry in journal.of(Continued)), default="")
    # an answer to what another gate asked runs this one again, too: that is no try to pass it
    own = {record.id for record in records if record.gate == gate}
    answers = [one for one in journal.of(Answer) if one.stage in (FINDING, PORT)]
    runs: list[Record] = []
    said: dict[str, bool] = {}  # run -> whether something was said to be corrected before it
    before = ""
    for record in records:
        if record.gate != gate or record.started <= went_on:
            continue
        since, before = before, record.started
        between = [one.evidence in own for one in answers if since <= one.at <= record.started]
        said[record.id] = any(one.how != "waive" for one in answers if since <= one.at <= record.started)
        if record.verdict == "FAIL" and between and not any(between):
            continue
        if record.verdict == "PASS":
            runs = []
        elif record.verdict == "FAIL" and findings(record) and (not runs or runs[-1].tree != record.tree):
            runs.append(record)
    stuck = _without_progress(runs)
    if stuck and set(findings(stuck[-1])) <= {one.id for one in answers if one.evidence == stuck[-1].id}:
        return None  # all is answered since: the next run tells
    alike = len(list(takewhile(lambda run: findings(run) == findings(stuck[-1]), reversed(stuck))))
    tries = UNCHANGED if any(said[run.id] for run in stuck[len(stuck) - alike + 1 :]) else UNSAID
    if alike >= tries:
        why = f"gate {gate} fails with the same findings after the files were changed: {stuck[-1].summary}"
        return Stop("unchanged", f"unchanged-{gate}", why, _tried(stuck, journal))
    if len(stuck) > ROUNDS:
        why = f"gate {gate} failed {len(stuck)} times with nothing gained: {stuck[-1].summary}"
        return Stop("rounds", f"rounds-{gate}", why, _tried(stuck, journal))
    return None


def _without_progress(runs: list[Record]) -> list[Record]:
    """The runs since the number of findings was last lower than ever before, that one included."""
    best, start = None, 0
    for place, run in enumerate(runs):
        size = len(findings(run))
        if best is None or size < best:
            best, start = size, place
    return runs[start:]


def findings(record: Record) -> list[str]:
    """What a failing run named, as its evidence holds it; the summary where it holds nothing.

    What a plan asks about waits for an answer, which no edit gives: of a plan, what is wrong with the files.
    """
    data = record.data
    if record.gate == PLAN and "problems" in data:
        return sorted(f"{one['path']}: {one['problem']}" for one in data["problems"])
    named = data.get("failing")
    if isinstance(named, list) and named:
        return sorted(map(str, named))
    return [record.summary]


def _tried(runs: list[Record], journal: Journal) -> list[str]:
    """The failing runs and the answers between them, oldest first."""
    start = runs[0].started
    lines = [(run.started, 0, f"{run.started} {run.gate} FAIL: {run.summary}") for run in runs]
    for entry in journal.of(Answer):
        if entry.at >= start:
            note = f": {entry.note}" if entry.note else ""
            lines.append((entry.at, 1, f"{entry.at} answered {entry.id} ({entry.how}){note}"))
    return [line for _, _, line in sorted(lines)][-20:]
