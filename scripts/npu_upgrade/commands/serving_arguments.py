"""What the commands that serve a model have in common: their options, and how they record a run and go on."""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.locate import MODELS
from npu_upgrade.checkpoint.steps import planned_family
from npu_upgrade.commands.arguments import REPEATED, option, pair, positive
from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.evidence.chain import OfJob
from npu_upgrade.evidence.store import DRY_RUN, workspace_store
from npu_upgrade.gates.plugin import Unfit
from npu_upgrade.gates.reference.compare import find
from npu_upgrade.gates.serving.checks import PASS
from npu_upgrade.gates.serving.gate import Options, Served
from npu_upgrade.gates.serving.gate_file import load
from npu_upgrade.gates.serving.hub import check_reachable
from npu_upgrade.gates.serving.launch import (
    DUMMY,
    EMULATED_TOKENS,
    OMNI,
    REAL,
    Launch,
    devices,
    sized_for_emulation,
)
from npu_upgrade.gates.serving.record import record
from npu_upgrade.gates.serving.session import (
    Session,
    Stopped,
    clear_leftovers,
    model_place,
    prepare,
    takes_images,
)
from npu_upgrade.gates.serving.watch import BUDGETS, STILL
from npu_upgrade.ground.command import ADAPT, Command, current, program, upgrade
from npu_upgrade.ground.errors import Blocked, UpgradeError
from npu_upgrade.ground.paths import WORK_DIR
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.adaptation import after_gate, gate_of, note_halt
from npu_upgrade.job.serving import CPU, Planned, planned
from npu_upgrade.job.stages import find_workspace
from npu_upgrade.job.upgraded import upgraded_in
from npu_upgrade.sources.installed import Installed, misplaced


