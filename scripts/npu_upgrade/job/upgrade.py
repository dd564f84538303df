"""The stages of an upgrade, their states, and what each needs next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.evidence import chain
from npu_upgrade.evidence.chain import Ledger, Record
from npu_upgrade.evidence.pins import short_pin
from npu_upgrade.evidence.store import DRY_RUN
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import read_object, rows_of, sha256
from npu_upgrade.ground.tables import cut
from npu_upgrade.job.ask import (
    CONFLICT,
    FINDING,
    ITEM,
    LOOK,
    PORT,
    Ask,
    asks,
    hunks_removed,
    hunks_to_take,
    port_survey,
)
from npu_upgrade.job.job import NEIGHBOUR, SAFE, Job, naming
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.job.stages import Stage, State, Walk, brief
from npu_upgrade.job.stops import find_stop
from npu_upgrade.job.validation import Validation, validate
from npu_upgrade.lineage.project import KNOWN
from npu_upgrade.sources.checkout import open_checkout

NO_PORT = "what another side gained is listed for vllm-omni's runners alone"
_NAMED = 5  # pending runs, or findings, in a sentence
_FINDING = 130  # characters of a finding
_BY_ITSELF = ("parity-overrides", "cuda-names")  # checks of what raises where it runs, and spoils no answer
SKIPPABLE = (LOOK, PORT, "emulate")
_GATES = {"plan": "static", "audit": "static", "emulate": DRY_RUN}


@dataclass(frozen=True)
class Upgrade:
    """A job with what its evidence says about the files as they are now.

    ``standing`` records count for the present files, ``others`` do not, each with the reason; without a
    plan there are no files. ``validation``: which of the changed classes ran. ``asks`` are what is open,
    while the evidence can be trusted.
    """

    job: Job
    ledger: Ledger
    plan: Plan | None
    subject: Subject | None
    standing: list[Record]
    others: list[tuple[Record, str]]
    asks: list[Ask]
    validation: Validation = field(default_factory=Validation)

    def of(self, gate: str) -> Record | None:
        """The record of a gate that judged the files as they are."""
        return next((r for r in self.standing if (r.gate, r.label) == (gate, _GATES[gate])), None)

    @property
    def problem(self) -> str | None:
        """Why the evidence cannot be used."""
        return self.ledger.broken or ("the newest record is half-written" if self.ledger.unfinished else None)

    @property
    def delivered(self) -> dict[str, Any]:
        """What the delivery of exactly these files left; empty when they were not delivered."""
        ended = self.job.journal.attempt("deliver").ended
        fits = ended and ended.verdict == "PASS" and self.subject
        return ended.outputs if ended and fits and ended.outputs.get("tree") == self.subject.tree else {}


def read(job: Job) -> Upgrade:
    """Read the plan, the present files and the evidence of a job."""
    ledger = job.ledger()
    try:
        plan = load_plan(job)
        subject = plan.subject(job.root)
    except UpgradeError:
        return Upgrade(job, ledger, None, None, [], [(one, "there is no plan") for one in ledger.records], [])
    standing, others = job.store.standing(ledger.records, subject.tree), []
    for record in ledger.records:
        if record.tree != subject.tree:
            others.append((record, "it is of other contents"))
        elif record.run and (wrong := job.store.problems(record)):
            others.append((record, f"it is not as it was recorded: {wrong[0]}"))
    if ledger.broken or ledger.unfinished:
        return Upgrade(job, ledger, plan, subject, standing, others, [])
    open_, ran = asks(job, plan, ledger.records), validate(job, plan, subject, ledger.records)
    return Upgrade(job, ledger, plan, subject, standing, others, open_, ran)


def walk(job: Job) -> Walk:
    """The job as next, status and report see it."""
    one = read(job)
    audit = _gate(one, "audit")
    stages = [_merge(one), _plan(one), _look(one, audit), _port(one), audit]
    stages += [_gate(one, "emulate"), _serve(one), _deliver(one), _publish(one)]
    plan = one.plan
    return Walk(
        name=job.id,
        folder=job.folder,
        root=job.root,
        naming=naming(job),
        stages=stages,
        skippable=SKIPPABLE,
        end=_end(one),
        stop=find_stop(job, plan, one.ledger.records),
        standing=[brief(record) for record in one.standing],
        other=[brief(record) | {"why": why} for record, why in one.others],
        facts={
            "inputs": msgspec.to_builtins(job.inputs),
            "merged": [one["name"] for one in plan.methods if one.get("outcome") != "unchanged"]
            if plan
            else [],
            "copies_of": (plan.versions.get("base") or {}).get("spec") if plan else None,
            "repo": job.repo,
            "branch": job.branch,
            "tree": one.subject.tree if one.subject else None,
            "evidence_problem": one.problem,
            "open_items": len(plan.items_in("open")) if plan else None,
            "conflicts_open": plan.conflicts_open if plan else None,
            "further_files": list(plan.further) if plan else [],
            "npu_validation": one.validation.trailer,
            "emulated": one.validation.emulated_lines,
        },
        heading=list(_heading(one)),
        answered=[f"{i.get('title')} {i.get('detail')}" for i in plan.items if i.get("state") != "open"]
        if plan
        else (),
    )


def _heading(one: Upgrade) -> list[str]:
    job, lines = one.job, [f"job {one.job.id} (since {one.job.created})"]
    given = job.inputs.named()
    for role in ("omni", "ascend", "base"):
        source = given.get(role)
        pin = f"{short_pin(source.identity)}  {source.spec}" if source else "not given"
        lines.append(f"  {role:<8}{pin}")
    lines += [f"  results {job.out}"] if job.out else []
    lines += [f"  repo    {job.repo} ({job.branch or 'no branch yet'})"] if job.repo else []
    if one.plan:
        open_items, waived = len(one.plan.items_in("open")), len(one.plan.items_in("waived"))
        lines.append(f"  items open {open_items}, waived {waived}; conflicts open {one.plan.conflicts_open}")
        lines += [f"  edited beside the merge: {', '.join(one.plan.further)}"] if one.plan.further else []
        lines += [f"  {one.validation.said}", *(f"  {line}" for line in one.validation.emulated_lines)]
    return [*lines, f"evidence cannot be used: {one.problem}"] if one.problem else lines


def _busy(one: Upgrade, name: str) -> Stage | None:
    """A stage that a process runs, or that its process left."""
    attempt = one.job.attempt(name)
    if attempt.begun is None:
        return None
    if attempt.running:
        said = f"is running in process {attempt.begun.pid}; wait for it"
        return Stage(name, State.RUNNING, said, at=attempt.begun.at)
    if attempt.interrupted:
        said = f"it was interrupted ({attempt.begun.at}); run it again"
        return Stage(name, State.INTERRUPTED, said, _again(one.job, name), at=attempt.begun.at)
    return None


def _merge(one: Upgrade) -> Stage:
    if busy := _busy(one, "merge"):
        return busy
    ended = one.job.attempt("merge").ended
    if ended is None:
        return Stage("merge", State.TODO, "", _fresh(one.job, "merge"))
    if one.plan is None or ended.verdict == "BLOCKED":
        said = f"it did not finish ({ended.verdict}: {ended.summary})"
        return Stage("merge", State.FAILED, said, _again(one.job, "merge"), ended.verdict, ended.at)
    return Stage("merge", State.DONE, ended.summary, _again(one.job, "merge"), ended.verdict, ended.at)


def _plan(one: Upgrade) -> Stage:
    if busy := _busy(one, "plan"):
        return busy
    command = _fresh(one.job, "plan")
    if one.ledger.broken:
        said = f"the evidence cannot be trusted ({one.ledger.broken}); gates have to run again"
        return Stage("plan", State.FAILED, said, _set_aside(one.job))
    if one.ledger.unfinished:
        said = "a gate died while it recorded its verdict (the record is half-written); run it again"
        return Stage("plan", State.STALE, said, command)
    stage = _judged(one, "plan", command, passes=("PASS",))
    found = [ask for ask in one.asks if ask.stage in (CONFLICT, ITEM)]
    if one.plan and one.plan.conflicts_open and stage.open:
        said = f"{one.plan.conflicts_open} conflicts are open: decide each in the files, then check"
        stage = replace(stage, said=said)
    edited = stage.state is State.STALE or (stage.state is State.TODO and _edited_since_merge(one))
    if edited and not any(ask.stage == CONFLICT for ask in found):
        return stage  # an edit may have answered what is open: the check comes before the questions
    record = one.of("plan")
    if stage.state is State.FAILED and not found and record and (wrong := record.data.get("problems")):
        said = "; ".join(f"{row['path']}: {row['problem']}" for row in wrong)
        return replace(stage, said=f"correct the file by hand: {said}", stuck=True)
    return replace(stage, asks=found) if stage.open else stage


def _edited_since_merge(one: Upgrade) -> bool:
    """Whether a merged file is another than the merge wrote, or was checked last."""
    if one.plan is None or one.subject is None:
        return False
    now = one.subject.files
    return any(digest and now.get(path) != digest for path, digest in one.plan.hashes.items())


def _look(one: Upgrade, audit: Stage) -> Stage:
    """Why something was written by hand is asked with what the audit finds, or after it: it stops no gate."""
    waits = audit.asks or audit.state in (State.TODO, State.STALE, State.RUNNING, State.INTERRUPTED)
    later = _edits(one) if waits and not one.delivered else []
    said = f"{len(later)} reasons of edits are asked for with the audit's findings" if later else ""
    return _questions(one, LOOK, "decisions on thin evidence", later) or Stage(LOOK, State.DONE, said)


def _edits(one: Upgrade) -> list[Ask]:
    return [ask for ask in one.asks if ask.stage == LOOK and ask.asks_why]


def _port(one: Upgrade) -> Stage:
    """What is to be done about the GPU side's gains."""
    job = one.job
    if not job.of_omni:
        return Stage(PORT, State.SKIPPED, NO_PORT)
    if not job.repo:
        return Stage(PORT, State.SKIPPED, "the merge was not applied to a checkout")
    if asked := _questions(one, PORT, "hunks that the GPU side gained"):
        return asked
    command = upgrade("port", *naming(job))
    survey = port_survey(job.folder)
    if not survey:
        said, taking = "what the GPU side gained is not listed yet", job.scope == SAFE
        said += "; what fits by itself is taken with it" if taking else ""
        return Stage(PORT, State.TODO, said, command.adding(*(["--top"] if taking else [])))
    judged = one.of("emulate")
    if one.delivered or (
        judged and judged.verdict == "FAIL"
    ):  # first what fails: taking more would run it anew
        return Stage(PORT, State.DONE)
    if hunks := hunks_to_take(job):
        said = f"{len(hunks)} hunks are to be taken ({job.scope}; `resolve ID --leave` leaves one)"
        top = [hunk["id"] for hunk in survey.get("hunks", []) if hunk["tier"] == 1]
        chosen = ["--top"] if job.scope == SAFE and hunks == top else ["--apply", *hunks]
        return Stage(PORT, State.TODO, said, command.adding(*chosen))
    said = f"{job.scope}, as was chosen at the start"
    if removed := hunks_removed(survey):
        taking = command.adding("--apply", *removed[:1]).short
        said += f"; {len(removed)} that were taken and removed since stay out ({taking} takes one again)"
    return Stage(PORT, State.DONE, said)


