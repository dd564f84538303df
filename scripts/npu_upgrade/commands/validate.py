"""Run the ladder of gates: what this machine can prove, or everything on NPUs.

Without an NPU: static (audit), emulated dry-run (emulate), CPU with dummy weights, CPU with real weights,
each with its label; what the machine cannot do is BLOCKED and the rest goes on. With --npu: dummy weights,
real weights, features, capacity and accuracy for every cell of a matrix; BLOCKED names what is missing if
there is no NPU. Only NPU real signs a model off. Inside an upgrade of vllm-omni it serves the omni stages
from the checkout; --before serves the old pair too and compares the two.

--pack writes one file instead of running here: python3 FILE validates this upgrade on a machine with NPUs
and without a network, and leaves the evidence for evidence import.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from npu_upgrade.commands.arguments import listed, option, positive, some_of
from npu_upgrade.commands.evidence import overview
from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.commands.serving_arguments import add_budget_argument
from npu_upgrade.evidence import chain
from npu_upgrade.evidence.store import NPU_REAL, workspace_store
from npu_upgrade.gates.serving.device import missing_for_npu, npu_count
from npu_upgrade.gates.serving.launch import OMNI
from npu_upgrade.gates.serving.session import named_python
from npu_upgrade.gates.validation import hardware, matrix, on_ray
from npu_upgrade.gates.validation.hardware import files_below
from npu_upgrade.gates.validation.matrix import GATES, Cell
from npu_upgrade.gates.validation.rungs import (
    NAMES,
    Outcome,
    Rung,
    Subject,
    cell_rung,
    climb,
    rungs,
    together,
)
from npu_upgrade.gates.vllm_cpu import tiny
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput, Blocked, UpgradeError
from npu_upgrade.ground.paths import SKILL, WORKSPACE_DIR
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.plan_file import plan_path
from npu_upgrade.job.stages import find_workspace, named_from_here
from npu_upgrade.job.upgraded import PACKED, upgraded_in
from npu_upgrade.sources.checkout import open_checkout
from npu_upgrade.sources.installed import Installed, serving

EXAMPLES = """
--omni pypi:vllm-omni==0.24.0 --ascend pypi:vllm-ascend==0.24.0rc1
--rungs cpu-dummy,cpu-real --model ./my-model
--npu --model /models/Qwen3-8B --tp 1,2 --gates dummy,real
--npu --matrix matrix.yaml --ray auto
--npu --model /models/Qwen3-Omni --before ~/old-pair/bin/python
--npu --model /models/Qwen3-Omni --pack validate-npu.pyz"""
# what is validated where there is no job
_RELEASED = ("pypi:vllm-omni==0.24.0", "pypi:vllm-ascend==0.24.0rc1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--npu", "run the ladder for NPUs")
    option(parser, "--model MODEL", "the model; with --matrix, part of its name", default="")
    option(
        parser,
        "--rungs LIST",
        f"without --npu: some of {','.join(NAMES)}",
        type=some_of(NAMES),
        default=NAMES,
    )
    option(parser, "--omni SPEC", "without --npu: the vllm-omni (default: the workspace's upgrade)")
    option(parser, "--ascend SPEC", "its vllm-ascend")
    option(parser, "--matrix FILE", "with --npu: models, sizes and gates (references/serving.md)", type=Path)
    option(parser, "--gates LIST", f"with --npu: some of {','.join(GATES)}", type=some_of(GATES), default=())
    option(
        parser,
        "--tp LIST",
        "with --npu: tensor-parallel sizes",
        type=lambda text: [positive(int)(one) for one in listed(text)],
        default=(),
    )
    option(
        parser,
        "--mode",
        "with --npu: vllm serve with or without --omni (default: omni inside an upgrade of vllm-omni)",
        choices=("omni", "plain"),
    )
    add_budget_argument(parser, "with --npu: most seconds per phase of each start, as for serve")
    option(
        parser,
        "--before PYTHON",
        "with --npu: the interpreter of the pair before the upgrade, to compare with",
        default="",
    )
    option(parser, "--pack FILE", "write a file that does this on a machine without a network", type=Path)
    option(parser, "--ray ADDRESS", "with --npu: run cells on this Ray cluster (auto: the running one)")
    option(
        parser,
        "--python PYTHON",
        "the interpreter that serves (default: cpu; with --npu: of the vllm on PATH)",
        default="",
    )
    add_workspace_argument(parser)
    parser.set_defaults(passed_on=[])  # what follows -- goes to every vllm serve


def run(args: argparse.Namespace) -> Result:
    """PASS when every rung passed, else FAIL before BLOCKED before INCONCLUSIVE."""
    if args.pack:
        return _pack(args)
    if args.npu:
        return _on_npus(args)
    subject = _subject(args, args.rungs)
    note = f"no upgrade here: {' on '.join(_RELEASED)} against itself\n" if subject.itself else ""
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
    python = _interpreter(args.python or "auto", needed=bool(args.ray))
    if not args.ray and (lacks := missing_for_npu(_installed(python))):
        raise Blocked(
            "this machine cannot run the gates on hardware: " + "; ".join(lacks),
            expected="an Ascend machine: driver, npu-smi, and vllm with vllm-ascend and torch-npu",
            try_=f"there; {upgrade('validate', '--npu', '--pack', 'FILE').short} writes one file for that, "
            f"and {upgrade('evidence', 'import').short} imports its evidence",
        )
    cells = [replace(one, budgets=dict(args.budget)) for one in _cells(args)]
    workspace = args.workspace or find_workspace(Path.cwd())
    _check_outside(workspace)
    if args.ray:
        upgraded = upgraded_in(workspace)  # a node has no job that would tell it
        if upgraded and OMNI in upgraded.packages:
            omni = [one if one.omni is not None else replace(one, omni=True) for one in cells]
            cells = [replace(one, expected=upgraded.packages) if one.omni else one for one in omni]
        planned = [cell_rung(cell, str(python), str(workspace)) for cell in cells]
        sizes, store = [cell.tp for cell in cells], workspace_store(workspace)
        return _result(on_ray.run(planned, sizes, args.ray, str(python), store), workspace)
    outcomes = climb([cell_rung(cell, str(python), str(workspace), npu_count()) for cell in cells])
    if args.before:
        outcomes += _compared(outcomes, cells, args.before, workspace)
    return _result(outcomes, workspace)


def _check_outside(workspace: Path) -> None:
    """Raise :class:`BadInput` for evidence that would go into the skill, which a reinstall wipes."""
    if workspace.resolve().is_relative_to(SKILL):
        raise BadInput(
            f"the evidence would be kept in {workspace}, which is the skill's own folder",
            expected="the workspace of the job, or a folder of yours",
            try_=f"--workspace DIR (make -C {SKILL} validate-npu WORKSPACE=DIR)",
        )


def _compared(
    outcomes: Sequence[Outcome], cells: Sequence[Cell], before: str, workspace: Path
) -> list[Outcome]:
    """Each cell with real weights that passed, served by the old pair, and the two runs compared."""
    old = named_python(before)
    installed = serving(old, dict(os.environ), Path.cwd())
    place = installed.folder(OMNI)
    found = []
    for cell, after in zip(cells, outcomes, strict=True):
        if cell.gate != "real" or after.verdict is not Verdict.PASS:
            continue
        omni = after.data.get("mode") == "omni"
        elsewhere = {OMNI: place} if omni and place else {}  # not from the checkout, which is the new one
        same = replace(cell, omni=omni, expected=elsewhere)
        rung = replace(cell_rung(same, str(old), str(workspace), npu_count()), name=f"{cell.name} before")
        found += climb([replace(rung, after="")])
        runs = [str(one.data.get("run")) for one in (found[-1], after)]
        command = upgrade("evidence", "compare", *runs, "--workspace", str(workspace))
        rung = Rung(f"{cell.name} compared", after.label, command)
        found += climb([rung]) if found[-1].verdict is Verdict.PASS else []
    return found


def _pack(args: argparse.Namespace) -> Result:
    """Write this upgrade, this bundle and what was asked for as one file."""
    workspace = args.workspace or find_workspace(Path.cwd())
    upgraded = upgraded_in(workspace)
    if upgraded is None or not upgraded.packages or not upgraded.origin.chain:
        raise BadInput(
            f"{workspace} has no upgrade that was applied to a checkout and judged there",
            expected="the workspace of merge --apply, after upgrade.py plan",
            try_="--workspace DIR; without an upgrade, copy the skill to that machine and validate there",
        )
    job, commit = upgraded.job, upgraded.commit
    state = f"checkout/{WORKSPACE_DIR}"
    files = {f"{state}/jobs/{job.id}/{one.name}": one.read_bytes() for one in files_below(job.folder)}
    files |= {f"{state}/evidence/{one.name}": one.read_bytes() for one in chain.files(job.store.folder)}
    files |= {f"{state}/current": job.id.encode(), f"{state}/jobs/{job.id}/{PACKED}": commit.encode()}
    files[f"{state}/jobs/{job.id}/plan.json"] = plan_path(job).read_bytes()
    there = {path: upgraded.root / path for path in upgraded.plan.files}
    files |= {f"checkout/{path}": one.read_bytes() for path, one in there.items() if one.is_file()}
    gone = [path for path, one in there.items() if not one.is_file()]
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-pack-") as scratch:
        archive = Path(scratch) / "checkout.tar"
        open_checkout(upgraded.root).git("archive", f"--output={archive}", commit)
        files[archive.name] = archive.read_bytes()
    version = (upgraded.plan.versions.get("omni") or {}).get("version") or f"0+g{commit[:12]}"
    hardware.write(args.pack, job.id, version, _words(args), files, gone)
    said = f"{args.pack} ({args.pack.stat().st_size >> 20} MiB) validates {job.id} on {commit[:12]}"
    text = f"there: python3 {args.pack.name}\nhere, with its result: evidence import FILE"
    data = {"pack": str(args.pack), "job": job.id, "commit": commit}
    then = upgrade("evidence", "import", "FILE", *named_from_here(workspace))
    return Result(Verdict.PASS, said, data, text, then)


def _words(args: argparse.Namespace) -> list[str]:
    """What was asked for here, for the other machine; files and models are named as they are there."""
    given = {"--model": args.model, "--mode": args.mode, "--before": args.before, "--matrix": args.matrix}
    given |= {"--gates": ",".join(args.gates), "--tp": ",".join(map(str, args.tp))}
    given |= {} if args.npu else {"--rungs": ",".join(args.rungs)}
    words = [word for name, value in given.items() if value for word in (name, str(value))]
    words += [word for phase, most in args.budget for word in ("--budget", f"{phase}={most:g}")]
    passed_on = ["--", *args.passed_on] if args.passed_on else []
    return [*(["--npu"] if args.npu else []), *words, *passed_on]


def _cells(args: argparse.Namespace) -> list[Cell]:
    gates, sizes = args.gates, args.tp
    omni = None if args.mode is None else args.mode == "omni"
    passed_on = tuple(args.passed_on)
    if args.matrix:
        chosen = matrix.select(matrix.load(args.matrix), args.model, gates, sizes)
        more = [replace(one, arguments=(*one.arguments, *passed_on)) for one in chosen]
        return [one if omni is None else replace(one, omni=omni) for one in more]
    if not args.model:
        raise BadInput(
            "no model given",
            expected="--model or --matrix",
            try_="make validate-npu MODEL=/models/Qwen3-8B",
        )
    return [replace(one, omni=omni, arguments=passed_on) for one in matrix.single(args.model, sizes, gates)]


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
    signed_off = any(one.data.get("label") == NPU_REAL and one.verdict is Verdict.PASS for one in outcomes)
    data = {"rungs": [one.as_json() for one in outcomes], "verified_on_npu": signed_off}
    return Result(verdict, summary, data, f"{text}\n\n{note}".strip(), next=overview(workspace))
