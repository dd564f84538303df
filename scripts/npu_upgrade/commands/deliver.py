"""Deliver an upgrade as one signed-off commit on the branch merge --apply made.

Refuses when anything but the reviewed files would get in, or when the evidence is missing,
failed, or of other contents. A second delivery of the same job amends its own commit.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.delivery.delivery import Delivery, carry_out, prepare, push_command
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.job import Job, naming
from npu_upgrade.job.upgrade import PENDING

HELP = "make the one signed-off commit of an upgrade"
EXAMPLES = """  upgrade.py deliver --repo ../vllm-omni --dry-run
  upgrade.py deliver --repo ../vllm-omni
  upgrade.py deliver --repo ../vllm-omni --title "[NPU] Upgrade to vllm-ascend 0.23.0" --sign"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", type=Path, required=True, metavar="PATH", help="the checkout to commit in")
    add_job_arguments(parser)
    parser.add_argument(
        "--title", metavar="TEXT", help="the commit's title (default: by the target project's rule)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything and show the message and the files"
    )
    parser.add_argument(
        "--sign",
        action=argparse.BooleanOptionalAction,
        help="sign the commit (default: when git is set up to)",
    )


def run(args: argparse.Namespace) -> Result:
    """PASS when the commit is there; FAIL when a hook of the repository refused or changed it."""
    job = named_job(args)
    delivery = prepare(job, args.repo, args.title)
    listing = delivery.text + "\n" + "\n".join(f"  {path}" for path in delivery.changed)
    data = {
        "job": job.id,
        "branch": delivery.branch,
        "files": delivery.changed,
        "message": delivery.text,
        "tree": delivery.subject.tree,
        "npu_validation": delivery.validation,
    }
    if args.dry_run:
        amends = f", amending {delivery.earlier.sha[:12]}" if delivery.earlier else ""
        summary = f"would commit {len(delivery.changed)} files on {delivery.branch}{amends}"
        return Result(Verdict.PASS, summary, data, listing, _for_real(args, job))
    done, new = carry_out(delivery, sign=args.sign)
    if done.sha is None:
        text = f"{done.notes}\n\nHEAD and the index are as they were."
        data |= {"hook_output": done.notes}
        command = shlex.join(["upgrade.py", "next", *naming(job)])
        return Result(Verdict.FAIL, done.problem, data, text, command)
    return _delivered(delivery, data | {"commit": done.sha}, new, listing, done.notes)


def _for_real(args: argparse.Namespace, job: Job) -> str:
    options = ["--repo", str(args.repo), *naming(job)]
    options += ["--title", args.title] if args.title is not None else []
    options += [] if args.sign is None else ["--sign" if args.sign else "--no-sign"]
    return shlex.join(["upgrade.py", "deliver", *options])


def _delivered(delivery: Delivery, data: dict, new: bool, listing: str, notes: str) -> Result:
    made = "amended" if delivery.earlier else "made"
    parts = [f"commit {data['commit'][:12]} {made if new else 'was already there'} on {delivery.branch}"]
    if delivery.pushed and new:
        parts.append(f"{', '.join(delivery.pushed)} has the one before: push with --force-with-lease")
    if delivery.pending:
        parts.append(PENDING)
    text = "\n\n".join(part for part in (notes, listing) if part)
    push = push_command(delivery)
    data |= {"new": new, "pushed_before": delivery.pushed, "push": push}
    return Result(Verdict.PASS, "; ".join(parts), data, text, push)
