"""Write the deliverables of a model's adaptation: accuracy config, tutorial with its entries, reports.

Every figure comes from a run that the evidence store can vouch for; what no run measured is a visible gap
with the command that fills it. Into the tree (--tree): tests/e2e/models/configs/NAME.yaml, the tutorial,
and its entries in nav, titles, index and support matrix, in the tree's own form. Beside it (--out): analysis
report and runbook in Chinese, and an issue comment. A second run changes only what it generated: it merges
edits by people, or refuses to run.
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from npu_upgrade.artifacts.bundle import Bundle, Choices, make_bundle
from npu_upgrade.artifacts.facts import Facts
from npu_upgrade.artifacts.roots import Root
from npu_upgrade.artifacts.state import STATE, load_state, make_model_folder
from npu_upgrade.commands.adapt.deliverable_arguments import (
    add_identity_arguments,
    add_root_arguments,
    gathered,
    roots_of,
)
from npu_upgrade.commands.adapt.model_arguments import options_again
from npu_upgrade.commands.arguments import REPEATED, option
from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.ground.command import Command, adapt
from npu_upgrade.ground.files import read_object, write_together
from npu_upgrade.ground.locks import locked
from npu_upgrade.ground.paths import models_folder
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.adaptation import DELIVERED, notes_of
from npu_upgrade.job.journal import Journal
from npu_upgrade.job.requirements import Gap
from npu_upgrade.job.stages import find_workspace
from npu_upgrade.job.tree_form import TreeForm, form_of

EXAMPLES = """/models/Qwen3-8B --tree ../vllm-ascend --hf-id Qwen/Qwen3-8B --dry-run
Qwen/Qwen3-8B --tree ../vllm-ascend
Qwen/Qwen3-8B --tree ../vllm-ascend --check
Qwen/Qwen3-8B --tree ../vllm-ascend --keep Qwen3-8B.md"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the model as given to the gates, or its name")
    option(parser, "--tree DIR", "the checkout that gets config and tutorial", type=Path, required=True)
    option(parser, "--out DIR", "where the reports go (default: in the workspace)", type=Path)
    add_identity_arguments(parser)
    add_root_arguments(parser)
    option(parser, "--keep FILE", "leave this generated file as it is (repeatable)", **REPEATED)
    option(
        parser,
        "--replace FILE",
        "regenerate this file although it was not written here; git must have its text",
        **REPEATED,
    )
    option(parser, "--reports", "add report and runbook to the tree, for the commit")
    option(
        parser, "--check", "write nothing; FAIL on a file out of date, INCONCLUSIVE on gaps without a note"
    )
    option(parser, "--dry-run", "write nothing; show the differences")
    add_workspace_argument(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS when everything is written; with --check FAIL for a file that is not up to date, and INCONCLUSIVE
    for gaps that no note left open."""
    workspace = args.workspace or find_workspace(Path.cwd())
    form = form_of(args.tree)
    roots = roots_of(args)
    facts = gathered(args, workspace, roots)
    with nullcontext() if args.check or args.dry_run else _alone(workspace):
        return _made(args, workspace, form, roots, facts)


def _alone(workspace: Path) -> AbstractContextManager[None]:
    """Models share entries of the tree, and may be written beside each other."""
    folder = models_folder(workspace)
    return locked(folder / "artifacts.lock") if folder.is_dir() else nullcontext()


def _made(
    args: argparse.Namespace, workspace: Path, form: TreeForm, roots: list[Root], facts: Facts
) -> Result:
    folder = models_folder(workspace) / facts.name
    state = load_state(folder)
    state.model, state.source = facts.model, facts.source
    state.runs, state.gaps = [run.id for run in facts.runs], [gap.id for gap in facts.document_gaps]
    before = state.of(args.tree)
    choices = Choices(tuple(args.keep), tuple(args.replace), args.reports or before.reports)
    changes = [one for root in roots for one in root.changed()] if roots else None
    bundle = make_bundle(facts, form, before, choices, changes)
    out = args.out or folder
    data = _data(bundle, facts, out)
    if args.check:
        return _checked(args, bundle, facts, data, folder)
    files = f"{len(bundle.changed)} of {len(bundle.files)} files in the tree"
    gaps = f"; {len(facts.gaps)} gaps: {', '.join(gap.id for gap in facts.gaps)}" if facts.gaps else ""
    if args.dry_run:
        text = bundle.diff() + "".join(f"\n--- {name} ---\n{text}" for name, text in bundle.reports.items())
        return Result(Verdict.PASS, f"would change {files}{gaps}", data, text, _again(args))
    make_model_folder(workspace, facts.name)
    texts = {args.tree / path: text for path, text in bundle.changed.items()}
    texts |= {out / name: text for name, text in bundle.reports.items()}
    write_together(texts | {folder / STATE: state.text(args.tree, bundle.written)})
    step = _filling(args, facts.gaps, folder) if facts.gaps else _again(args, "--check")
    return Result(Verdict.PASS, f"{files} changed{gaps}", data, _listing(bundle, facts), step)


def _checked(
    args: argparse.Namespace, bundle: Bundle, facts: Facts, data: dict[str, Any], folder: Path
) -> Result:
    stale = sorted(bundle.changed)
    text = _listing(bundle, facts)
    unanswered = [gap.id for gap in _unanswered(facts.gaps, folder)]
    noted = notes_of(Journal(folder).skipped(), facts.gaps)
    left = [gap.id for gap in facts.gaps if gap.id in noted]
    named = [gap.id for gap in facts.gaps if gap.id not in {*noted, *unanswered}]
    gaps = f"; {len(unanswered)} gaps: {', '.join(unanswered)}" if unanswered else ""
    gaps += f"; left open with a note: {', '.join(left)}" if left else ""
    gaps += f"; named in the commit: {', '.join(named)}" if named else ""
    if stale:
        summary = f"{len(stale)} files are not as the evidence says: {', '.join(stale)}{gaps}"
        return Result(Verdict.FAIL, summary, data, text, _again(args))
    verdict = Verdict.INCONCLUSIVE if unanswered else Verdict.PASS
    summary = f"{len(bundle.files)} files are up to date{gaps or ', without a gap'}"
    return Result(verdict, summary, data, text, _filling(args, facts.gaps, folder) if facts.gaps else None)


def _unanswered(gaps: list[Gap], folder: Path) -> list[Gap]:
    """Those that nobody left open with a note, or named in the delivered commit."""
    named = read_object(folder / DELIVERED).get("open") or []
    answered = {*notes_of(Journal(folder).skipped(), gaps), *named}
    return [gap for gap in gaps if gap.id not in answered]


def _filling(args: argparse.Namespace, gaps: list[Gap], folder: Path) -> Command:
    """The command that fills the first gap that nobody left open, in this workspace and for this tree."""
    gap = next(iter(_unanswered(gaps, folder)), None)
    if gap is not None and gap.id == "hf-id":
        return _again(args, "--hf-id", "ORG/NAME")
    command = gap.command if gap else adapt("next", folder.name)
    return command.adding(*options_again(args, "workspace"))


def _data(bundle: Bundle, facts: Facts, out: Path) -> dict[str, Any]:
    return {
        "name": facts.name,
        "form": bundle.form.kind,
        "label": facts.label,
        "files": sorted(bundle.files),
        "changed": sorted(bundle.changed),
        "reports": [str(out / name) for name in bundle.reports],
        "gaps": [gap.as_json() for gap in facts.gaps],
        "runs": [run.id for run in facts.runs],
    }


def _listing(bundle: Bundle, facts: Facts) -> str:
    changed = dict.fromkeys(bundle.changed, "changed")
    lines = [f"  {changed.get(path, 'same   ')}  {path}" for path in sorted(bundle.files)]
    lines += [f"  gap      {gap.id}: {gap.what}\n           {gap.command}" for gap in facts.gaps]
    return "\n".join(lines)


def _again(args: argparse.Namespace, *more: str) -> Command:
    names = ("tree", "name", "hf_id", "unpublished", "out", "vllm", "vllm_base", "ascend", "ascend_base")
    options = options_again(args, *names, "workspace", "keep", "replace")
    return adapt("artifacts", args.model, *options, *more)
