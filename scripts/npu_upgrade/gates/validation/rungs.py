"""The rungs of a ladder as commands of this bundle, and how each ended."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.store import DRY_RUN, NPU_REAL
from npu_upgrade.gates.validation.matrix import Cell
from npu_upgrade.ground.command import Command, answered, upgrade
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.verdict import Verdict

NAMES = ("static", "emulated", "cpu-dummy", "cpu-real")
_VERDICTS = {verdict.exit_code: verdict for verdict in Verdict}


@dataclass(frozen=True)
class Rung:
    """One step of a ladder: its label and the command that decides it.

    ``after``: the name of the rung that has to pass first.
    """

    name: str
    label: str
    command: Command
    after: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a rung ended. ``ran`` is False when it was not even tried, and ``why`` says so."""

    rung: Rung
    verdict: Verdict
    why: str
    seconds: float = 0.0
    ran: bool = True
    data: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """What the evidence is really of; a rung that was not judged has the label it was meant for."""
        return str(self.data.get("label") or self.rung.label)

    @property
    def state(self) -> str:
        return self.verdict.value if self.ran else "not tried"

    def as_json(self) -> dict[str, Any]:
        return {
            "rung": self.rung.name,
            "label": self.label,
            "verdict": self.verdict.value,
            "why": self.why,
            "seconds": self.seconds,
            "ran": self.ran,
            "run": self.data.get("run"),
            "command": self.rung.command.short,
        }


@dataclass(frozen=True)
class Subject:
    """What is validated: the upgrade of a workspace, or a vllm-omni on a vllm-ascend; and a model to serve.

    ``gate_file`` goes with the model; ``arguments`` are options of vllm serve. ``itself``: the pair is
    compared with itself, which shows that the rungs work here and nothing about an upgrade.
    """

    workspace: Path
    omni: str | None
    ascend: str | None
    model: str
    gate_file: Path | None
    python: str = "cpu"
    arguments: tuple[str, ...] = ()
    itself: bool = False


def rungs(subject: Subject, names: Sequence[str]) -> list[Rung]:
    """The chosen rungs of a machine without an NPU, in their order; real weights need dummy ones to pass."""
    place = ("--workspace", str(subject.workspace))
    pair = ["--omni", subject.omni] if subject.omni else []
    sources = place if subject.ascend is None else (*pair, "--ascend", subject.ascend)
    old = ("--baseline", str(subject.omni), str(subject.ascend)) if subject.itself else ()
    audit, emulate = upgrade("audit", *sources, *old), upgrade("emulate", *sources, *old)
    # vllm-omni has no stages for a CPU
    serve = upgrade("serve", subject.model, "--no-omni", "--python", subject.python, *place)
    if subject.gate_file:
        serve = serve.adding("--gate", str(subject.gate_file))
    serve = replace(serve, passed_on=subject.arguments)
    every = (
        Rung("static", "static", audit),
        Rung("emulated", DRY_RUN, emulate),
        Rung("cpu-dummy", "CPU dummy", serve.adding("--load-format", "dummy")),
        Rung("cpu-real", "CPU real", serve.adding("--load-format", "real"), after="cpu-dummy"),
    )
    return [one for one in every if one.name in names]


def cell_rung(cell: Cell, python: str, workspace: str, npus: int | None = None) -> Rung:
    """A cell of a matrix as a command; more ranks than ``npus`` are left to vLLM's Ray executor."""
    serves = cell.gate in ("dummy", "real")
    name = "serve" if serves else cell.gate
    command = upgrade(name, cell.model, "--python", python, "--workspace", workspace)
    if serves:
        command = command.adding("--load-format", cell.gate)
    if cell.omni is not None:
        command = command.adding("--omni" if cell.omni else "--no-omni")
    if cell.gate_file and serves:
        command = command.adding("--gate", str(cell.gate_file))
    if cell.gate == "accuracy":
        command = command.adding("--config", str(cell.accuracy))
    for variable, value in cell.env.items():
        command = command.adding("--env", f"{variable}={value}")
    for package, place in cell.expected.items():
        command = command.adding("--expect-import", f"{package}={place}")
    for phase, most in cell.budgets.items():
        command = command.adding("--budget", f"{phase}={most:g}")
    passed_on = ("--tensor-parallel-size", str(cell.tp), *cell.arguments)
    if npus is not None and cell.tp > npus and "--distributed-executor-backend" not in passed_on:
        passed_on += ("--distributed-executor-backend", "ray")
    # what needs real weights is not worth hours of a machine when the server does not even start
    below = {"dummy": "", "real": "dummy"}.get(cell.gate, "real")
    after = f"{Path(cell.model).name} tp{cell.tp} {below}" if below else ""
    label = "NPU dummy" if cell.gate == "dummy" else NPU_REAL
    return Rung(cell.name, label, replace(command, passed_on=passed_on), after)


def climb(rungs: Iterable[Rung]) -> list[Outcome]:
    """Run one rung after the other; what stands on a rung that did not pass is not tried."""
    outcomes: dict[str, Outcome] = {}
    for rung in rungs:
        below = outcomes.get(rung.after)
        if below is not None and below.verdict is not Verdict.PASS:
            why = f"not tried: {rung.after} is {below.verdict.value}"
            outcomes[rung.name] = Outcome(rung, Verdict.INCONCLUSIVE, why, ran=False)
            continue
        say(f"== {rung.name} ({rung.label})")
        outcomes[rung.name] = run(rung)
        say(f"   {outcomes[rung.name].verdict.value}: {outcomes[rung.name].why[:200]}")
    return list(outcomes.values())


def run(rung: Rung) -> Outcome:
    """Run a rung's command; its exit code is its verdict, and an exit code of none is INCONCLUSIVE."""
    started = time.monotonic()
    code, data = answered(rung.command)
    return judged(rung, code, data, round(time.monotonic() - started, 1))


def judged(rung: Rung, code: int, data: dict[str, Any], seconds: float) -> Outcome:
    """The outcome a command's exit code and JSON say."""
    why = str(data.get("summary") or data.get("error") or f"exit code {code}")
    verdict = _VERDICTS.get(code)
    if verdict is None:  # usage, a defect of this program, a signal: nothing was judged
        return Outcome(rung, Verdict.INCONCLUSIVE, f"it was not judged: {why}", seconds, data=data)
    return Outcome(rung, verdict, why, seconds, data=data)


def together(outcomes: Sequence[Outcome]) -> Verdict:
    """FAIL before BLOCKED before INCONCLUSIVE; PASS only when every rung passed."""
    found = {one.verdict for one in outcomes}
    order = (Verdict.FAIL, Verdict.BLOCKED, Verdict.INCONCLUSIVE, Verdict.PASS)
    return next((verdict for verdict in order if verdict in found), Verdict.BLOCKED)