def _questions(one: Upgrade, kind: str, what: str, later: Sequence[Ask] = ()) -> Stage | None:
    """The stage of a kind of question while any is open, or it is left out; the commit lists what was."""
    if kind in one.job.skipped:
        return Stage(kind, State.SKIPPED, one.job.skipped[kind])
    found = [ask for ask in one.asks if ask.stage == kind and ask not in later]
    if one.delivered:
        return Stage(kind, State.DONE, f"the commit lists {len(found)}" if found else "")
    return Stage(kind, State.TODO, f"{len(found)} {what}", asks=found) if found else None


def _gate(one: Upgrade, name: str) -> Stage:
    """The audit or the emulated run. What they could not judge is named in the commit and stops nothing."""
    if busy := _busy(one, name):
        return busy
    if name in one.job.skipped:
        return Stage(name, State.SKIPPED, one.job.skipped[name])
    if why := not_for(one.job, name):
        return Stage(name, State.SKIPPED, why)
    ended = one.job.attempt(name).ended
    if ended and ended.outputs.get("error"):
        said = f"it could not judge: {ended.outputs['error']}"
        return Stage(name, State.FAILED, said, _again(one.job, name), ended.verdict, ended.at)
    stage = _judged(one, name, _fresh(one.job, name), passes=("PASS", "BLOCKED", "INCONCLUSIVE"))
    if name == "emulate" and stage.open and stage.state != State.FAILED and one.delivered:
        return Stage(name, State.SKIPPED, "the files were delivered without it")
    found = [a for a in one.asks if a.stage == FINDING and a.is_run is (name == "emulate")]
    found += _edits(one) if found and name == "audit" and not one.delivered else []
    return replace(stage, asks=found) if stage.open else stage


