"""The ladder of a machine without an NPU: static, emulated, CPU with dummy weights, CPU with real ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.gates.validation.rungs import Rung

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
