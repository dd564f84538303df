"""Deliver an adapted model: one signed-off commit in --repo, the other project's change as a patch file.

The change of the implementation root of the same project (--vllm or --ascend) is taken over onto the branch
of --repo, together with what adapt.py artifacts wrote there; nothing else gets in. Refused are evidence that
is missing, failed, of other code, of dummy weights only, or (without --pending-npu) of a CPU only, gaps in
the deliverables that are not named, and changes that nobody named. A second delivery amends its own commit.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from npu_upgrade.artifacts.bundle import Bundle, Choices, make_bundle
from npu_upgrade.artifacts.facts import Facts, Gap
from npu_upgrade.artifacts.roots import Root
from npu_upgrade.artifacts.state import Written, load_state, make_model_folder, model_folder
from npu_upgrade.artifacts.tree_form import form_of
from npu_upgrade.commands.adapt.deliverable_arguments import (
    add_identity_arguments,
    add_root_arguments,
    gathered,
    roots_of,
)
from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.delivery.adapted.delivery import Delivery, Order, carry_out, prepare
from npu_upgrade.delivery.adapted.named import Named, planned_files
from npu_upgrade.delivery.adapted.proof import check_proof
from npu_upgrade.delivery.adapted.publication import Publication
from npu_upgrade.delivery.publish import push_arguments
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.advice import PENDING
from npu_upgrade.job.job import find_workspace

EXAMPLES = """  adapt.py deliver Qwen/Qwen3-8B --repo . --ascend /vllm-workspace/vllm-ascend --dry-run
  adapt.py deliver Qwen/Qwen3-8B --repo . --ascend /vllm-workspace/vllm-ascend --vllm /vllm-workspace/vllm
  adapt.py deliver Qwen/Qwen3-8B --repo . --include vllm_ascend/patch --pending-npu
  adapt.py deliver Qwen/Qwen3-8B --repo . --pr --comment 1608"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the model as the gates were given it, or its name")
    parser.add_argument("--repo", type=Path, required=True, metavar="DIR", help="the checkout to commit in")
    add_root_arguments(parser)
    add_identity_arguments(parser)
    for option, text in (
        ("--include", "a changed file, folder or pattern that belongs to the model (repeatable)"),
        ("--leave", "a changed file, folder or pattern that stays out of the commit (repeatable)"),
        ("--open", "a gap that is delivered open, and named in the commit (repeatable)"),
    ):
        parser.add_argument(option, action="append", default=[], metavar="NAME", help=text)
    parser.add_argument(
        "--pending-npu", action="store_true", help="accept real weights on a CPU; the commit says so"
    )
    parser.add_argument("--title", metavar="TEXT", help="the commit's title (default: by the project's rule)")
    parser.add_argument(
        "--patch-dir",
        type=Path,
        metavar="DIR",
        help="where the other project's patch goes (default: beside --repo)",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything and show it; change nothing")
    parser.add_argument(
        "--sign",
        action=argparse.BooleanOptionalAction,
        help="sign the commit (default: when git is set up to)",
    )
    parser.add_argument("--pr", action="store_true", help="push the branch and open a pull request with gh")
    parser.add_argument(
        "--comment", metavar="ISSUE", help="post the issue comment with gh: a number or an address"
    )
    add_workspace_argument(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS when the commit is there; FAIL when a hook of the repository refused or changed it."""
    workspace = args.workspace or find_workspace(Path.cwd())
    roots = roots_of(args)
    facts = gathered(args, workspace, roots)
    proof = check_proof(facts.runs, facts.current, facts.model, pending_npu=args.pending_npu)
    folder = model_folder(workspace, facts.name)
    bundle, written = _documents(args, facts, roots, folder)
    named = Named(planned_files(folder / "plan.json"), tuple(args.include), tuple(args.leave))
    order = Order(
        name=facts.name,
        repo=args.repo,
        roots=roots,
        named=named,
        documents=sorted({*written.files, *written.kept}),
        patch_dir=args.patch_dir,
        title=args.title,
        gaps=_open_gaps(args, facts),
    )
    delivery = prepare(facts, proof, order)
    data = _data(delivery, facts)
    if args.dry_run:
        return Result(Verdict.PASS, f"would {_summary(delivery)}", data, _listing(delivery), _for_real(args))
    done, new = carry_out(delivery, sign=args.sign)
    if done.sha is None:
        text = f"{done.notes}\n\nHEAD, the index and the files are as they were."
        return Result(Verdict.FAIL, done.problem, data | {"hook_output": done.notes}, text, _for_real(args))
    data |= {"commit": done.sha, "new": new}
    place = make_model_folder(workspace, facts.name)
    after = Publication(delivery, bundle.reports, place, done.sha)
    data |= {"report": str(after.write_report())}
    data |= {"pull_request": after.request()} if args.pr else {}
    data |= {"comment": after.comment(args.comment)} if args.comment else {}
    return _delivered(delivery, data, new, done.notes)


def _documents(
    args: argparse.Namespace, facts: Facts, roots: list[Root], folder: Path
) -> tuple[Bundle, Written]:
    """What artifacts wrote for this delivery: in the repository, or in a root; it has to be up to date."""
    state = load_state(folder)
    places = [args.repo, *(root.checkout.root for root in roots)]
    tree = next((place for place in places if state.of(place).files), None)
    again = shlex.join(["adapt.py", "artifacts", args.model, "--tree", str(tree or args.repo)])
    if tree is None:
        raise BadInput(
            f"nothing was generated for {facts.name} in {args.repo}",
            expected="accuracy config, tutorial and its entries beside the code",
            try_=again,
        )
    written = state.of(tree)
    changes = [one for root in roots for one in root.changed()] if roots else None
    bundle = make_bundle(facts, form_of(tree), written, Choices(keep=tuple(written.kept)), changes)
    if bundle.changed:
        raise BadInput(
            f"generated files are not as the evidence says: {', '.join(sorted(bundle.changed))}",
            expected="files that were generated from the runs of this code",
            try_=again,
        )
    return bundle, written


def _open_gaps(args: argparse.Namespace, facts: Facts) -> list[Gap]:
    """The gaps that were named; raises :class:`BadInput` for one that was not, and for a name of none."""
    ids = [gap.id for gap in facts.gaps]
    wrong = next((name for name in args.open if name not in ids), None)
    if wrong is not None:
        raise BadInput(
            f"there is no gap {wrong!r}",
            expected=f"one of {', '.join(ids)}" if ids else "no gap",
            try_="take --open out",
        )
    unnamed = next((gap for gap in facts.gaps if gap.id not in args.open), None)
    if unnamed:
        raise BadInput(
            f"the deliverables have a gap: {unnamed.what}",
            expected="every measurement there, or the gap named",
            try_=f"{unnamed.command}, then adapt.py artifacts; or --open {unnamed.id}: the commit names it",
        )
    return facts.gaps


def _data(delivery: Delivery, facts: Facts) -> dict[str, Any]:
    return {
        "model": facts.name,
        "branch": delivery.branch,
        "files": delivery.chosen.changed,
        "code": delivery.code,
        "message": delivery.text,
        "label": facts.label,
        "npu_validation": delivery.proof.validation,
        "patches": [str(patch.path) for patch in delivery.chosen.patches],
        "open_gaps": [gap.id for gap in facts.gaps],
        "runs": [run.id for run in delivery.proof.standing],
    }


def _summary(delivery: Delivery) -> str:
    amends = f", amending {delivery.earlier.sha[:12]}" if delivery.earlier else ""
    return f"commit {len(delivery.chosen.changed)} files on {delivery.branch}{amends}"


def _listing(delivery: Delivery) -> str:
    lines = [f"  {path}" for path in delivery.chosen.changed]
    lines += [f"  {patch.path} ({patch.project})" for patch in delivery.chosen.patches]
    return delivery.text + "\n" + "\n".join(lines)


def _delivered(delivery: Delivery, data: dict[str, Any], new: bool, notes: str) -> Result:
    made = "amended" if delivery.earlier else "made"
    parts = [f"commit {data['commit'][:12]} {made if new else 'was already there'} on {delivery.branch}"]
    parts += [PENDING] if delivery.proof.pending else []
    parts += [f"pull request {data['pull_request']}"] if "pull_request" in data else []
    text = "\n\n".join(part for part in (notes, _listing(delivery)) if part)
    push = push_arguments(delivery.checkout, delivery.branch, bool(delivery.pushed))
    root = str(delivery.checkout.root)
    publish = shlex.join(["git", "-C", root, *push]) if push and "pull_request" not in data else None
    show = shlex.join(["git", "-C", root, "show", "--stat", data["commit"]])
    return Result(Verdict.PASS, "; ".join(parts), data, text, publish or show)


def _for_real(args: argparse.Namespace) -> str:
    words = ["adapt.py", "deliver", args.model, "--repo", str(args.repo)]
    plain = (
        "vllm",
        "vllm_base",
        "ascend",
        "ascend_base",
        "name",
        "hf_id",
        "unpublished",
        "title",
        "patch_dir",
        "comment",
        "workspace",
    )
    for option in plain:
        value = getattr(args, option)
        words += [f"--{option.replace('_', '-')}", str(value)] if value is not None else []
    for option in ("include", "leave", "open"):
        words += [word for value in getattr(args, option) for word in (f"--{option}", value)]
    words += [f"--{option.replace('_', '-')}" for option in ("pending_npu", "pr") if getattr(args, option)]
    words += [] if args.sign is None else ["--sign" if args.sign else "--no-sign"]
    return shlex.join(words)
