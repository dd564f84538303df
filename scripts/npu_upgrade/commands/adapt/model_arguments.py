"""The options of the commands that look at a model, and the sources and the state they name."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import msgspec

from npu_upgrade.artifacts.state import make_model_folder
from npu_upgrade.checkpoint.locate import MODELS
from npu_upgrade.checkpoint.registry import REGISTRY, plugin_models, read_ascend
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_json
from npu_upgrade.job.adaptation import plain_name
from npu_upgrade.job.stages import find_workspace
from npu_upgrade.sources.installed import Installed, installed
from npu_upgrade.sources.tree import SourceTree, open_source

ROOTS = {"vllm": Path("/vllm-workspace/vllm"), "ascend": Path("/vllm-workspace/vllm-ascend")}


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL, where models are, and the sources of vLLM and vllm-ascend."""
    parser.add_argument(
        "model", metavar="MODEL", help="a folder, a name below --models, or a Hugging Face id"
    )
    option(parser, "--models DIR", f"where models are (default: {MODELS})", type=Path, default=MODELS)
    for name, root in ROOTS.items():
        option(
            parser,
            f"--{name} SPEC",
            f"a folder, pypi:NAME==VERSION or git:PATH@REF (default: {root} if it exists)",
        )
    option(
        parser,
        "--python FILE",
        "an interpreter with vLLM: its source and plugins are used, and vLLM is queried",
        type=Path,
    )
    add_workspace_argument(parser)


def named_sources(args: argparse.Namespace) -> Sources:
    """The trees the options name. Raises :class:`BadInput` when one is not what it should be."""
    found = installed(args.python, ("vllm", "vllm-ascend")) if args.python else Installed("")
    folders = {one.name: (one.editable and one.checkout) or one.folder for one in found.packages}
    vllm = _tree("vllm", args.vllm, folders.get("vllm"), REGISTRY)
    ascend = _tree("ascend", args.ascend, folders.get("vllm-ascend"), "vllm_ascend/__init__.py")
    return Sources(vllm, read_ascend(ascend) if ascend else None, plugin_models(found.adapters))


def _tree(option: str, given: str | None, folder: str | None, file: str) -> SourceTree | None:
    """The source that was given, else the installed one, else the one at its usual place; it has ``file``."""
    usual = ROOTS[option]
    if not given and not folder and not usual.is_dir():
        return None
    spec = given or f"dir:{folder or usual}"
    tree = open_source(spec if re.match(r"(?:pypi|git|dir):", spec) else f"dir:{spec}")
    if not tree.exists(file):
        project = "vLLM" if option == "vllm" else "vllm-ascend"
        raise BadInput(
            f"{tree.spec} has no {file}",
            expected=f"a source of {project}",
            try_=f"--{option} with a checkout, or pypi:{project.lower()}==VERSION",
        )
    return tree


def options_again(args: argparse.Namespace, *names: str) -> list[str]:
    """Options as they were given, for a command to be run next; those that were not given are left out."""
    found = []
    for name in names:
        value = getattr(args, name)
        for one in value if isinstance(value, list) else [value]:
            found += [f"--{name.replace('_', '-')}", str(one)] if one else []
    return found


def model_options(args: argparse.Namespace) -> list[str]:
    """The options of :func:`add_model_arguments` again."""
    models = [] if args.models == MODELS else ["models"]
    return options_again(args, *models, "vllm", "ascend", "python", "workspace")


def state_folder(args: argparse.Namespace, name: str) -> Path:
    """``.npu-upgrade/adapt/<model name>`` of the workspace, made when it is missing."""
    if args.workspace and not args.workspace.is_dir():
        raise BadInput(f"no folder {args.workspace}", expected="a workspace", try_="--workspace DIR")
    return make_model_folder(args.workspace or find_workspace(Path.cwd()), plain_name(name))


def write_state(args: argparse.Namespace, name: str, file: str, value: msgspec.Struct) -> Path:
    """Keep a result of this model's job; returns where."""
    path = state_folder(args, name) / file
    write_json(path, msgspec.to_builtins(value))
    return path
