"""Deliver a job: check everything, then make (or make again) its one commit."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.delivery import message, refusals
from npu_upgrade.delivery.changes import Entry
from npu_upgrade.delivery.commit import Done, changed_files, make_commit, update_index, wants_signature
from npu_upgrade.delivery.earlier import Earlier, find_earlier, is_as_delivered
from npu_upgrade.delivery.publish import push_arguments
from npu_upgrade.delivery.title import check_title, rule_for
from npu_upgrade.evidence.pins import check_pins, short_pin
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.job import Job
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.sources.checkout import Checkout, open_checkout


@dataclass(frozen=True)
class Delivery:
    """A delivery that passed every check and is ready to be made."""

    job: Job
    checkout: Checkout
    plan: Plan
    subject: Subject
    head: str
    branch: str
    signer: str
    text: str
    changed: list[str]
    entries: dict[str, Entry]
    earlier: Earlier | None
    validation: str

    @property
    def pending(self) -> bool:
        return self.validation == "pending"

    @property
    def pushed(self) -> list[str]:
        return self.earlier.pushed if self.earlier else []


def prepare(job: Job, repo: Path, title: str | None) -> Delivery:
    """Check the checkout, the files and the evidence, and write the message; changes nothing.

    Raises :class:`BadInput` for the first thing that stands in the way.
    """
    plan = load_plan(job)
    check_pins({name: pin for name, pin in plan.versions.items() if pin})
    checkout = open_checkout(repo)
    branch = refusals.check_state(checkout, job.branch)
    head = checkout.git("rev-parse", "HEAD").strip()
    signer = refusals.check_identity(checkout)
    refusals.check_staged(checkout, plan)
    refusals.check_places(checkout, plan)
    earlier = find_earlier(checkout, f"{message.JOB}: {job.id}", plan.files, branch)
    changed, entries = changed_files(checkout, plan, earlier.base if earlier else "HEAD")
    if not changed:
        raise BadInput(
            "nothing to commit: the files of the upgrade are as they were before it",
            expected="the merged files in the working tree",
            try_=f"upgrade.py merge --apply {repo}, then plan, then deliver",
        )
    subject = plan.subject(checkout.root)
    refusals.check_contents(checkout.root, changed)
    refusals.check_kept(checkout, earlier.base if earlier else "HEAD", changed)
    standing = refusals.check_evidence(job, plan, subject)
    rule = rule_for(checkout.root)
    chosen = title if title is not None else earlier.title if earlier else rule.default(_target(plan))
    kept = message.written_by_people(earlier.body, signer) if earlier else ([], [])
    text = message.compose(
        job, plan, check_title(rule, chosen), changed, standing, kept_text=kept[0], kept_trailers=kept[1]
    )
    return Delivery(
        job=job,
        checkout=checkout,
        plan=plan,
        subject=subject,
        head=head,
        branch=branch,
        signer=signer,
        text=text,
        changed=changed,
        entries=entries,
        earlier=earlier,
        validation=message.validation(standing),
    )


def carry_out(delivery: Delivery, *, sign: bool | None) -> tuple[Done, bool]:
    """Make the commit and record it in the job; the second value is False when it was there already."""
    job, checkout, earlier = delivery.job, delivery.checkout, delivery.earlier
    signing = wants_signature(checkout, sign)
    if (
        earlier
        and (earlier.signed or not signing)
        and is_as_delivered(checkout, earlier, delivery.entries, delivery.text, delivery.signer)
    ):
        # A run that died after git committed has not brought the index up to date.
        done, new = Done(earlier.sha, notes=update_index(checkout, delivery.entries)), False
    else:
        job.begin("deliver")
        try:
            done = make_commit(
                checkout,
                delivery.plan,
                delivery.subject,
                delivery.text,
                head=delivery.head,
                sign=signing,
                amend=bool(earlier),
            )
        except UpgradeError as error:
            job.finish("deliver", Verdict.BLOCKED, error.what)
            raise
        new = True
    if done.sha:
        outputs = {
            "commit": done.sha,
            "branch": delivery.branch,
            "repo": str(checkout.root),
            "tree": delivery.subject.tree,
            "validation": delivery.validation,
            "push": push_command(delivery),
        }
        job.place(repo=checkout.root, branch=delivery.branch)
        job.finish("deliver", Verdict.PASS, f"commit {done.sha[:12]} on {delivery.branch}", outputs)
    else:
        job.finish("deliver", Verdict.FAIL, done.problem)
    return done, new


def push_command(delivery: Delivery) -> str | None:
    """How to publish the branch, or None when the checkout has no remote."""
    push = push_arguments(delivery.checkout, delivery.branch, bool(delivery.pushed))
    return shlex.join(["git", "-C", str(delivery.checkout.root), *push]) if push else None


def _target(plan: Plan) -> str:
    ascend = plan.versions.get("ascend") or {}
    return str(ascend.get("version") or short_pin(ascend))
