"""Run the real NPU runners on this machine's CPU: unmodified torch_npu on emulated CANN.

It imports the runners, then runs the scenarios that the change needs, cheapest first: in eager mode, with
graph capture, and behind `vllm serve`. It stops at the first failure that the matched old pair does not have;
the next call repeats only what failed or did not run, and --keep-going shows later failures too. In a job an
edit of the files ends it (in the background when the edited files are waited for), and it reuses what an
earlier run of the job has shown; outcomes are kept. It compares tokens with a reference in float32, asserts
which classes ran, and lists changed lines that nothing executed. Scenarios that the change may also affect
are named as pending: --rest runs them. The label "emulated dry-run" means that Python and operator schemas
fit together on the paths taken; it says nothing about kernels or speed.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from time import sleep
from typing import Any

import msgspec

from npu_upgrade.audit.triples import open_project, open_triple
from npu_upgrade.audit.world import Triple
from npu_upgrade.commands.arguments import option, some_of
from npu_upgrade.commands.asking import ending
from npu_upgrade.commands.gate_job import GateJob, Trees, baseline, begin, named, pins, told
from npu_upgrade.commands.job_arguments import add_job_arguments, leading_on, named_job
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.store import DRY_RUN as LABEL
from npu_upgrade.gates.emulation import costs as step_costs
from npu_upgrade.gates.emulation.catalogue import SERVED, TIERS, chosen, scenarios, without_graphs
from npu_upgrade.gates.emulation.changed import Coverage, coverage, text_of
from npu_upgrade.gates.emulation.choice import Choice, choose
from npu_upgrade.gates.emulation.compare import LAG, Compared, as_text, by_costs, not_shown, tiers, verdict
from npu_upgrade.gates.emulation.dry_run import Before, Played, Wanted, held, passed
from npu_upgrade.gates.emulation.dry_run import run as run_triple
from npu_upgrade.gates.emulation.kept import exercised
from npu_upgrade.gates.emulation.known_defects import beside_runners, ended_beside, ends_beside
from npu_upgrade.gates.emulation.outcome import ABSENT, FAIL, INCONCLUSIVE, PASS, Outcome
from npu_upgrade.ground import locks
from npu_upgrade.ground.behind import give_way, go_behind, is_behind
from npu_upgrade.ground.command import Command, current
from npu_upgrade.ground.errors import BadInput, Blocked, UpgradeError
from npu_upgrade.ground.files import read_object, write_atomic, write_json
from npu_upgrade.ground.paths import WORKSPACE_DIR, cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.signals import terminated_as_interrupted
from npu_upgrade.ground.tables import cut, first_of
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.ask import failed_last
from npu_upgrade.job.job import NEIGHBOUR, Job
from npu_upgrade.job.plan_file import load_plan
from npu_upgrade.job.stages import find_workspace
from npu_upgrade.job.upgrade import not_run, walk

EXAMPLES = """
--rest --background
--ascend pypi:vllm-ascend==0.28.0rc1
--omni pypi:vllm-omni==0.24.0 --ascend pypi:vllm-ascend==0.24.0rc1
--omni dir:. --ascend git:../vllm-ascend@main --vllm git:../vllm@v0.31.0
--omni none --ascend dir:../vllm-ascend --tiers import,eager --scenarios plain
--list"""
_KEPT_RUNS = 10
_AUTO = ["needed"]
_MOST = 6
_KNOWN = 80  # characters of why the old pair fails too
_CAUSE = 200  # characters of how a known defect shows
_LOOK_AGAIN = 1  # seconds between two looks at the run that is waited for
_MOST_WAITED = 540  # seconds for the rest: who calls has a limit as well, often of ten minutes
_TOLD_AGAIN, _AT_LEAST = 15, 8  # looks between two lines of progress, of which every eighth has no news
_LEFT = re.compile(r"\d+ of \d+ runs left")
_PENDING = re.compile(r"; \d+ runs pending")
_COUNTED = ("pending", "shown_nothing_new", "pending_that_may_show_nothing", "hardware_or_review_only")
_PROGRESS = "progress.log"  # of a run in the background
_NOT_COMPARED = "(not compared with the old pair yet)"
_TOLD = "emulate.told"
_WANTED = "emulate.wanted"  # which files somebody waits for
_AT_WORK = "emulate.at-work"  # which files the run that has its turn is for, and whether to the end


@dataclass(frozen=True)
class _Asked(Trees):
    """What one run is to play, and where its files go."""

    choose: Callable[[], Choice]
    out: Path
    whole: bool
    target: str
    keep_going: bool
    rest: bool
    costs: bool
    failing: Mapping[str, str]

    @cached_property
    def choice(self) -> Choice:
        """Which runs it is about; who waits for another's need not know."""
        return self.choose()

    def check(self) -> None:
        """Raise where nobody is to be told of these files any more.

        An edit ends a run; one behind goes on, to find what fails besides, until somebody waits for the
        edited files.
        """
        if self.job is None:
            return
        if not is_behind():
            self.job.check()
        elif _wanted(self.job.job) not in ("", self.job.subject.tree):
            raise self.job.changed()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--ascend SPEC", "the vllm-ascend (default: the job's)")
    option(parser, "--vllm SPEC", "the vllm (default: the one paired with vllm-ascend)")
    option(parser, "--omni SPEC", "the vllm-omni (default: the job's); none: vllm-ascend runs alone")
    option(
        parser,
        "--baseline SPEC...",
        "the old pair to compare failures with: auto (default), none, or its specs, in any order",
        default=["auto"],
    )
    option(
        parser,
        "--tiers LIST",
        f"some of {','.join(TIERS)} (default: all)",
        type=some_of(TIERS),
        default=TIERS,
    )
    option(
        parser,
        "--scenarios NAME...",
        "needed (default: core, and the cheapest that execute the change), core, all, or names: --list",
        default=_AUTO,
    )
    option(parser, "--rest", "then all pending scenarios in the background; waits nine minutes at most")
    option(
        parser, "--costs", "also run the old pair, and compare what a step costs: operators, graphs, waits"
    )
    option(parser, "--keep-going", "do not stop at the first new failure")
    option(parser, "--background", "return at once; progress goes to a file")
    option(parser, "--out DIR", "keep logs and results in DIR", type=Path)
    option(parser, "--list", "only list the scenarios")
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS when nothing new fails; INCONCLUSIVE names what could not be judged; BLOCKED what is missing."""
    if args.list:
        return _listed()
    if args.background:
        return _in_background(_job(args), rest=args.rest)
    give_way()
    with told(args, "emulate"):
        if args.rest and not is_behind() and _as_by_default(args) and (job := _job(args)):
            with _rest_behind(job) as at_work:
                return _run(args, at_work)
        return _run(args)


def _as_by_default(args: argparse.Namespace) -> bool:
    """Whether the runs are those that the job asks for."""
    others = (args.ascend, args.vllm, args.omni, args.out, args.costs, args.keep_going)
    usual = (["auto"], _AUTO, list(TIERS))
    return not any(others) and (args.baseline, args.scenarios, list(args.tiers)) == usual


@contextlib.contextmanager
def _rest_behind(job: Job) -> Generator[Callable[[], bool]]:
    """The same command in the background, to be waited for; yields whether it is at work.

    Who waits may be ended before all ran: an agent's command has a limit, and what is at work then goes on.
    An interruption ends it.
    """
    process = go_behind(job.folder / _PROGRESS) if _is_idle(job) else None
    try:
        with terminated_as_interrupted():
            yield lambda: process is not None and process.poll() is None
    except KeyboardInterrupt:
        if process:
            process.terminate()
            process.wait()
        raise


def _is_idle(job: Job) -> bool:
    """Whether no run of the job is at work; its progress begins anew then, else another writes there."""
    with locks.alone_now(job.folder / "emulate") as alone:
        if alone:
            (job.folder / _PROGRESS).unlink(missing_ok=True)
    return alone


def _in_background(job: Job | None, *, rest: bool) -> Result:
    """The same command without the option, in a session of its own, behind all that somebody waits for."""
    log = job.folder / _PROGRESS if job else _folder(None) / _PROGRESS
    data: dict[str, Any] = {"log": str(log)}
    if job:
        following = leading_on(walk(job))
        if (
            not _is_idle(job)
            and rest
            and _noted(job.folder / _AT_WORK) == f"{load_plan(job).subject(job.root).tree} to the end"
        ):
            return Result(Verdict.PASS, f"these files run already; progress in {log}", data, next=following)
    process = go_behind(log)
    summary = f"runs in process {process.pid}; progress and result in {log}"
    data |= {"process": process.pid}
    return Result(Verdict.PASS, summary, data, next=following if job else None)


def _run(args: argparse.Namespace, at_work: Callable[[], bool] = lambda: False) -> Result:
    job = _job(args)
    asked = _asked(args, job)
    if job is None:
        return list(_Playing(asked).results())[-1]
    with _turn(asked, at_work) as found:
        if found:
            return found if found.next else ending(found, job)
        _ = asked.choice  # what keeps it from being made is no result of a run
        try:
            # What is needed is evidence of its own first: somebody may wait for it while the rest runs.
            record = partial(_recorded, asked)
            return [record(one) for one in _Playing(asked, record).results()][-1]
        except Blocked as error:
            data = {"label": LABEL, "error": error.what, "expected": error.expected, "try": error.try_}
            data["pending"] = [f"every run: BLOCKED, {error.what}"]
            return _recorded(asked, Result(Verdict.BLOCKED, error.what, data))


@contextlib.contextmanager
def _turn(asked: _Asked, at_work: Callable[[], bool]) -> Generator[Result | None]:
    """Wait until no other run of the job is at work, or until it has judged what this one is asked for.

    ``at_work`` tells that another one was begun, which may not have its turn yet. Yields what the other one
    found, where that answers for these files.
    """
    gate = asked.job
    assert gate is not None
    before = {record.id for record in gate.job.records()}
    looks, line = 0, ""
    while True:
        with locks.alone_now(gate.job.folder / "emulate") as alone:
            newest = _newest(gate)
            last = newest if newest and newest.tree == gate.subject.tree else None
            new = last is not None and last.id not in before
            if alone and not at_work():
                over = (
                    last is not None
                    and new
                    and (last.verdict == "FAIL" or (asked.rest and not not_run(last.data.get("pending", ()))))
                )
                if not over:
                    ends = " to the end" if asked.rest else ""
                    write_atomic(gate.job.folder / _AT_WORK, f"{gate.subject.tree}{ends}")
                    if _wanted(gate.job) != gate.subject.tree:  # who still waits for others says so again
                        (gate.job.folder / _WANTED).unlink(missing_ok=True)
                yield _found_by_another(gate) if over and asked.whole else None
                return
        gate.check()
        passed = last is not None and last.verdict == "PASS"
        failed = last is not None and last.verdict == "FAIL" and last.id != _last_told(gate.job)
        if asked.whole and (failed or (not asked.rest and (new or passed))):
            yield _found_by_another(gate)
            return
        if asked.rest and last and not is_behind() and looks * _LOOK_AGAIN >= _MOST_WAITED:
            so_far = _found_by_another(gate)
            left = _LEFT.findall(_newest_line(gate.job))
            still = f" ({left[-1]})" if left else ""
            # what was counted before the others ran is not what is to come
            so_far.summary = (
                f"the others are at work still{still}, the next command waits on; "
                f"what the change needs first: {_PENDING.sub('', so_far.summary)}"
            )
            for shown in (so_far.data, so_far.brief or {}):
                for name in _COUNTED:
                    shown.pop(name, None)
            so_far.next = Command.of(current())
            yield so_far
            return
        if _wanted(gate.job) != gate.subject.tree:
            gate.check_all()  # who waits for files of before ends no run of the present ones
            write_atomic(gate.job.folder / _WANTED, gate.subject.tree)
        if looks % _TOLD_AGAIN == 0:
            waited = f" ({looks * _LOOK_AGAIN} s)" if looks else ", until it has shown what the change needs"
            said, line = line, _newest_line(gate.job)
            if line != said or looks % (_AT_LEAST * _TOLD_AGAIN) == 0:
                say(f"waiting for another run of this job{waited}{line if line != said else ''}")
        looks += 1
        sleep(_LOOK_AGAIN)


def _newest(gate: GateJob) -> Record | None:
    """The last record of the gate, of whatever files."""
    return next((one for one in reversed(gate.job.records()) if one.gate == gate.gate), None)


def _last_told(job: Job) -> str:
    """The record of the last failure that somebody was told."""
    return _noted(job.folder / _TOLD)


def _wanted(job: Job) -> str:
    """The tree that somebody waits for, or waited."""
    return _noted(job.folder / _WANTED)


def _noted(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""


def _newest_line(job: Job) -> str:
    """What the run in the background said last, as far as there is one."""
    try:
        lines = (job.folder / _PROGRESS).read_text("utf-8", "replace").split("\n")
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.startswith("[") and "waiting for" not in line]
    return f"; it said: {said[-1]}" if said else ""


def _found_by_another(gate: GateJob) -> Result:
    """What another run of these files ended with, or has shown so far, as it was told."""
    _tell(gate)
    data = read_object(gate.job.folder / f"{gate.gate}.json")
    head = {name: data.pop(name, None) for name in ("verdict", "summary", "next")}
    brief = _brief(data, gate.subject.files)
    return Result(Verdict(head["verdict"]), str(head["summary"]), data, brief=brief)


def _place(run: Mapping[str, Any]) -> str:
    """Where in the code a run failed, its line aside, which an edit moves."""
    return re.sub(r":\d+\b", "", str(run.get("where") or ""))


def _recorded(asked: _Asked, result: Result) -> Result:
    """The result as evidence, when all was run that the change needs."""
    job = asked.job
    assert job is not None
    names = ("tiers", "baseline", "error", "pending", "ends_beside", "ran")
    evidence = {name: result.data[name] for name in names if name in result.data}
    runs = result.data.get("runs", [])
    failed = {_named(run): _place(run) for run in runs if run["state"] == FAIL}
    evidence |= {"failing": list(failed), "failed_at": failed}
    if "pending" in evidence:
        never = _never_shown(job, result)
        earlier = _newest(job)
        if earlier and earlier.tree != job.subject.tree:  # what waits may be shown by what the files are now
            never = [one for one in never if one.partition(": ")[0] not in evidence["pending"]]
        known = {one.partition(": ")[0] for one in never}
        pending = [one for one in dict.fromkeys(evidence["pending"]) if one not in known] + never
        result.data["pending"] = evidence["pending"] = pending
    result.summary = asked.target + result.summary
    if job.gate != NEIGHBOUR and not asked.whole:
        result.data |= {"job": job.job.id}
        result.summary += "; only named scenarios ran: this judges no change"
        result.next = job.again
        return result
    logs = {path.name: path for folder in ("rest", "new") for path in asked.out.glob(f"{folder}/*.log")}
    edited = is_behind() and job.is_edited
    finished = job.finish(result, pins(asked.triple), {}, evidence, sorted(logs.values()), edited=edited)
    if not is_behind():
        _tell(job)
    return finished


def _tell(gate: GateJob) -> None:
    """Note that somebody is told what the last record says: who waits for the rest then waits on."""
    if last := _newest(gate):
        write_atomic(gate.job.folder / _TOLD, last.id)


def _never_shown(job: GateJob, result: Result) -> list[str]:
    """What an earlier run of the job could not show, and this one did not run: no edit has shown it since."""
    ran = {_named(run) for run in result.data.get("runs", [])}
    earlier = _newest(job)
    said = [one for one in earlier.data.get("pending", []) if ": " in one] if earlier else []
    said = [one for one in said if not one.endswith(_NOT_COMPARED)]  # it was at work when that was told
    return [one for one in said if one.partition(":")[0] not in ran and not one.startswith("every run:")]


def _asked(args: argparse.Namespace, in_job: Job | None) -> _Asked:
    """The triples and scenarios, from the arguments or from the job."""
    if not args.ascend and args.omni:
        raise BadInput("--omni without --ascend", expected="the vllm-ascend it runs on", try_="--ascend SPEC")
    # before anything is read or begun, so that wrong names are said first
    with_omni = in_job.of_omni if in_job else args.omni not in (None, "none")
    if args.scenarios != _AUTO:
        args.scenarios = [name for given in args.scenarios for name in given.split(",") if name]
    by_name = None if args.scenarios == _AUTO else chosen(args.scenarios, args.tiers, omni=with_omni)
    whole = args.scenarios in (_AUTO, ["core"], ["all"]) and set(args.tiers) == set(TIERS)
    job = None
    if in_job:
        if args.ascend and not in_job.of_omni:
            raise BadInput(
                f"--ascend in a job of {in_job.project} itself",
                expected="the files of the job, on the vllm that --vllm names",
                try_="--omni none --ascend SPEC to run another vllm-ascend",
            )
        neighbour = args.ascend is not None and args.ascend != in_job.inputs.ascend.spec
        gate = NEIGHBOUR if neighbour else "emulate"
        noted = whole and not neighbour and not args.rest and not is_behind()
        job = begin(args, gate, LABEL, whole=noted).snapshot()
        triple = job.triple(args.ascend, args.vllm)
    else:
        omni = open_project(args.omni, "vllm-omni") if with_omni else None
        triple = open_triple(omni, args.ascend, args.vllm)
    old = _old(args.baseline, triple, job)
    if args.costs and old is None:
        raise BadInput(
            "--costs without an old pair", expected="one to compare with", try_="--baseline SPEC..."
        )
    records = in_job.records() if in_job else []
    failed = failed_last(records, "emulate")
    at = failed.data.get("failed_at") or {} if failed else {}
    failing = {name: at.get(name, "") for name in (failed.data["failing"] if failed else ())}

    def chosen_runs() -> Choice:
        choice = Choice((), ())
        if by_name is None or whole:
            files = job.plan.files if job else ()
            choice = choose(triple, old, files, args.tiers, failing, _passed(records))
            say(f"{len(choice.changed)} changed functions, {len(choice.unknown)} of them never seen running")
        if by_name is not None:
            left = [run for run in [*choice.needed, *choice.pending] if run not in by_name]
            choice = replace(choice, needed=by_name, pending=left)
        return choice

    on = f"on {named(replace(triple, omni=None))}"
    target = f"{on}, which --vllm named: " if job and args.vllm else ""
    if job and job.gate == NEIGHBOUR:
        target = f"{on}, a neighbour of the target: "
    return _Asked(
        triple,
        old,
        job,
        chosen_runs,
        _folder(args.out),
        whole,
        target,
        keep_going=args.keep_going,
        rest=args.rest,
        costs=args.costs,
        failing=failing,
    )


def _passed(records: Sequence[Record]) -> set[str]:
    """The runs that passed in a job, whatever its files were then."""
    ran = [run for one in records if one.gate == "emulate" for run in one.data.get("ran", ())]
    return {_named(run) for run in ran if run["state"] == PASS}


def _old(specs: list[str], triple: Triple, job: GateJob | None) -> Triple | None:
    """The old pair; one that nobody named and that cannot be had is no reason not to run the new one."""
    try:
        return baseline(specs, triple, job.job if job else None)
    except UpgradeError as error:
        if specs != ["auto"]:
            raise
        say(f"note: no old pair to compare failures with: {error.what}")
    return None


def _job(args: argparse.Namespace) -> Job | None:
    """The job at hand; None where another vllm-omni is asked for, or a vllm-ascend outside of any job."""
    if args.omni:
        return None
    here = find_workspace(Path.cwd()) / WORKSPACE_DIR / "current"
    if args.ascend and not (args.job or args.workspace or here.is_file()):
        return None
    return named_job(args)


def _folder(out: Path | None) -> Path:
    """An empty folder for logs and results: the user's, or one in the cache, where the last few are kept."""
    if out:
        if out.exists() and any(out.iterdir()):
            raise BadInput(
                f"--out {out} is not empty", expected="a new or an empty folder", try_="another name"
            )
        out.mkdir(parents=True, exist_ok=True)
        return out.absolute()
    runs = cache_root() / "emulation" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for old in sorted(runs.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=runs)).absolute()


