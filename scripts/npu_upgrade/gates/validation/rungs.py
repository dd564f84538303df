"""The rungs of a ladder as commands of this bundle, and how each ended."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.gates.validation.matrix import Cell
from npu_upgrade.ground import invocation
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.verdict import Verdict

SCRIPT = Path(__file__).resolve().parents[3] / "upgrade.py"
_VERDICTS = {verdict.exit_code: verdict for verdict in Verdict}
_COMMANDS = {"dummy": "serve", "real": "serve"}
_OF_UPGRADES = ("audit", "emulate")  # what adapt.py does not have


@dataclass(frozen=True)
class Rung:
    """One step of a ladder: its label and the arguments of the command that decides it.

    ``after``: the name of the rung that has to pass first.
    """

    name: str
    label: str
    arguments: tuple[str, ...]
    after: str = ""

    @property
    def program(self) -> str:
        """The script that runs it: the one that climbs, where that has the command."""
        own = invocation.program() == "adapt.py" and self.arguments[0] not in _OF_UPGRADES
        return "adapt.py" if own else "upgrade.py"


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

    def as_json(self) -> dict[str, Any]:
        rung = self.rung
        return {
            "rung": rung.name,
            "label": self.label,
            "verdict": self.verdict.value,
            "why": self.why,
            "seconds": self.seconds,
            "ran": self.ran,
            "run": self.data.get("run"),
            "command": shlex.join([rung.program, *rung.arguments]),
        }


def cell_rung(cell: Cell, python: str, workspace: str, npus: int | None = None) -> Rung:
    """A cell of a matrix as a command; more ranks than ``npus`` are left to vLLM's Ray executor."""
    command = _COMMANDS.get(cell.gate, cell.gate)
    arguments = [command, cell.model, "--python", python, "--workspace", workspace]
    if command == "serve":
        arguments += ["--load-format", cell.gate]
    arguments += ["--omni"] if cell.omni else []
    if cell.gate_file and command == "serve":
        arguments += ["--gate", str(cell.gate_file)]
    if cell.gate == "accuracy":
        arguments += ["--config", str(cell.accuracy)]
    for name, value in cell.env.items():
        arguments += ["--env", f"{name}={value}"]
    passed_on = ["--tensor-parallel-size", str(cell.tp), *cell.arguments]
    if npus is not None and cell.tp > npus and "--distributed-executor-backend" not in passed_on:
        passed_on += ["--distributed-executor-backend", "ray"]
    # what needs real weights is not worth hours of a machine when the server does not even start
    after = (
        ""
        if cell.gate == "dummy"
        else f"{Path(cell.model).name} tp{cell.tp} {'dummy' if cell.gate == 'real' else 'real'}"
    )
    label = "NPU dummy" if cell.gate == "dummy" else "NPU real"
    return Rung(cell.name, label, (*arguments, "--", *passed_on), after)


def climb(rungs: Iterable[Rung]) -> list[Outcome]:
    """Run one rung after the other; what stands on a rung that did not pass is not tried."""
    outcomes: dict[str, Outcome] = {}
    for rung in rungs:
        below = outcomes.get(rung.after)
        if below is not None and below.verdict is not Verdict.PASS:
            outcomes[rung.name] = Outcome(
                rung, Verdict.INCONCLUSIVE, f"not tried: {rung.after} is {below.verdict.value}", ran=False
            )
            continue
        say(f"== {rung.name} ({rung.label})")
        outcomes[rung.name] = run(rung)
        say(f"   {outcomes[rung.name].verdict.value}: {outcomes[rung.name].why[:200]}")
    return list(outcomes.values())


def run(rung: Rung) -> Outcome:
    """Run a rung's command; its exit code is its verdict, and an exit code of none is INCONCLUSIVE."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-rung-") as scratch:
        whole = Path(scratch) / "result.json"
        argv = [sys.executable, str(SCRIPT.with_name(rung.program)), *_with_output(rung.arguments, whole)]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        try:
            text, _ = process.communicate()
        except BaseException:
            process.wait()  # an interruption reached it as well; it ends its server first
            raise
        text = whole.read_text("utf-8") if whole.exists() else text  # an error has no whole result
    seconds = round(time.monotonic() - started, 1)
    return judged(rung, process.returncode, text, seconds)


def judged(rung: Rung, code: int, text: str, seconds: float) -> Outcome:
    """The outcome a command's exit code and JSON say."""
    try:
        data = json.loads(text)
    except ValueError:
        data = {}
    data = data if isinstance(data, dict) else {}
    why = str(data.get("summary") or data.get("error") or f"exit code {code}")
    verdict = _VERDICTS.get(code)
    if verdict is None:  # usage, a defect of this program, a signal: nothing was judged
        return Outcome(rung, Verdict.INCONCLUSIVE, f"it was not judged: {why}", seconds, data=data)
    return Outcome(rung, verdict, why, seconds, data=data)


def together(outcomes: Sequence[Outcome]) -> Verdict:
    """FAIL before INCONCLUSIVE; PASS when what could run passed; BLOCKED when nothing could."""
    found = {one.verdict for one in outcomes}
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS):
        if verdict in found:
            return verdict
    return Verdict.BLOCKED


def _with_output(arguments: Sequence[str], whole: Path) -> list[str]:
    """The arguments with JSON asked for, all of it, before what is passed on."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    return [*arguments[:at], "--format", "json", "--output", str(whole), *arguments[at:]]


NAMES = ("static", "emulated", "cpu-dummy", "cpu-real")


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


def rungs(subject: Subject, names: tuple[str, ...]) -> list[Rung]:
    """The chosen rungs, in their order; real weights are tried only when dummy ones were served."""
    every = {"static": _static, "emulated": _emulated, "cpu-dummy": _dummy, "cpu-real": _real}
    return [every[name](subject) for name in NAMES if name in names]


def _sources(subject: Subject) -> list[str]:
    """The pair by name, or the workspace's own upgrade."""
    if subject.ascend is None:
        return ["--workspace", str(subject.workspace)]
    return [*(["--omni", subject.omni] if subject.omni else []), "--ascend", subject.ascend]


def _static(subject: Subject) -> Rung:
    itself = ["--baseline", str(subject.omni), str(subject.ascend)] if subject.itself else []
    return Rung("static", "static", ("audit", *_sources(subject), *itself))


def _emulated(subject: Subject) -> Rung:
    itself = ["--baseline", "none"] if subject.itself else []
    return Rung("emulated", "emulated dry-run", ("emulate", *_sources(subject), *itself))


def _dummy(subject: Subject) -> Rung:
    return Rung("cpu-dummy", "CPU dummy", _serving(subject, "dummy"))


def _real(subject: Subject) -> Rung:
    return Rung("cpu-real", "CPU real", _serving(subject, "real"), after="cpu-dummy")


def _serving(subject: Subject, load_format: str) -> tuple[str, ...]:
    gate = ("--gate", str(subject.gate_file)) if subject.gate_file else ()
    place = ("--python", subject.python, "--workspace", str(subject.workspace))
    return ("serve", subject.model, "--load-format", load_format, *place, *gate, "--", *subject.arguments)
