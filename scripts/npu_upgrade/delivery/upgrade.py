"""The delivery of an upgrade: the files of its plan, on the evidence of its job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from npu_upgrade.delivery import commit, publish
from npu_upgrade.delivery.commit import Delivery, Done
from npu_upgrade.delivery.message import Section, compose, counted, evidence
from npu_upgrade.delivery.place import not_alone, open_place
from npu_upgrade.delivery.publish import push_command
from npu_upgrade.delivery.refusals import check_contents, check_kept, check_places, check_staged
from npu_upgrade.evidence.chain import Record, finished
from npu_upgrade.evidence.pins import check_pins, short_pin
from npu_upgrade.evidence.store import DRY_RUN
from npu_upgrade.evidence.subject import Subject, check_path
from npu_upgrade.gates.emulation.compare import LAG
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.tables import count, shortened
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.ask import EDITED, PORT, port_survey
from npu_upgrade.job.changes import changed_since, edited, top_folders, untracked
from npu_upgrade.job.check import edited_unit
from npu_upgrade.job.job import NEIGHBOUR, SYNC, Job, naming, ruling
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.job.upgrade import not_for, not_run
from npu_upgrade.job.validation import Validation, validate
from npu_upgrade.port.rank import PASSED_OVER

TAGS = ("NPU", "Misc")  # of the commit's title: the first that the project has


def prepare(job: Job, repo: Path, title: str | None, keeping: Command | None = None) -> Delivery:
    """Check the checkout, the files and the evidence, and write the message; changes nothing.

    ``keeping`` is the command that remembers further files, where this one only looks at them.
    Raises :class:`BadInput` for the first thing that stands in the way.
    """
    plan = load_plan(job, repo)
    check_pins({name: pin for name, pin in plan.versions.items() if pin})
    place = open_place(repo, job.marker, made=job.branch)
    root = place.checkout.root
    check_staged(place.checkout, plan.files)
    check_places(place.checkout, plan.files)
    if others := sorted(set(place.earlier.files) - set(plan.files)) if place.earlier else []:
        raise not_alone(
            f"{place.head[:12]} also changes {shortened(others)}, which the delivery does not",
            "git reset --soft HEAD^, deliver again, and commit those files on top",
        )
    changed = changed_since(place.checkout, place.base, plan.files)
    if not changed:
        raise BadInput(
            "nothing to commit: the files of the upgrade are as they were before it",
            expected="the merged files in the working tree",
            try_=f"upgrade.py merge --apply {repo}, then plan, then deliver",
        )
    subject = plan.subject(root)
    check_contents(root, changed)
    check_kept(place.checkout, place.base, changed)
    standing = _check_evidence(job, plan, subject, keeping)
    ran = validate(job, plan, subject, job.records(), root)
    ascend = plan.versions.get("ascend") or {}
    about = f"Upgrade to {job.upstream} {ascend.get('version') or short_pin(ascend)}"
    sections = _sections(job, plan, changed, standing, ran)
    text = compose(place, title, about, TAGS, sections, ran.trailer)
    folders = top_folders(plan.files)
    left = {*edited(place.checkout, place.base, folders), *untracked(place.checkout, folders)}
    return Delivery(
        place,
        subject,
        changed,
        text,
        ran.trailer,
        ran.said,
        left=sorted(left.difference(plan.files)),
        pending=_pending(standing),
    )


def include(job: Job, repo: Path, names: Sequence[str], *, keep: bool) -> None:
    """Make files of the checkout part of the upgrade, with ``keep`` for good; gates have to judge them."""
    root = open_place(repo, job.marker, made=job.branch).checkout.root
    for name in names:
        check_path(name)
        if not (root / name).is_file():
            raise BadInput(
                f"no file {name} in {root}",
                expected="a file of the checkout, from its top folder",
                try_="git status lists what is changed",
            )
    job.included = sorted({*job.included, *names})
    if keep:
        job.place(included=job.included)


def carry_out(job: Job, delivery: Delivery, *, sign: bool | None) -> Done:
    """Make the commit and record it in the job."""
    job.begin("deliver")
    try:
        done = commit.carry_out(delivery, sign=sign)
    except UpgradeError as error:
        job.finish("deliver", Verdict.BLOCKED, error.what)
        raise
    if done.sha is None:
        job.finish("deliver", Verdict.FAIL, done.problem)
        return done
    place = delivery.place
    push = push_command(place)
    outputs = {
        "commit": done.sha,
        "branch": place.branch,
        "repo": str(place.checkout.root),
        "tree": delivery.subject.tree,
        "validation": delivery.validation,
        "pending": list(delivery.pending),
        "push": push.argv if push else [],
    }
    job.place(repo=place.checkout.root, branch=place.branch)
    job.finish("deliver", Verdict.PASS, f"commit {done.sha[:12]} on {place.branch}", outputs)
    return done


def request(job: Job, delivery: Delivery) -> str:
    """Push the branch, and the address of its pull request, opened when there is none."""
    parts = delivery.text.split("\n\n")
    tested = next(part for part in parts if part.startswith("Evidence"))
    facing = f"None beyond the versions: {job.project} follows a newer {job.upstream}."
    return publish.request(delivery.place, delivery.text, TAGS, f"{tested}\n\n{delivery.said}", facing)


def _check_evidence(job: Job, plan: Plan, subject: Subject, keeping: Command | None) -> list[Record]:
    """The standing records for this content: a ``plan`` PASS and an ``audit`` are among them, and no FAIL."""
    records = job.records()
    finished(job.ledger())
    standing = job.store.standing(records, subject.tree)
    for one in standing:
        failed = one.verdict == "FAIL" and one.gate != NEIGHBOUR and not job.ruled_wrong(one)
        if failed or (one.gate == "plan" and one.verdict != "PASS"):
            ended = "failed" if failed else f"is {one.verdict}"
            raise BadInput(
                f"gate {one.gate} ({one.label}) {ended} for exactly these files: {one.summary}",
                expected="no gate whose newest verdict is FAIL, and a PASS of gate plan",
                try_="correct what it names and run it again"
                + (f"; {ruling()}" if (one.gate, one.label) == ("emulate", DRY_RUN) else ""),
            )
    for gate in ("plan",) if not_for(job, "audit") else ("plan", "audit"):
        known = [record for record in records if (record.gate, record.label) == (gate, "static")]
        if not any(record.tree == subject.tree for record in known):
            new = [path for path in job.included if known and path not in known[-1].subject.files]
            unjudged = f", {', '.join(new)} not among them" if new else ""
            judged = f"judged other contents of these files{unjudged}" if known else "has no evidence"
            raise BadInput(
                f"gate {gate} {judged}",
                expected=f"gate {gate} (static) for the files as they are now",
                try_=(
                    f"{keeping.short}, which keeps what it includes, also where it refuses; "
                    if keeping
                    else ""
                )
                + f"{upgrade('next', '--run', *naming(job)).short}, then deliver",
            )
    if plan.conflicts_open:
        raise BadInput(
            f"{plan.conflicts_open} conflicts are open",
            expected="every conflict decided",
            try_=f"edit the files, then {upgrade('next', '--run', *naming(job)).short}",
        )
    return standing


def _sections(
    job: Job, plan: Plan, changed: Sequence[str], standing: Sequence[Record], ran: Validation
) -> list[Section]:
    omni, ascend, base = (plan.versions.get(name) for name in ("omni", "ascend", "base"))
    audit = next((record for record in standing if record.gate == "audit"), None)
    versions = [
        f"{job.project} {short_pin(omni or {})}",
        f"{job.upstream} {_came_from(job, base, audit)}{short_pin(ascend or {})}",
    ]
    outcomes = [str(method["outcome"]) for method in plan.methods if method.get("outcome")]
    # a delivery with an open conflict is refused before there is a message
    counts = Counter("with conflicts resolved" if o == "conflict" else o for o in outcomes)
    how = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
    methods = f"{count(len(plan.methods), 'method')}{f': {how}' if how else ''}"
    waived = audit.data.get("waived", []) if audit else []
    proven = evidence([("", record) for record in standing])
    pending = _pending(standing)
    left = not_run(pending)
    ends = {run: why for one in standing for run, why in one.data.get("ends_beside", {}).items()}
    odd = [one for one in pending if one not in left]
    left_out = {gate: why for gate in ("audit", "emulate") if (why := not_for(job, gate))}
    left_out |= (
        {"port": "the sync alone was asked for"} if job.of_omni and job.scope == SYNC else {}
    ) | job.skipped
    wrong = [run for one in standing if job.ruled_wrong(one) for run in one.data.get("failing", [])]
    ruled = [f"{run}: {job.skipped['emulate']}" for run in wrong]
    if ruled:
        del left_out["emulate"]
    return [
        Section("Versions", versions),
        Section("Merged", [methods, f"{count(len(changed), 'file')} changed"]),
        counted("Edited beside the merge", [path for path in plan.further if path in changed]),
        *(
            counted(f"{state.capitalize()} items", [_titled(item) for item in plan.items_in(state)])
            for state in ("open", "waived")
        ),
        replace(
            counted("Waived findings", _by_reason((one["key"], one["reason"]) for one in waived)),
            detail=f"({len(waived)})",
        ),
        counted("Written by hand for the NPU side", written_by_hand(job, plan)),
        _ported(job),
        *_not_ported(job, plan.after_gpu),
        counted("Failed on the emulated NPU, and ruled wrong by a person", ruled),
        counted("Emulated runs pending", [f"{one}: {ends[one]}" if one in ends else one for one in left]),
        counted("Emulated runs without a result", [one for one in odd if not _is_lag(one)]),
        counted("Emulated runs that fail as on the old pair (LAG)", [one for one in odd if _is_lag(one)]),
        Section("Left out", [f"{name}: {reason}" for name, reason in sorted(left_out.items())]),
        replace(proven, items=[*proven.items, *ran.emulated_lines]),
    ]


def _came_from(job: Job, base: Mapping[str, Any] | None, audit: Record | None) -> str:
    """The version that the tree ran with, as the gates compare; and that of its copies, if another."""
    specs = (audit.data.get("baseline") if audit else None) or {}
    ran = str(specs.get(job.upstream.replace("-", "_"), "")).partition("==")[2]
    if base is None:
        return f"{ran} -> " if ran else ""
    if ran and ran != base.get("version"):
        return f"{ran} (copies of {short_pin(base)}) -> "
    return f"{short_pin(base)} -> "


def _pending(standing: Sequence[Record]) -> list[str]:
    """The emulated runs that nobody waited for."""
    return [run for one in standing if one.gate == "emulate" for run in one.data.get("pending", [])]


def _is_lag(run: str) -> bool:
    return run.partition(": ")[2].startswith(LAG)


def written_by_hand(job: Job, plan: Plan) -> list[str]:
    """What somebody wrote by hand, each reason once with all that it is given for."""
    return _by_reason(_by_hand(job, plan))


def _by_hand(job: Job, plan: Plan) -> list[tuple[str, str]]:
    """The methods of hunks that a person wrote in a form of the NPU side's own, and those edited since the
    merge, each with why.
    """
    hunks = [(e.unit, e.note) for e in job.journal.answers() if e.stage == PORT and e.how == "by-hand"]
    told = [one for one in plan.items if one["kind"] == EDITED and one["state"] == "done"]
    by_hand = hunks + [(edited_unit(one), str(one["note"])) for one in told]
    named = {unit for unit, _ in by_hand}
    # of methods in which nothing is of one's own hand alone
    given = {e.id: e.note for e in job.journal.answers() if e.id == e.unit and e.id not in named}
    by_hand += given.items()
    named |= given.keys()
    by_hand += [(unit, "after the GPU side") for unit in plan.after_gpu if unit not in named]
    # what was corrected for a failed run is of no one method
    noted = [e for e in job.journal.answers() if e.how == "accept" and e.note and e.id.startswith("emulate-")]
    more = [e for e in noted if not any(e.note in why for _, why in by_hand)]
    runs = [e.id.removeprefix("emulate-").replace("-", " ", 1) for e in more]
    return by_hand + [(f"for {run}, which failed", e.note) for run, e in zip(runs, more, strict=True)]


def _by_reason(told: Iterable[tuple[str, str]]) -> list[str]:
    """What is told of several things, once for those of the same reason."""
    names: dict[str, list[str]] = {}
    for name, why in told:
        names.setdefault(why, []).append(name)
    return [f"{', '.join(dict.fromkeys(those))}: {why}" for why, those in names.items()]


def _ported(job: Job) -> Section:
    """What was taken of the GPU side's gains, by feature, and is not lacking again."""
    survey = port_survey(job.folder)
    lacking = {hunk["id"] for hunk in survey.get("hunks", [])}
    taken = [group for id_, group in survey.get("ported", {}).items() if id_ not in lacking]
    return _by_feature("Ported from the GPU side", taken)