class _Playing:
    """The runs of one command, and what the old pair does where the new one fails."""

    def __init__(self, asked: _Asked, note: Callable[[Result], object] = lambda found: None) -> None:
        """``note`` is given what is found so far, at each new failure that others follow."""
        _ = asked.problems  # said before the work begins
        self._asked, self._note = asked, note
        self._text_of = partial(text_of, asked.triple)
        self._before = Before(asked.old, asked.out / "old", asked.check) if asked.old else None
        choice = asked.choice
        self._by_name = {(tier, one.name): one for tier, one in (*choice.needed, *choice.pending)}
        self._olds: dict[tuple[str, str], Outcome | None] = {}
        self._unsteady: dict[tuple[str, str], Outcome] = {}
        self._uncompared: set[tuple[str, str]] = set()

    def results(self) -> Iterator[Result]:
        """What the runs show that are needed; then, where it is asked for, with all the others."""
        asked = self._asked
        say(f"the new pair: {named(asked.triple)}")
        needed, pending = asked.choice.needed, asked.choice.pending
        if asked.job and pending:  # what was shown for these files already is shown
            shown = held(asked.triple, pending)
            needed = [*needed, *(run for run in pending if (run[0], run[1].name) in shown)]
            pending = [run for run in pending if run not in needed]
        played = self._run(needed, "new", to_its_end=asked.keep_going)
        found = self._judged(played, pending)
        yield found
        # behind all that somebody waits for, a failure is no reason to keep the others unknown
        goes_on = found.verdict != Verdict.FAIL or asked.keep_going or is_behind()
        left = [(tier, one) for tier, one in (*needed, *pending) if (tier, one.name) not in played.ran]
        if asked.rest and left and goes_on and played.outcomes[0].state == PASS:
            yield self._judged(played.with_more(self._run(left, "rest", to_its_end=True, after=played)), ())

    def _run(self, wanted: Wanted, folder: str, *, to_its_end: bool, after: Played | None = None) -> Played:
        """Run these; the rest, ``after`` what is needed, tells of each new failure while others go on.

        A failure of the rest with which the old pair would have to run is compared when all others ended, and
        so is a request that nothing answered in time: the machine may be slow, and the pipeline may wait.
        What failed before runs to its end, but for servers, and so do the quick ones, so that what is left is
        told at once.
        """
        asked = self._asked
        told: set[tuple[str, str]] = set()
        later: list[Outcome] = []
        new: list[Outcome] = []

        def go_on(outcome: Outcome) -> bool:
            if after and self._would_run_old(outcome):
                later.append(outcome)
                self._uncompared.add((outcome.tier, outcome.scenario))
                return True
            again.discard((outcome.tier, outcome.scenario))
            if self._fails_newly(outcome):
                new.append(outcome)
            return not new or to_its_end or bool(again)

        def failed(so_far: Played) -> None:
            outcomes = [ran.outcome for ran in so_far.ran.values()]
            found = {(one.tier, one.scenario) for one in outcomes if self._compared(one).state == FAIL} - told
            if found and after:
                told.update(found)
                left = [one for one in wanted if (one[0], one[1].name) not in so_far.ran]
                self._note(self._judged(after.with_more(so_far), left))

        def reuse(one: Outcome) -> bool:
            # who names a run whose answers come and go wants another one
            known = passed(one) and (asked.whole or not one.failed_once)
            known = known or self._lags(one) or self._ends_beside(one)
            return known or bool(after and self._is_late_in_both(one))

        told_at_once = [
            one
            for one in wanted
            if (f"{one[0]} {one[1].name}" in asked.failing and one[0] not in SERVED)
            or one in asked.choice.quick
        ]
        kept = held(asked.triple, told_at_once, reuse)
        again = {(tier, one.name) for tier, one in told_at_once} - kept.keys()
        played = run_triple(
            asked.triple,
            wanted,
            asked.out / folder,
            reuse=reuse,
            go_on=go_on,
            failed=failed,
            check=asked.check,
        )
        for place, outcome in enumerate(later, 1):
            self._uncompared.discard((outcome.tier, outcome.scenario))
            if outcome.is_late and (alone := self._alone(outcome, played)):
                played = alone.with_more(played)
                outcome = alone.outcomes[-1]
            if outcome.state == PASS:
                continue
            if outcome.state == INCONCLUSIVE:
                self._ask_old(outcome)
            elif self._fails_newly(outcome) and after and later[place:]:
                self._note(self._judged(after.with_more(played), ()))
        return played

    def _alone(self, outcome: Outcome, beside: Played) -> Played | None:
        """A run that was late once more, where others ran beside it: they may have been why."""
        key = (outcome.tier, outcome.scenario)
        if key not in self._by_name or not beside.ran.keys() - {*beside.reused, ("import", "import"), key}:
            return None
        say(f"{outcome.name} was late beside the others: trying again alone")
        return self._once_more(key, "alone")

    def _once_more(self, key: tuple[str, str], folder: str) -> Played:
        """One run once more, by itself."""
        wanted, out = [(key[0], self._by_name[key])], self._asked.out / folder / "-".join(key)
        return run_triple(self._asked.triple, wanted, out, check=self._asked.check)

    def _would_run_old(self, outcome: Outcome) -> bool:
        """Whether nothing tells what the old pair does where a run fails or is late, but running it."""
        ran = self._by_name.get((outcome.tier, outcome.scenario))
        if not (outcome.state == FAIL or outcome.is_late) or not self._before or ran is None:
            return False
        return self._before.known(outcome.tier, ran) is None

    def _ask_old(self, outcome: Outcome) -> None:
        """Note what the old pair does where a run of the new one shows nothing."""
        key = (outcome.tier, outcome.scenario)
        if self._before:
            old = self._olds[key] = self._before.outcome(outcome.tier, self._by_name[key])
            say(f"note: {outcome.name}: the old pair is {old.state}{old.why and f': {old.why}'}")

    def _compared(self, outcome: Outcome, *, reused: bool = False) -> Compared:
        """The outcome with the old pair's; what may be that one's failure, too, decides nothing before."""
        key = (outcome.tier, outcome.scenario)
        if key in self._uncompared and outcome.state == FAIL:
            why = f"{outcome.why} {_NOT_COMPARED}"
            outcome = replace(outcome, state=INCONCLUSIVE, why=why)
        return Compared(self._unsteady.get(key, outcome), self._olds.get(key), reused=reused)

    def _lags(self, outcome: Outcome) -> bool:
        """Whether a failure is known to be the old pair's too: to see it again tells nothing."""
        key = (outcome.tier, outcome.scenario)
        if outcome.state != FAIL or not self._before or key not in self._by_name:
            return False
        old = self._before.known(outcome.tier, self._by_name[key])
        if Compared(outcome, old).state == FAIL:
            return False
        self._olds[key] = old
        return True

    def _ends_beside(self, outcome: Outcome) -> bool:
        """Whether it failed by a defect beside the NPU side, which the same files show each time."""
        known = ended_beside(outcome.tier, outcome.scenario, outcome.why, self._text_of)
        return known and self._is_beside(outcome)

    def _is_beside(self, outcome: Outcome) -> bool:
        """Whether it failed by a known defect beside the NPU side, which is then noted with it."""
        key = (outcome.tier, outcome.scenario)
        beside = beside_runners(*key, outcome.why, self._text_of) if outcome.state == FAIL else ""
        if beside:
            why = f"{cut(outcome.why, _CAUSE)}; {beside}"
            self._unsteady[key] = replace(outcome, state=INCONCLUSIVE, why=why)
        return bool(beside)

    def _is_late_in_both(self, outcome: Outcome) -> bool:
        """Whether neither pair ended in time before: behind what is waited for, it is not tried once more."""
        known = self._by_name.get((outcome.tier, outcome.scenario))
        if not outcome.is_late or not self._before or known is None:
            return False
        old = self._before.known(outcome.tier, known, late=True)
        if old is None or not old.is_late:
            return False
        self._olds[outcome.tier, outcome.scenario] = old
        return True

    def _fails_newly(self, outcome: Outcome) -> bool:
        """Whether a failure is not the old pair's too, nor one of a server's answers that come and go."""
        if outcome.state != FAIL:
            return False
        newly, key = self._is_new(outcome), (outcome.tier, outcome.scenario)
        old = self._olds.get(key)
        if newly:
            if old is None:
                say(f"note: {outcome.name} counts as new: the old pair was not run")
            else:
                does = f"fails otherwise: {old.why}" if old.state == FAIL else f"is {old.state} there"
                say(f"note: {outcome.name} fails newly: the old pair {does}")
        elif key in self._unsteady:
            say(f"note: {outcome.name}: {self._unsteady[key].why}")
        elif old:
            say(f"note: the old pair fails alike in {old.name}: this lags, and is no reason to stop")
        return newly

    def _is_new(self, outcome: Outcome) -> bool:
        """The same, with what the old pair does and what another run says in ``_olds`` and ``_unsteady``."""
        key = (outcome.tier, outcome.scenario)
        before = self._before
        if self._is_beside(outcome):
            return False
        ran = self._by_name.get(key)
        old = self._olds[key] = before.outcome(outcome.tier, ran) if before else None
        if Compared(outcome, old).state != FAIL:
            return False
        plainer = without_graphs(outcome.tier, ran) if ran else None
        if before and old and old.state == FAIL and plainer:
            # it ended earlier with graphs: without them it may have come as far
            further = before.outcome(*plainer)
            if Compared(outcome, further).state != FAIL:
                self._olds[key] = further
                return False
        if outcome.where or outcome.stands_still or outcome.tier not in SERVED or key not in self._by_name:
            return True
        say(f"{outcome.name} gave an unexpected answer: trying again")
        other = self._once_more(key, "again").outcomes[-1]
        if other.state != PASS and other.why == outcome.why:
            return True
        then = "passed" if other.state == PASS else f"said: {other.why}"
        why = f"its answers differ from run to run ({outcome.why}; the next run {then})"
        self._unsteady[key] = replace(outcome, state=INCONCLUSIVE, why=why)
        return False

    def _judged(self, played: Played, pending: Wanted) -> Result:
        asked = self._asked
        outcomes, costs = _with_costs(asked, played, self._before, self._by_name, self._olds)
        together = [self._compared(one, reused=(one.tier, one.scenario) in played.reused) for one in outcomes]
        # without an old pair everything would count as changed
        compares = asked.old is not None and played.outcomes[0].state == PASS
        covered = coverage(asked.triple, asked.old, played.executed) if compares else []
        return _result(asked, played, together, covered, costs, pending)