def add_serving_arguments(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The model, the interpreter that serves it, and how it is started and judged.

    ``optional``: the command does something without a model, too.
    """
    parser.add_argument(
        "model",
        nargs="?" if optional else None,
        metavar="MODEL",
        help=f"its folder, a name below {MODELS}, or a Hugging Face id",
    )
    parser.set_defaults(passed_on=[])  # what follows -- goes to vllm serve as it is
    option(
        parser,
        "--load-format",
        "weights: real (default) or dummy, the fast gate",
        choices=(DUMMY, REAL),
        default=REAL,
    )
    option(
        parser,
        "--python PYTHON",
        "the interpreter with vllm; auto: that of the vllm on PATH; cpu or cpu:VERSION: our own",
        default="auto",
    )
    option(
        parser,
        "--omni",
        "vllm serve --omni, with vllm-omni's stages (default: inside an upgrade of vllm-omni)",
        action=argparse.BooleanOptionalAction,
    )
    option(
        parser,
        "--emulated",
        "serve on the emulated NPU, in an environment for the planned vllm-ascend or in that of "
        "--python; always labelled emulated",
    )
    option(parser, "--gate FILE", "a gate file: requests and what their answers have to be", type=Path)
    option(parser, "--port N", "the port (default: any free one)", type=int)
    option(parser, "--work-dir DIR", f"its working folder ({WORK_DIR} if it exists, else here)", type=Path)
    option(parser, "--env NAME=VALUE", "set for the server", type=pair, **REPEATED)
    option(
        parser,
        "--expect-import PACKAGE=DIR",
        "fail unless PACKAGE is imported from below DIR, for instance vllm=/vllm-workspace/vllm",
        type=pair,
        **REPEATED,
    )
    option(parser, "--keep-pythonpath", "keep PYTHONPATH; for diagnosis only")
    option(parser, "--generations N", "generations it has to survive (3)", type=positive(int), default=3)
    option(parser, "--quiet S", "seconds in which nothing may end (5)", type=float, default=5.0)
    add_budget_argument(
        parser,
        "most seconds per phase: " + ", ".join(f"{name} {most:.0f}" for name, most in BUDGETS.items()),
    )
    option(
        parser,
        "--still S",
        f"seconds without log or work: a hang ({STILL:.0f})",
        type=float,
        default=STILL,
    )
    option(parser, "--answer S", "most seconds per answer (120)", type=float, default=120.0)
    add_workspace_argument(parser)


def add_budget_argument(parser: argparse.ArgumentParser, text: str) -> None:
    """``--budget PHASE=S``, repeatable, explained by ``text``: pairs of a phase and its most seconds."""
    option(parser, "--budget PHASE=S", text, type=_budget, **REPEATED)


def _budget(text: str) -> tuple[str, float]:
    phase, value = pair(text)
    if phase not in BUDGETS:
        raise argparse.ArgumentTypeError(f"{phase} is none of {', '.join(BUDGETS)}")
    return phase, positive(float)(value)


def asked(args: argparse.Namespace) -> Session:
    """Everything the options ask for; raises before anything starts.

    Inside an upgrade the code that serves has to be that of its checkout, unless it is told otherwise. The
    plugin of a model that is being adapted is installed into an environment of its own; ``--emulated``
    makes its environment for the planned vllm-ascend.
    """
    model = model_place(args.model)
    store = workspace_store(args.workspace or find_workspace(Path.cwd()))
    like = planned_family(store.workspace, model)
    options = Options(
        generations=args.generations,
        quiet=args.quiet,
        still=args.still,
        answer=args.answer,
        budgets=BUDGETS | dict(args.budget),
        images=takes_images(model, like),
        requests=load(args.gate) if args.gate else (),
    )
    expected = {name: Path(at) for name, at in args.expect_import}
    upgraded = None if program() == ADAPT else upgraded_in(store.workspace)
    own = upgraded.packages if upgraded else {}
    omni = OMNI in own if args.omni is None else args.omni
    if omni == (OMNI in own):  # a plain server in an upgrade of vllm-omni is about something else
        expected = own | expected
    check_reachable(model)
    place = planned(store.workspace, model) if program() == ADAPT else Planned()
    python, variables = place.python(args.python, emulated=args.emulated)
    ranks = devices(args.passed_on)
    count = {"NPU_EMULATOR_DEVICES": str(ranks)} if args.emulated else {}
    if args.python == CPU and not args.emulated and ranks > 1:  # it wants a NUMA node for each rank
        count = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    launch = Launch(
        model=model,
        python=python,
        load_format=args.load_format,
        omni=omni,
        arguments=sized_for_emulation(args.passed_on) if args.emulated else tuple(args.passed_on),
        environment=count | variables | dict(args.env),
        plugin=place.plugin.package if place.plugin else "",
        cwd=(args.work_dir or (WORK_DIR if WORK_DIR.is_dir() else Path.cwd())).absolute(),
        port=args.port,
        overlay=args.keep_pythonpath or args.emulated,
    )
    options = replace(options, tokens=EMULATED_TOKENS) if args.emulated else options
    options = replace(options, as_there=lambda *asked: find(launch, None, like).as_there(*asked))
    session = prepare(launch, options, store, emulated=args.emulated, expected=expected)
    clear_leftovers()
    return replace(session, like=like)


def conclude(
    session: Session,
    gate: str,
    runs: Sequence[Served],
    verdict: Verdict,
    summary: str,
    text: str,
    more: Mapping[str, Any],
    stopped: Stopped,
    **details: Any,
) -> Result:
    """Record the starts of a gate, and say what comes next; an interruption goes on once they are recorded.

    ``more`` and ``details`` are for :func:`npu_upgrade.gates.serving.record.record`.
    """
    if gate in ("serve", "accuracy"):
        details["job"] = served_job(session.store.workspace, session.installed)
    line, result = record(
        session.store, gate, runs, session.installed, verdict=verdict, summary=summary, more=more, **details
    )
    result["job"] = line.job and line.job.id
    if isinstance(stopped, KeyboardInterrupt):
        raise stopped
    text += f"\n\nevidence: {result['folder']}"
    brief = _decided(result) if gate in ("serve", "features") else None
    return Result(verdict, f"{line.label}: {summary}", result, text, after(session, result, verdict), brief)


def _decided(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the verdict on a start and on its features comes from, without what is only looked up."""
    found = {name: result[name] for name in ("label", "model_name", "run", "folder")}
    checks = result["checks"]
    found["passed"] = ", ".join(dict.fromkeys(one["name"] for one in checks if one["state"] == PASS))
    found["checks"] = [one for one in checks if one["state"] != PASS]
    found["features"] = [
        {name: one[name] for name in ("feature", "status", "why") if one.get(name)}
        for one in result.get("features") or ()
    ]
    if reference := result.get("reference"):
        found["reference"] = {name: reference[name] for name in ("state", "why")}
    return {name: value for name, value in (found | {"root": result["root"]}).items() if value}


def noting(gate: str) -> Callable[[Callable[[argparse.Namespace], Result]], Callable[..., Result]]:
    """Of a gate of a model that is being adapted: that it started nothing is noted for ``next``, and why."""

    def of(run: Callable[[argparse.Namespace], Result]) -> Callable[..., Result]:
        @functools.wraps(run)
        def noted(args: argparse.Namespace) -> Result:
            def note(why: str, verdict: str, adding: Sequence[str] = ()) -> None:
                if program() == ADAPT and args.model:
                    workspace = args.workspace or find_workspace(Path.cwd())
                    stage = gate_of(gate, args.load_format, emulated=args.emulated)
                    note_halt(workspace, args.model, stage, current(), why, verdict, adding)

            try:
                result = run(args)
            except Blocked as error:
                note(f"{error.what}; {error.try_}", Verdict.BLOCKED.value, error.adding)
                raise
            except Unfit as error:
                note(f"{error.what}; {error.try_}", Verdict.FAIL.value)
                raise
            if "run" not in result.data:  # nothing was started, so that there is no evidence
                note(result.summary, result.verdict.value)
            return result

        return noted

    return of


def served_job(workspace: Path, installed: Installed) -> OfJob | None:
    """The current upgrade and its files as they are, when what it changes is served from its checkout."""
    upgraded = upgraded_in(workspace)
    if not upgraded or not upgraded.packages or misplaced(installed, upgraded.packages):
        return None
    return upgraded.of_job


def after(session: Session, result: Mapping[str, Any], verdict: Verdict) -> Command:
    """The next step of an adaptation after a PASS; else the evidence of this run."""
    workspace = session.store.workspace
    if program() == ADAPT and verdict is Verdict.PASS:
        with contextlib.suppress(UpgradeError):  # what ran is recorded and told, whatever ails the state
            launch = session.launch
            stage = gate_of(result["gate"], launch.load_format, emulated=result["label"] == DRY_RUN)
            return after_gate(workspace, launch.model, stage, current())
    action = "check" if verdict is Verdict.PASS and result["gate"] == "serve" else "show"
    return upgrade("evidence", action, result["run"], "--workspace", str(workspace))