def not_for(job: Job, gate: str) -> str:
    """Why a gate, the audit or the emulated run, does not look at a job's files; empty when it does."""
    ascend, (vllm,) = KNOWN[1].name, KNOWN[1].upstreams
    if job.of_omni or (job.upstream == vllm and job.project == ascend):
        return ""
    if job.project == KNOWN[0].name:
        return f"of {job.project} it looks at a job of its runners (merge --omni --ascend)"
    if gate == "emulate":
        return f"there is no emulated device for {job.project}"
    return "" if job.upstream == vllm else f"it knows projects on {vllm}, not on {job.upstream}"


def _judged(one: Upgrade, name: str, command: Command, passes: Sequence[str]) -> Stage:
    """The state of a gate by its records: of the present files, of other contents, or none."""
    record = one.of(name)
    if record:
        state = State.DONE if record.verdict in passes else State.FAILED
        said = record.summary if state == State.DONE else f"it is {record.verdict}: {record.summary}"
        again = command if name == "plan" else Command.of(record.command)
        return Stage(name, state, said, again, record.verdict, record.started)
    if any(record.gate == name for record, _ in one.others):
        return Stage(name, State.STALE, "the files changed since it judged them", command)
    return Stage(name, State.TODO, "", command)


def _serve(one: Upgrade) -> Stage:
    """Whatever served these runners: a failure stands in the way, no run at all does not."""
    served = [record for record in one.standing if record.gate not in (*_GATES, NEIGHBOUR)]
    failed = next((record for record in served if record.verdict == "FAIL"), None)
    if failed:
        said = f"gate {failed.gate} ({failed.label}) failed: {failed.summary}"
        return Stage("serve", State.FAILED, said, Command.of(failed.command), "FAIL", failed.started)
    if one.validation.by and not one.validation.pending:
        return Stage("serve", State.DONE, one.validation.said, verdict="PASS")
    return Stage("serve", State.SKIPPED, one.validation.said)