def _with_costs(
    asked: _Asked,
    played: Played,
    before: Before | None,
    by_name: Mapping[tuple[str, str], Any],
    olds: dict[tuple[str, str], Outcome | None],
) -> tuple[list[Outcome], dict[str, list[dict[str, str]]]]:
    """The outcomes, those FAIL whose decode steps cost more by the downstream's own doing.

    And what its steps cost by the name of a run; nothing where nobody asked.
    """
    found, rows, whole = [], {}, {}
    for one in played.outcomes:
        key = (one.tier, one.scenario)
        if not (asked.costs and before and one.state == PASS and key in by_name):
            found.append(one)
            continue
        old = olds[key] = before.outcome(one.tier, by_name[key], here=True)
        rows[one.name] = step_costs.as_rows(old.costs, one.costs)
        whole[one.name] = {"old": old.costs, "new": one.costs}
        found.append(by_costs(old, one, asked.triple.downstream))
    if whole:
        write_json(asked.out / "costs.json", msgspec.to_builtins(whole))
    return found, rows


def _result(
    asked: _Asked,
    played: Played,
    together: Sequence[Compared],
    covered: Sequence[Coverage],
    costs: Mapping[str, list[dict[str, str]]],
    not_yet: Wanted,
) -> Result:
    decided = verdict(together)
    by_tier = tiers(together)
    own = asked.job.subject.files if asked.job else {}
    covered = sorted(covered, key=lambda one: one.path not in own)
    counted = [one for one in covered if one.path in own] or covered
    known = {(one.tier, one.scenario) for one in played.outcomes}
    left = [f"{tier} {one.name}" for tier, one in asked.choice.needed if (tier, one.name) not in known]
    pending = left + [f"{tier} {one.name}" for tier, one in not_yet]
    ends = {
        f"{tier} {one.name}": said
        for tier, one in (*asked.choice.needed, *not_yet)
        if (tier, one.name) not in known
        and (said := ends_beside(tier, one.name, partial(text_of, asked.triple)))
    }
    silent = not_shown(together)
    data: dict[str, Any] = asked.data | {
        "label": LABEL,
        "verified_on_npu": False,
        "tiers": by_tier,
        "runs": [
            one.new.as_json()
            | {"state": one.state, "why": one.why, "old": one.old.as_json() if one.old else None}
            | ({"known": known} if (known := one.known) else {})
            | ({"passed_in": passed} if (passed := one.passed_in) else {})
            for one in together
        ],
        "pending": [*pending, *silent],
        "ends_beside": ends,
        "ran": [msgspec.to_builtins(exercised(one)) for one in played.ran.values()],
        "reused": sorted(" ".join(dict.fromkeys(key)) for key in played.reused),
        "changed_and_never_seen": sorted(asked.choice.unknown),
        "hardware_or_review_only": [one.as_json() for one in covered if one.unexecuted],
        "costs": costs,
        "logs": str(asked.out),
    }
    absent = Counter(one.new.tier for one in together if one.state == ABSENT)
    said = ", ".join(
        f"{tier} {state}" + (f" ({absent[tier]} ABSENT)" if absent[tier] and state != ABSENT else "")
        for tier, state in by_tier.items()
    )
    missed, total = sum(len(one.unexecuted) for one in counted), sum(one.changed for one in counted)
    summary = f"{LABEL}: {said}"
    if total:
        summary += f"; {total - missed} of {total} changed statements executed"
    if pending:
        summary += f"; {len(pending)} runs pending"
    lagging = {one.new.name for one in together if one.state == LAG}
    names = [one.partition(":")[0] for one in silent]
    for said, these in (
        ("FAIL as on the old pair (LAG)", [name for name in names if name in lagging]),
        ("not shown", [name for name in names if name not in lagging]),
    ):
        summary += f"; {said}: {', '.join(these)}" if these else ""
    if unsteady := [one.new.name for one in together if one.new.failed_once]:
        summary += f"; passed, and failed in another run of the same files: {', '.join(unsteady)}"
    if asked.old is None:
        summary += "; no old pair to compare with"
    text = asked.head(f"{LABEL} of {named(asked.triple)}\n") + as_text(together, covered)
    text += "".join(f"\n\n{step_costs.as_text(name, rows)}" for name, rows in costs.items())
    if left:
        text += f"\n\nnot started: {', '.join(left)}; the next call repeats what failed, and runs these"
    if pending:
        text += f"\n\npending ({_rest(asked).short}): {', '.join(pending)}"
    if silent and asked.job:
        text += "\n\nnot shown; the commit will name each as pending:\n" + "\n".join(silent)
    return Result(decided, summary, data, text, brief=_brief(data, own))


