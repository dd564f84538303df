"""The options of the commands that look at a model, and the sources and the state they name."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.ascend import read_ascend
from npu_upgrade.checkpoint.locate import MODELS
from npu_upgrade.checkpoint.plugins import installed_plugins
from npu_upgrade.checkpoint.registry import REGISTRY
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.paths import workspace_root
from npu_upgrade.job.adaptation import plain_name
from npu_upgrade.job.job import find_workspace
from npu_upgrade.sources import SourceTree, open_source
from npu_upgrade.sources.installed import installed

ROOTS = {"vllm": Path("/vllm-workspace/vllm"), "ascend": Path("/vllm-workspace/vllm-ascend")}


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL, where models are, and the sources of vLLM and vllm-ascend."""
    parser.add_argument(
        "model", metavar="MODEL", help="a folder, a name below --models, or a Hugging Face id"
    )
    parser.add_argument(
        "--models", type=Path, default=MODELS, metavar="DIR", help=f"where models lie (default: {MODELS})"
    )
    for name, root in ROOTS.items():
        parser.add_argument(
            f"--{name}",
            metavar="SPEC",
            help=f"a folder, pypi:NAME==VERSION or git:PATH@REF (default: {root} when it is there)",
        )
    parser.add_argument(
        "--python",
        type=Path,
        metavar="FILE",
        help="an interpreter with vLLM: its source and plugins are used, and vLLM itself is asked",
    )
    parser.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="where .npu-upgrade keeps the results (default: the nearest above the present folder)",
    )


def named_sources(args: argparse.Namespace) -> Sources:
    """The trees the options name. Raises :class:`BadInput` when one is not what it should be."""
    found = _installed(args.python) if args.python else {}
    vllm = _tree(args.vllm, found.get("vllm"), ROOTS["vllm"])
    if vllm and not vllm.exists(REGISTRY):
        raise BadInput(
            f"{vllm.spec} has no {REGISTRY}",
            expected="a source of vLLM",
            try_="--vllm pypi:vllm==0.30.0, or a checkout",
        )
    ascend = _tree(args.ascend, found.get("vllm-ascend"), ROOTS["ascend"])
    if ascend and not ascend.exists("vllm_ascend/__init__.py"):
        raise BadInput(
            f"{ascend.spec} has no vllm_ascend",
            expected="a source of vllm-ascend",
            try_="--ascend with a checkout",
        )
    plugins = installed_plugins(args.python) if args.python else {}
    return Sources(vllm, read_ascend(ascend) if ascend else None, plugins)


def _installed(python: Path) -> dict[str, str]:
    """What the interpreter has: the folder of each package's source."""
    packages = installed(python, ("vllm", "vllm-ascend")).packages
    return {one.name: one.checkout if one.editable and one.checkout else one.folder for one in packages}


def _tree(given: str | None, folder: str | None, root: Path) -> SourceTree | None:
    if given:
        return open_source(given if re.match(r"(?:pypi|git|dir):", given) else f"dir:{given}")
    if folder:
        return open_source(f"dir:{folder}")
    return open_source(f"dir:{root}") if root.is_dir() else None


def next_options(args: argparse.Namespace) -> list[str]:
    """The options again, for the command that is to be run next."""
    names = ("vllm", "ascend", "python", "workspace")
    pairs = [(f"--{name}", getattr(args, name, None)) for name in names]
    models = [] if args.models == MODELS else ["--models", str(args.models)]
    return [*models, *(text for name, value in pairs if value for text in (name, str(value)))]


def state_folder(args: argparse.Namespace, name: str) -> Path:
    """``.npu-upgrade/adapt/<model name>`` of the workspace, made when it is missing."""
    if args.workspace and not args.workspace.is_dir():
        raise BadInput(f"no folder {args.workspace}", expected="a workspace", try_="--workspace DIR")
    root = workspace_root(args.workspace or find_workspace(Path.cwd()))
    return root / "adapt" / plain_name(name)


def write_state(args: argparse.Namespace, name: str, file: str, value: dict[str, Any]) -> Path:
    """Keep a result of this model's job; returns where."""
    path = state_folder(args, name) / file
    write_json(path, value)
    return path
