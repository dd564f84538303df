"""Deliver an upgrade as one signed-off commit on the branch of merge --apply.

The commit contains all edits in the folders of the merged files, and those that an answer speaks of;
--include adds other changed files, which the gates have to judge too. Delivery is refused when unreviewed
files would get in, or when the evidence is missing, failed, or of other contents. The commit names each
changed class with the NPU run that built it from exactly these files, or as pending. A second delivery of a
job amends its own commit.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_upgrade.commands.arguments import REPEATED, option
from npu_upgrade.commands.gains import list_gains
from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.delivery.commit import Delivery, Done
from npu_upgrade.delivery.place import is_signed
from npu_upgrade.delivery.publish import push_command
from npu_upgrade.delivery.upgrade import carry_out, include, prepare, request
from npu_upgrade.ground.command import Command, current, upgrade
from npu_upgrade.ground.tables import cut
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.job import Job, naming
from npu_upgrade.job.upgrade import not_run

_SILENT = 200  # characters
EXAMPLES = """--repo ../vllm-omni --dry-run
--repo ../vllm-omni
--repo ../vllm-omni --include vllm_omni/worker/gpu_model_runner.py
--repo ../vllm-omni --title "[NPU] Upgrade to vllm-ascend 0.23.0" --sign --pr"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_commit_arguments(parser)
    option(
        parser,
        "--include FILE",
        "a changed file that belongs to the upgrade (repeatable; remembered)",
        **REPEATED,
    )
    add_job_arguments(parser)


def add_commit_arguments(parser: argparse.ArgumentParser) -> None:
    """The options about the commit, whatever is delivered."""
    option(parser, "--repo DIR", "the checkout to commit in", type=Path, required=True)
    option(
        parser,
        "--title TEXT",
        "the commit's title (default: by the target project's rule, as in '[Feature] Support NAME')",
    )
    option(parser, "--dry-run", "check everything and show the message and the files")
    option(
        parser,
        "--sign",
        "sign the commit (default: when git is set up to)",
        action=argparse.BooleanOptionalAction,
    )
    option(parser, "--pr", "push the branch and open a pull request with gh")


def run(args: argparse.Namespace) -> Result:
    """PASS when the commit is there; FAIL when a hook of the repository refused or changed it."""
    job = named_job(args)
    if args.include:
        include(job, args.repo, args.include, keep=not args.dry_run)
    list_gains(job)
    keeping = for_real() if args.include and args.dry_run else None
    delivery = prepare(job, args.repo, args.title, keeping)
    data = {"job": job.id, "tree": delivery.subject.tree}
    if args.dry_run:
        return planned(delivery, data)
    done = carry_out(job, delivery, sign=args.sign)
    opened = request(job, delivery) if args.pr and done.sha else None
    result = outcome(delivery, done, data, refused=upgrade("next", *naming(job)), request=opened)
    return _with_emulated(result, job, delivery.pending) if done.sha else result


def _with_emulated(result: Result, job: Job, pending: Sequence[str]) -> Result:
    """The result with what the emulated runs did not show: those that ran, and those still to wait for."""
    left = not_run(pending)
    silent = [cut(one, _SILENT) for one in pending if one not in left]
    if left:
        number = "1 emulated run is" if len(left) == 1 else f"{len(left)} emulated runs are"
        result.summary += f"; {number} pending: wait for them"
        result.next = upgrade("emulate", "--rest", *naming(job))
    if silent:
        result.data["not_shown"] = silent
        result.brief = (result.brief or {}) | {"not_shown": silent}
    return result


def planned(delivery: Delivery, data: dict[str, Any], files: Sequence[str] = ()) -> Result:
    """What a dry run found: the commit that would be made, and ``files`` that would be written beside it."""
    place = delivery.place
    amends = f", amending {place.head[:12]}" if place.earlier else ""
    summary = f"would commit {len(delivery.changed)} files on {place.branch}{amends}"
    found = _data(delivery) | data
    # nothing is cut: to read the message is what it is run for
    return Result(Verdict.PASS, summary, found, _listing(delivery, files), for_real(), found)


def for_real() -> Command:
    """The command that is being run, without ``--dry-run``."""
    program, name, *arguments = current()
    return Command(program, name, tuple(word for word in arguments if word != "--dry-run"))


def outcome(
    delivery: Delivery,
    done: Done,
    data: dict[str, Any],
    *,
    refused: Command,
    files: Sequence[str] = (),
    request: str | None = None,
) -> Result:
    """What became of the commit; ``refused`` is the command to run when a hook refused it.

    ``request`` is the address of its pull request when it is published.
    """
    place = delivery.place
    if done.sha is None:
        text = f"{done.notes}\n\nHEAD and the index are unchanged."
        more = {"hook_output": done.notes}
        return Result(Verdict.FAIL, done.problem, _data(delivery) | data | more, text, refused)
    made = "was already there" if not done.new else "amended" if place.earlier else "made"
    parts = [f"commit {done.sha[:12]} {made} on {place.branch}"]
    push = push_command(place)
    if place.pushed and done.new and not request:
        parts.append(f"{', '.join(place.pushed)} has the old one: push with --force-with-lease")
    parts += [delivery.said] if delivery.said else []
    parts += [f"pull request {request}"] if request else []
    signed = {"signed_off": True, "gpg_signed": is_signed(place.checkout, done.sha)}
    more = (
        ({"pull_request": request} if request else {})
        | signed
        | {
            "commit": done.sha,
            "new": done.new,
            "pushed_before": place.pushed,
            "push": push and str(push),
        }
    )
    text = "\n\n".join(part for part in (done.notes, _listing(delivery, files)) if part)
    show = Command("git", "-C", (str(place.checkout.root), "show", "--stat", done.sha))
    step = show if request else push or show
    brief = {"files": delivery.changed} | signed | ({"left": list(delivery.left)} if delivery.left else {})
    return Result(Verdict.PASS, "; ".join(parts), _data(delivery) | data | more, text, step, brief)


def _data(delivery: Delivery) -> dict[str, Any]:
    return {
        "branch": delivery.place.branch,
        "files": delivery.changed,
        "message": delivery.text,
        "npu_validation": delivery.validation,
        "left": list(delivery.left),
    }


def _listing(delivery: Delivery, files: Sequence[str]) -> str:
    left = [f"  not delivered (--include adds it): {path}" for path in delivery.left]
    return delivery.text + "\n" + "\n".join([*(f"  {path}" for path in [*delivery.changed, *files]), *left])