def _deliver(one: Upgrade) -> Stage:
    if busy := _busy(one, "deliver"):
        return busy
    ended, command = one.job.journal.attempt("deliver").ended, _fresh(one.job, "deliver")
    if ended is None:
        emulated = one.of("emulate")
        pending = emulated.data.get("pending", []) if emulated else []
        said = "one commit of what was proven"
        if pending:
            said += f"; it names {len(pending)} emulated runs as pending: {'; '.join(pending[:_NAMED])}"
            for run, why in (emulated.data.get("ends_beside") or {}).items() if emulated else ():
                said += f"; {run} may show nothing: {why}"
            if not_run(pending):
                rest = upgrade("emulate", "--rest", *naming(one.job)).short
                said += f"; after the commit {rest} waits for them (minutes): they have found what the"
                said += " others passed, and a second delivery amends the commit"
            said += _why_lagging(one.job, pending)
        return Stage("deliver", State.TODO, said, command)
    if ended.verdict != "PASS":
        said = f"it ended {ended.verdict}: {ended.summary}"
        return Stage("deliver", State.FAILED, said, command, ended.verdict, ended.at)
    if not one.delivered:
        return Stage("deliver", State.STALE, "the files changed since the delivery", command, at=ended.at)
    if one.validation.by and ended.outputs.get("validation") != one.validation.trailer:
        return Stage("deliver", State.STALE, f"{one.validation.said}; write it into the commit", command)
    emulated = one.of("emulate")
    said_so, now = ended.outputs, emulated.data if emulated else {}
    named, left = ({*not_run(data.get("pending", ()))} for data in (said_so, now))
    if emulated and left < named:
        said = f"{len(named - left)} runs that the commit names as pending have ended; write them into it"
        return Stage("deliver", State.STALE, said, command, at=ended.at)
    if later := [answer for answer in one.job.journal.answers() if answer.note and answer.at > ended.at]:
        came = "1 answer came" if len(later) == 1 else f"{len(later)} answers came"
        said = f"{came} after the commit; write what they say into it"
        return Stage("deliver", State.STALE, said, command, at=ended.at)
    return Stage("deliver", State.DONE, ended.summary, command, ended.verdict, ended.at)