def _not_ported(job: Job, after_gpu: Collection[str]) -> list[Section]:
    """What the GPU side gained and the NPU side lacks, by feature; what was decided is not among it.

    Of methods written by hand ``after_gpu`` it is what they do not have in the GPU side's form, but for what
    somebody said is left.
    """
    said = {entry.id: entry.how for entry in job.journal.answers()}
    decided = {id_ for id_, how in said.items() if how in ("by-hand", "waive")}
    left = [hunk for hunk in port_survey(job.folder).get("hunks", []) if hunk["id"] not in decided]
    own = [hunk for hunk in left if hunk["unit"] in after_gpu and said.get(hunk["id"]) != "leave"]
    other = [hunk for hunk in left if hunk not in own]
    before = [one for one in other if any(PASSED_OVER in why for why in one.get("reasons", ()))]
    told = {
        "Not ported from the GPU side": [hunk for hunk in other if hunk not in before],
        "In methods written by hand, in another form or not ported": own,
        "Not ported, as by the upgrades before": before,
    }
    groups = {name: [str(hunk.get("group") or hunk["unit"]) for hunk in told[name]] for name in told}
    *found, last = (_by_feature(heading, features) for heading, features in groups.items())
    names = ", ".join(dict.fromkeys([*groups.values()][-1]))  # in a line: nobody decides on these now
    return [*found, replace(last, items=[names] if names else [])]


def _by_feature(heading: str, features: Sequence[str]) -> Section:
    """So many hunks of each feature; ``features`` has that of each hunk."""
    groups = Counter(features)
    found = counted(heading, [f"{one}: {count(number, 'hunk')}" for one, number in groups.most_common()])
    return replace(found, detail=f"({count(len(features), 'hunk')} of {count(len(groups), 'feature')})")


def _titled(item: dict[str, Any]) -> str:
    """The id, and what the item says without what its id says already and without its file."""
    kind, title = str(item.get("kind", "item")), str(item.get("title") or item.get("summary") or "")
    title = title.removeprefix(f"{item.get('path')}: ")
    said = [title] if title and item["id"].startswith(f"{kind}-") else [kind, *filter(None, [title])]
    return ": ".join([item["id"], *said])
