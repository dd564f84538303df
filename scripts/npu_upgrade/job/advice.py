"""What to do next in a job, and what its evidence says about the files as they are now."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.evidence import chain, ledger
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import sha256
from npu_upgrade.job.job import STEPS, Job, Step, naming
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.sources.checkout import open_checkout

PENDING = "validation on NPU hardware is pending"


@dataclass(frozen=True)
class Action:
    """One command line and the reason for it in a sentence."""

    command: str
    why: str


@dataclass(frozen=True)
class Outlook:
    """``standing`` evidence is of the present files, ``stale`` of other contents; None without a plan."""

    plan: Plan | None
    subject: Subject | None
    standing: list[Record]
    stale: list[Record]
    broken: str | None = None
    unfinished: bool = False


def look(job: Job) -> Outlook:
    """Read the plan, the present files and the evidence, and tell whether the evidence can be trusted."""
    found = chain.load(job.folder)
    state = found.broken, found.unfinished
    try:
        plan = load_plan(job)
        subject = plan.subject(Path(job.repo or job.out or job.folder))
    except UpgradeError:
        return Outlook(None, None, [], list(found.records), *state)
    standing = ledger.standing(found.records, subject.tree)
    stale = [record for record in found.records if record.tree != subject.tree]
    return Outlook(plan, subject, standing, stale, *state)


def next_action(job: Job) -> Action:
    """The one thing to do now."""
    for name, step in job.steps.items():
        if step.interrupted:
            return Action(_again(job, name), f"step {name} was interrupted ({step.at}); run it again")
        if step.status == "running":
            return Action(_status(job), f"step {name} is running in process {step.pid}; wait for it")
    touched = [name for name in STEPS if job.steps[name].status != "todo"]
    last = touched[-1] if touched else None
    if last in (None, "discover", "lineage"):
        return _before_merge(job, last)
    return _after_merge(job, look(job))


def _before_merge(job: Job, last: str | None) -> Action:
    if last and job.steps[last].status == "failed":
        return Action(
            _again(job, last), f"step {last} ended {job.steps[last].verdict}: {job.steps[last].summary}"
        )
    name = STEPS[STEPS.index(last) + 1] if last else "lineage"
    return Action(_fresh(job, name), f"step {name} is the next one to do")


def _after_merge(job: Job, outlook: Outlook) -> Action:
    merge = job.steps["merge"]
    if outlook.plan is None or merge.verdict == "BLOCKED":
        return Action(_again(job, "merge"), f"merge did not finish ({merge.verdict}: {merge.summary})")
    if outlook.broken:
        return Action(
            _set_aside(job), f"the evidence cannot be trusted ({outlook.broken}); gates have to run again"
        )
    if outlook.unfinished:
        return Action(_again(job, "plan"), "a gate died while it recorded its verdict; run it again")
    planned = next((r for r in outlook.standing if (r.gate, r.label) == ("plan", "static")), None)
    if planned is None or planned.verdict != "PASS":
        return Action(_again(job, "plan"), _why_plan(job, outlook, planned))
    failed = next((r for r in outlook.standing if r.verdict == "FAIL"), None)
    if failed:
        return Action(
            shlex.join(failed.command), f"gate {failed.gate} ({failed.label}) failed: {failed.summary}"
        )
    if not any((r.gate, r.label) == ("audit", "static") for r in outlook.standing):
        return Action(_again(job, "audit"), "the merged files are checked, and not audited yet")
    delivered, skipped = job.steps["deliver"].status != "todo", "emulate" in job.skipped
    if not (delivered or skipped or any(r.gate == "emulate" for r in outlook.standing)):
        return Action(_again(job, "emulate"), "the merged files are audited, and not run yet")
    return _after_plan(job, outlook)


def _why_plan(job: Job, outlook: Outlook, planned: Record | None) -> str:
    if outlook.plan and outlook.plan.conflicts_open:
        return (
            f"{outlook.plan.conflicts_open} conflicts are open: decide each marker in the files, then check"
        )
    if planned:
        return f"gate plan is {planned.verdict}: {planned.summary}; correct it, then check again"
    if any(record.gate == "plan" for record in outlook.stale):
        return "the files changed since they were checked"
    return "the merged files are not checked yet"


def _after_plan(job: Job, outlook: Outlook) -> Action:
    step = job.steps["deliver"]
    if step.status == "failed":
        return Action(_fresh(job, "deliver"), f"deliver ended {step.verdict}: {step.summary}")
    if step.status != "done" or step.outputs.get("tree") != outlook.standing[0].tree:
        why = (
            "the files were checked again since the delivery"
            if step.status == "done"
            else "every check passed"
        )
        return Action(_fresh(job, "deliver"), why)
    real = [r for r in outlook.standing if r.label == "NPU real" and r.verdict == "PASS"]
    if real and step.outputs.get("validation") == "pending":
        return Action(_fresh(job, "deliver"), "NPU validation passed; write it into the commit")
    return _after_delivery(step.outputs, "validated on NPU hardware" if real else PENDING)


def _after_delivery(delivered: dict[str, Any], validation: str) -> Action:
    """Publish the commit; once that is done, or where there is no remote, have it looked at."""
    repo, sha = delivered["repo"], delivered["commit"]
    if delivered.get("push") and not _published(Path(repo), sha):
        return Action(delivered["push"], f"the commit is delivered; {validation}")
    show = shlex.join(["git", "-C", repo, "show", "--stat", sha])
    return Action(show, f"nothing is left to do here: the commit is delivered; {validation}")


def _published(repo: Path, sha: str) -> bool:
    """Whether a remote is known to have the commit."""
    try:
        return bool(open_checkout(repo).git("branch", "-r", "--contains", sha).strip())
    except UpgradeError:
        return False


def _again(job: Job, name: str) -> str:
    """The command that ran the step last, else the one that runs it first."""
    return shlex.join(job.steps[name].command) if job.steps[name].command else _fresh(job, name)


def _fresh(job: Job, name: str) -> str:
    sources = []
    for role in ("omni", "ascend", "base"):
        source = job.inputs.get(role)
        sources += [f"--{role}", source["spec"]] if source else []
    place = ["--apply", job.repo] if job.repo else ["--out", job.out or "merged"]
    options = {
        "discover": sources[:4],
        "lineage": sources[:4],
        "merge": [*sources, *place],
        "plan": naming(job),
        "audit": naming(job),
        "emulate": naming(job),
        "deliver": ["--repo", job.repo or "PATH", *naming(job)],
    }
    return shlex.join(["upgrade.py", name, *options[name]])


def _set_aside(job: Job) -> str:
    ledger_file = chain.ledger_path(job.folder)
    content = ledger_file.read_bytes() if ledger_file.exists() else b""
    aside = job.folder / f"untrusted-{sha256(content)[:8]}"
    files = sorted(str(path) for path in job.folder.glob("evidence.[jh]*"))
    return f"{shlex.join(['mkdir', str(aside)])} && {shlex.join(['mv', *files, str(aside)])}"


def _status(job: Job) -> str:
    return shlex.join(["upgrade.py", "status", *naming(job)])


def describe(step: Step) -> str:
    """A step's status for people."""
    return "interrupted" if step.interrupted else step.status