def _rest(asked: _Asked) -> Command:
    """The command that runs what is pending."""
    return (asked.job.again if asked.job else Command.of(current())).adding("--rest", "--background")


def _brief(data: dict[str, Any], own: Collection[str]) -> dict[str, Any]:
    """What is decided on: what failed or could not be judged, and what is still to run.

    ``own`` are the files of the job: what else changed since the old pair is in the whole result.
    """
    names = ("baseline", "problems", "pending", "changed_and_never_seen", "hardware_or_review_only")
    passed: dict[str, list[str]] = {}
    for run in data["runs"]:
        if run["state"] == PASS:
            passed.setdefault(run["tier"], []).append(run["scenario"])
    odd = [run for run in data["runs"] if run["state"] != PASS or run.get("failed_once")]
    known = [run for run in odd if run["state"] in (LAG, ABSENT)]
    odd = [run for run in odd if run not in known]
    odd.sort(key=lambda run: run["state"] != FAIL)
    shown = ("tier", "scenario", "state", "why", "known", "passed_in", "failed_once", "where", "log")
    found = [{name: run[name] for name in shown if run.get(name)} for run in odd[:_MOST]]
    left = not_run(data["pending"])
    counted: dict[str, Any] = {name: len(data[name]) for name in names[2:]}
    if passed:  # whole applications by name
        counted["passed"] = ", ".join(
            f"{tier} {len(names)}" + (f" ({', '.join(names)})" if tier == "pipelines" else "")
            for tier, names in passed.items()
        )
    counted |= {"pending": len(left), "shown_nothing_new": len(data["pending"]) - len(left)}
    unexecuted = [one["path"] for one in data["hardware_or_review_only"] if not one["executed"]]
    if never := [path for path in unexecuted if path in own or not own]:
        counted["changed_and_nothing_of_it_executed"] = never[:_MOST]
    if odd[_MOST:]:
        also = [f"{_named(run)}: {run['state']}" for run in odd[_MOST:]]
        counted["also_not_passed"] = first_of(also, _MOST)
    # nothing to correct: the old pair has it too, or there is nothing to run
    if lines := [_as_before(run) for run in known if run["state"] == LAG]:
        counted["as_before"] = first_of(lines, _MOST)
    if data["ends_beside"]:
        counted["pending_that_may_show_nothing"] = data["ends_beside"]
    absent: dict[str, list[str]] = {}
    for run in known:
        if run["state"] == ABSENT:
            absent.setdefault(cut(run["why"], _KNOWN), []).append(_named(run))
    if absent:
        counted["absent"] = [f"{', '.join(these)}: {why}" for why, these in absent.items()]
    steps = {run: [_steps(row) for row in rows] for run, rows in data["costs"].items()}
    said = {name: data[name] for name in names[:2] if data[name]}
    return said | counted | {"not_passed": found} | ({"costs": steps} if steps else {})


def _as_before(run: Mapping[str, Any]) -> str:
    """A failure that the old pair has too, what it comes of, and which releases pass it, in a line."""
    passed = run.get("passed_in", "")
    parts = (cut(run["why"], _KNOWN), run.get("known", ""), passed and f"passes in {passed}")
    return f"{_named(run)}: {'; '.join(filter(None, parts))}"


def _named(run: Mapping[str, Any]) -> str:
    return f"{run['tier']} {run['scenario']}"


def _steps(row: Mapping[str, str]) -> str:
    """One kind of step in a line."""
    parts = (f"{name} {row[name]}" for name in ("operators", "replays", "waits"))
    return f"{row['stage']}, {row['step']}: {', '.join(parts)}"


def _listed() -> Result:
    """What each shows is for people; an agent needs the names, and the result of the last run stays."""
    marked = [(f"{one.name}{'*' if one.core else ''}", ",".join(one.tiers), one.shows) for one in scenarios()]
    text = "\n".join(f"{name:<24}{tiers:<14}{shows}" for name, tiers, shows in marked)
    names = {name: tiers for name, tiers, _ in marked}
    return Result(Verdict.PASS, f"{len(names)} scenarios, * in core", {"scenarios": names}, text)