def _why_lagging(job: Job, pending: Iterable[str]) -> str:
    """What may be behind runs that fail as on the old pair: what the audit finds in both pairs, too."""
    runs = [one.partition(": ")[0] for one in pending if ": LAG" in one]
    findings = rows_of(read_object(job.folder / "audit.json"), "findings")
    found = [one for one in findings if one.get("state") == "LAG"]
    if not runs or not found:
        return ""
    found.sort(key=lambda one: one.get("check") in _BY_ITSELF)
    told = [cut(f"{one['owner']}: {one['check']}: {one['what']}", _FINDING) for one in found[:_NAMED]]
    said = f"; {', '.join(runs[:_NAMED])} fail as on the old pair (LAG), and {len(found)} findings of the"
    said += " audit that it has too may be why (upgrade.py audit --format text): "
    return said + "; ".join(told)


def not_run(pending: Iterable[str]) -> list[str]:
    """The pending runs that did not run; of the others it says what they showed."""
    return [name for name in pending if ": " not in name]


def _publish(one: Upgrade) -> Stage:
    """Whether a remote has the commit, where there is one."""
    sent = one.delivered
    if not sent:
        return Stage("publish", State.TODO)
    if not sent.get("push"):
        return Stage("publish", State.SKIPPED, "the checkout has no remote")
    try:
        there = open_checkout(Path(sent["repo"])).git("branch", "-r", "--contains", sent["commit"]).strip()
    except UpgradeError:
        there = ""
    said = f"the commit is delivered; {one.validation.said}"
    push = Command.of(sent["push"])
    return Stage("publish", State.DONE) if there else Stage("publish", State.TODO, said, push)


def _end(one: Upgrade) -> tuple[str, Command | None]:
    """Have the commit looked at."""
    sent = one.delivered
    if not sent:
        return "", None
    show = Command("git", "-C", (sent["repo"], "show", "--stat", sent["commit"]))
    return f"nothing is left to do here: the commit is delivered; {one.validation.said}", show


def _again(job: Job, name: str) -> Command:
    """The command that ran the stage last, else the one that runs it first."""
    begun = job.journal.attempt(name).begun
    return Command.of(begun.command) if begun else _fresh(job, name)


def _fresh(job: Job, name: str) -> Command:
    words = {} if job.of_omni else {"omni": "downstream", "ascend": "upstream"}
    given = job.inputs.named().items()
    sources = [word for role, one in given for word in (f"--{words.get(role, role)}", one.spec)]
    place = ["--apply", job.repo] if job.repo else ["--out", job.out or "merged"]
    options = {
        "merge": [*sources, *place],
        "deliver": ["--repo", job.repo or "PATH", *naming(job)],
    }
    return upgrade(name, *options.get(name, naming(job)))


def _set_aside(job: Job) -> Command:
    """Move evidence that cannot be trusted into a folder of its own."""
    folder = job.store.folder
    ledger = chain.ledger_path(folder)
    aside = folder / f"untrusted-{sha256(ledger.read_bytes() if ledger.exists() else b'')[:8]}"
    files = sorted(str(path) for path in folder.glob("evidence.[jh]*"))
    return Command("sh", "-c", ('mkdir "$0" && mv "$@" "$0"', str(aside), *files))
