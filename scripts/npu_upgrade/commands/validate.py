"""Climb the ladder of gates: what this machine can prove, or on NPUs everything.

Without an NPU: static (audit), emulated dry-run (emulate), CPU with dummy weights, CPU with real weights,
each labelled so; what the machine cannot do is BLOCKED and the rest goes on. With --npu: for every cell of
a matrix dummy weights, real weights, features, capacity and accuracy; BLOCKED with what is missing where
there is no NPU. Only NPU real signs a model off.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from npu_upgrade.commands.arguments import listed, positive, some_of
from npu_upgrade.commands.evidence import overview
from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.evidence.store import workspace_store
from npu_upgrade.gates.serving.device import missing_for_npu, npu_count
from npu_upgrade.gates.serving.session import named_python
from npu_upgrade.gates.validation import matrix, on_ray
from npu_upgrade.gates.validation.matrix import GATES, Cell
from npu_upgrade.gates.validation.rungs import NAMES, Outcome, Subject, cell_rung, climb, rungs, together
from npu_upgrade.gates.vllm_cpu import tiny
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput, Blocked, UpgradeError
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.stages import find_workspace
from npu_upgrade.sources.installed import Installed, serving

EXAMPLES = """
--omni pypi:vllm-omni==0.24.0 --ascend pypi:vllm-ascend==0.24.0rc1
--rungs cpu-dummy,cpu-real --model ./my-model
--npu --model /models/Qwen3-8B --tp 1,2 --gates dummy,real
--npu --matrix matrix.yaml --ray auto"""
_RELEASED = (
    "pypi:vllm-omni==0.24.0",
    "pypi:vllm-ascend==0.24.0rc1",
)  # what is validated where there is no job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--npu", action="store_true", help="the ladder of a machine with NPUs")
    parser.add_argument(
        "--model", default="", metavar="MODEL", help="the model; with --matrix, part of its name"
    )
    parser.add_argument(
        "--rungs",
        type=some_of(NAMES),
        default=NAMES,
        metavar="LIST",
        help=f"without --npu: some of {','.join(NAMES)}",
    )
    parser.add_argument(
        "--omni", metavar="SPEC", help="without --npu: the vllm-omni (default: the workspace's upgrade)"
    )
    parser.add_argument("--ascend", metavar="SPEC", help="the vllm-ascend to it")
    parser.add_argument(
        "--matrix",
        type=Path,
        metavar="FILE",
        help="with --npu: models, sizes and gates (references/serving.md)",
    )
    parser.add_argument(
        "--gates",
        type=some_of(GATES),
        default=(),
        metavar="LIST",
        help=f"with --npu: some of {','.join(GATES)}",
    )
    parser.add_argument(
        "--tp",
        type=lambda text: [positive(int)(one) for one in listed(text)],
        default=(),
        metavar="LIST",
        help="with --npu: tensor-parallel sizes",
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="with --npu: cells as tasks of this Ray cluster (auto: the running one)",
    )
    parser.add_argument(
        "--python",
        default="",
        metavar="PYTHON",
        help="the interpreter that serves (default: cpu; with --npu: of the vllm on PATH)",
    )
    add_workspace_argument(parser)
    parser.set_defaults(passed_on=[])  # what follows -- goes to every vllm serve


def run(args: argparse.Namespace) -> Result:
    """The worst verdict of what ran; BLOCKED when nothing could."""
    if args.npu:
        return _on_npus(args)
    subject = _subject(args, args.rungs)
    note = f"no upgrade is here: {' on '.join(_RELEASED)} against itself\n" if subject.itself else ""
    note += "on hardware: make validate-npu"
    return _result(climb(rungs(subject, args.rungs)), subject.workspace, note)


def _subject(args: argparse.Namespace, names: Sequence[str]) -> Subject:
    workspace = args.workspace or find_workspace(Path.cwd())
    omni, ascend = args.omni, args.ascend
    if omni and not ascend:
        raise BadInput("--omni without --ascend", expected="the vllm-ascend it runs on", try_="--ascend SPEC")
    itself = ascend is None and not (workspace / WORKSPACE_DIR / "current").is_file()
    if itself:
        omni, ascend = _RELEASED
    own = not args.model and any(name.startswith("cpu") for name in names)
    arguments = tuple(args.passed_on) or (("--enforce-eager", "--max-model-len", "256") if own else ())
    try:
        model = str(tiny("successor")) if own else args.model
        expectations = Path(model) / "gate.yaml" if own else None
    except Blocked:  # the rungs that serve say the same, each for itself; the others go on
        model, expectations = "successor", None
    return Subject(workspace, omni, ascend, model, expectations, args.python or "cpu", arguments, itself)


def _on_npus(args: argparse.Namespace) -> Result:
    cells = _cells(args)
    workspace = args.workspace or find_workspace(Path.cwd())
    python = _interpreter(args.python or "auto", needed=bool(args.ray))
    if args.ray:
        planned = [cell_rung(cell, str(python), str(workspace)) for cell in cells]
        sizes, store = [cell.tp for cell in cells], workspace_store(workspace)
        return _result(on_ray.run(planned, sizes, args.ray, str(python), store), workspace)
    if lacks := missing_for_npu(_installed(python)):
        raise Blocked(
            "this machine cannot run the gates on hardware: " + "; ".join(lacks),
            expected="an Ascend machine: driver, npu-smi, and vllm with vllm-ascend and torch-npu",
            try_=f"run it there and bring the evidence back: {upgrade('evidence', 'pack').short}, then "
            f"{upgrade('evidence', 'import').short}",
        )
    planned = [cell_rung(cell, str(python), str(workspace), npu_count()) for cell in cells]
    return _result(climb(planned), workspace)


def _cells(args: argparse.Namespace) -> list[Cell]:
    gates, sizes = args.gates, args.tp
    if args.matrix:
        return matrix.select(matrix.load(args.matrix), args.model, gates, sizes)
    if not args.model:
        raise BadInput(
            "no model is named",
            expected="--model or --matrix",
            try_="make validate-npu MODEL=/models/Qwen3-8B",
        )
    return matrix.single(args.model, sizes, gates)


def _interpreter(text: str, needed: bool) -> Path | None:
    try:
        return named_python(text)
    except Blocked:
        if needed:
            raise
        return None  # one of several things that are missing, which are said together


def _installed(python: Path | None) -> Installed | None:
    try:
        return serving(python, dict(os.environ), Path.cwd()) if python else None
    except UpgradeError:
        return None


def _result(outcomes: Sequence[Outcome], workspace: Path, note: str = "") -> Result:
    verdict = together(outcomes)
    rows = [(one.rung.name, one.label, one.state, f"{one.seconds:.0f}", one.why[:100]) for one in outcomes]
    text = table(("rung", "label", "verdict", "s", ""), rows)
    summary = ", ".join(f"{one.rung.name} {one.state}" for one in outcomes)
    # only real weights that passed on an NPU sign a model off
    signed_off = any(one.data.get("label") == "NPU real" and one.verdict is Verdict.PASS for one in outcomes)
    data = {"rungs": [one.as_json() for one in outcomes], "verified_on_npu": signed_off}
    return Result(verdict, summary, data, f"{text}\n\n{note}".strip(), next=overview(workspace))
