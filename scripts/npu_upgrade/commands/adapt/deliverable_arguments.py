"""The options of commands about one model's deliverables, and what they name."""

from __future__ import annotations

import argparse
from pathlib import Path

from npu_upgrade.artifacts.facts import Facts, gather
from npu_upgrade.artifacts.naming import Source, check_id, check_name, check_place
from npu_upgrade.artifacts.roots import Root, open_root
from npu_upgrade.artifacts.state import load_state
from npu_upgrade.commands.adapt.model_arguments import ROOTS
from npu_upgrade.commands.arguments import option
from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.store import workspace_store
from npu_upgrade.ground.paths import models_folder
from npu_upgrade.job.adaptation import name_of


def add_identity_arguments(parser: argparse.ArgumentParser) -> None:
    """``--name`` and ``--hf-id``."""
    option(parser, "--name NAME", "the name of its files (default: the last part of MODEL)")
    where = parser.add_mutually_exclusive_group()
    option(where, "--hf-id ORG/NAME", "where the weights are published, when MODEL is a folder")
    option(where, "--unpublished PATH", "for unpublished weights: their path in config and page")


def add_root_arguments(parser: argparse.ArgumentParser) -> None:
    """The implementation roots, and the commits their changes are counted from."""
    for name, project in (("vllm", "vLLM"), ("ascend", "vllm-ascend")):
        about = f"the {project} checkout with the work (default: {ROOTS[name]} if it is one)"
        option(parser, f"--{name} DIR", about, type=Path)
        option(parser, f"--{name}-base REF", "the commit its changes are counted from (default: HEAD)")


def gathered(args: argparse.Namespace, workspace: Path, roots: list[Root]) -> Facts:
    """What the evidence of the named model says, of the code in ``roots`` when there are any."""
    name = check_name(args.name) if args.name else None
    source = Source(check_id(args.hf_id) if args.hf_id else None, check_place(args.unpublished))
    # under the checkpoint's own name, whatever its files are to be called
    own = name_of(args.model)
    analysis = models_folder(workspace) / own / "analysis.json"
    if source.name is None:  # as it was given the last time
        source = load_state(models_folder(workspace) / (name or own)).source
    code = judged({root.package.name: root.package for root in roots})[0].files if roots else None
    return gather(workspace_store(workspace), args.model, analysis, name, source, code)


def roots_of(args: argparse.Namespace) -> list[Root]:
    """The implementation roots that were given, else those that are at their usual places."""
    usual = {name: root for name, root in ROOTS.items() if (root / ".git").exists()}
    vllm, ascend = args.vllm or usual.get("vllm"), args.ascend or usual.get("ascend")
    named = (("vllm", vllm, args.vllm_base), ("vllm-ascend", ascend, args.ascend_base))
    return [open_root(project, path, base) for project, path, base in named if path]
