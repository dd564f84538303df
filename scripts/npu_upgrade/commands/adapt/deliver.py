"""Deliver an adapted model: one signed-off commit in --repo, the other project's change as a patch file.

The commit takes the changes of the same project's implementation root (--vllm or --ascend) onto the branch
of --repo, with what adapt.py artifacts wrote there; nothing else gets in. Delivery is refused if evidence is
missing, failed, of other code, of dummy weights only, or (without --pending-npu) of a CPU only, and for
deliverable gaps or changes that nobody named. A gap that `next --skip` left out is named with its note; the
model's own plugin is included. A second delivery amends its own commit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from npu_upgrade.artifacts.render import REPORT
from npu_upgrade.artifacts.roots import Root
from npu_upgrade.commands.adapt.deliverable_arguments import (
    add_identity_arguments,
    add_root_arguments,
    gathered,
    roots_of,
)
from npu_upgrade.commands.arguments import REPEATED, option
from npu_upgrade.commands.deliver import add_commit_arguments, for_real, outcome, planned
from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.delivery.adaptation import Order, Part, carry_out, comment, prepare, request
from npu_upgrade.delivery.adaptation_files import Named, planned_files
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.paths import models_folder
from npu_upgrade.ground.verdict import Result
from npu_upgrade.job.adaptation import notes_of
from npu_upgrade.job.journal import Journal
from npu_upgrade.job.stages import find_workspace

EXAMPLES = """Qwen/Qwen3-8B --repo . --ascend /vllm-workspace/vllm-ascend --dry-run
Qwen/Qwen3-8B --repo . --ascend /vllm-workspace/vllm-ascend --vllm /vllm-workspace/vllm
Qwen/Qwen3-8B --repo . --include vllm_ascend/patch --pending-npu
Qwen/Qwen3-8B Qwen/Qwen3-32B --repo .
Qwen/Qwen3-8B --repo . --pr --comment 1608"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="+",
        metavar="MODEL",
        help="the model as given to the gates, or its name; several go into one commit",
    )
    add_commit_arguments(parser)
    add_root_arguments(parser)
    add_identity_arguments(parser)
    for name, about in (
        ("include", "a changed file, folder or pattern that belongs to the model (repeatable)"),
        ("leave", "a changed file, folder or pattern that stays out of the commit (repeatable)"),
        ("open", "a gap to leave open and name in the commit (repeatable)"),
    ):
        option(parser, f"--{name} NAME", about, **REPEATED)
    option(parser, "--pending-npu", "accept real weights on a CPU; the commit says so")
    option(
        parser, "--patch-dir DIR", "where the other project's patch goes (default: beside --repo)", type=Path
    )
    option(parser, "--comment ISSUE", "post the issue comment with gh: a number or an address")
    add_workspace_argument(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS when the commit is there; FAIL when a hook of the repository refused or changed it."""
    workspace = args.workspace or find_workspace(Path.cwd())
    if args.model[1:] and (args.name or args.hf_id or args.unpublished):
        raise BadInput(
            "a name or place is given for several models",
            expected="each as given to artifacts",
            try_="leave out --name, --hf-id and --unpublished",
        )
    roots = roots_of(args)
    parts = [_part(args, model, workspace, roots) for model in args.model]
    planned_ones = [path for part in parts for path in planned_files(part.folder / "plan.json", args.repo)]
    order = Order(
        parts=parts,
        repo=args.repo,
        roots=roots,
        named=Named(tuple(planned_ones), tuple(args.include), tuple(args.leave)),
        open_gaps=args.open,
        pending_npu=args.pending_npu,
        patch_dir=args.patch_dir,
        title=args.title,
    )
    adapted = prepare(order)
    patches = [str(path) for path in adapted.patches]
    data = {
        "model": ", ".join(part.facts.name for part in parts),
        "code": adapted.code,
        "label": ", ".join(dict.fromkeys(part.facts.label for part in parts)),
        "patches": patches,
        "open_gaps": list(dict.fromkeys(gap.id for part in parts for gap in part.facts.gaps)),
        "runs": [run.id for run in adapted.runs],
    }
    if args.dry_run:
        return planned(adapted.delivery, data, patches)
    done = carry_out(adapted, sign=args.sign)
    opened = None
    if done.sha:
        data |= {"report": ", ".join(str(part.folder / REPORT) for part in parts)}
        opened = request(adapted) if args.pr else None
        data |= {"comment": comment(adapted, done.sha, args.comment)} if args.comment else {}
    return outcome(adapted.delivery, done, data, refused=for_real(), files=patches, request=opened)


def _part(args: argparse.Namespace, model: str, workspace: Path, roots: list[Root]) -> Part:
    """One model of the delivery, with what was left out of it on the way."""
    facts = gathered(argparse.Namespace(**vars(args) | {"model": model}), workspace, roots)
    folder = models_folder(workspace) / facts.name
    return Part(facts, model, folder, notes_of(Journal(folder).skipped(), facts.gaps))
