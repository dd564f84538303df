"""The matrix of a validation on hardware: which models, with which parallelism, through which gates.

.. code-block:: yaml

    models:
      - model: /models/Qwen3-8B
        tp: [1, 2]                        # one cell for each
        gates: [dummy, real, features]    # default: all
        gate_file: gates/qwen3.yaml       # beside this file
        accuracy: configs/Qwen3-8B.yaml
        omni: false
        env: {HCCL_BUFFSIZE: "1024"}
        arguments: [--max-model-len, "32768"]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from npu_upgrade.ground.errors import BadInput

GATES = ("dummy", "real", "features", "capacity", "accuracy")
_KEYS = {"model", "tp", "gates", "gate_file", "accuracy", "omni", "env", "arguments"}


@dataclass(frozen=True)
class Cell:
    """One gate of one model at one tensor-parallel size; ``files`` are named in it and have to be there."""

    model: str
    tp: int
    gate: str
    gate_file: Path | None = None
    accuracy: Path | None = None
    omni: bool = False
    env: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{Path(self.model).name} tp{self.tp} {self.gate}"


def load(path: Path) -> list[Cell]:
    """The cells of a matrix file, model by model and in the order of the gates."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _wrong(path, " ".join(str(error).split())) from error
    models = content.get("models") if isinstance(content, dict) else None
    if not isinstance(models, list) or not models or set(content) != {"models"}:
        raise _wrong(path, "it has to be a mapping with one key, models, and a list below it")
    return [cell for number, entry in enumerate(models, 1) for cell in _cells(path, number, entry)]


def single(model: str, tp: Sequence[int], gates: Sequence[str]) -> list[Cell]:
    """The cells of one model without a file."""
    return [Cell(model, size, gate) for size in tp or (1,) for gate in gates or GATES if gate != "accuracy"]


def select(cells: Sequence[Cell], model: str, gates: Sequence[str], tp: Sequence[int]) -> list[Cell]:
    """The cells of a model (by part of its name), of these gates and sizes; empty means all.

    Raises :class:`BadInput` when nothing is left.
    """
    found = [
        one
        for one in cells
        if model in one.model and (not gates or one.gate in gates) and (not tp or one.tp in tp)
    ]
    if not found:
        raise BadInput(
            "no cell of the matrix is chosen",
            expected=f"one of {', '.join(sorted({one.name for one in cells}))}",
            try_="other MODEL=, GATES= or TP=",
        )
    return found


def check_gates(names: Sequence[str]) -> None:
    if unknown := set(names) - set(GATES):
        raise BadInput(
            f"no gate is called {', '.join(sorted(unknown))}", expected=", ".join(GATES), try_="one of those"
        )


def _cells(path: Path, number: int, entry: Any) -> list[Cell]:
    where = f"model {number}"
    if not isinstance(entry, dict) or not isinstance(entry.get("model"), str):
        raise _wrong(path, f"{where} is no mapping with a model")
    if unknown := set(entry) - _KEYS:
        raise _wrong(
            path, f"{where} has {', '.join(sorted(map(str, unknown)))}; known are {', '.join(sorted(_KEYS))}"
        )
    sizes, gates = entry.get("tp", [1]), entry.get("gates", list(GATES))
    sizes = sizes if isinstance(sizes, list) else [sizes]
    if not sizes or not all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in sizes):
        raise _wrong(path, f"tp of {where} is a number or a list of numbers from 1")
    if not isinstance(gates, list) or not gates or not set(map(str, gates)) <= set(GATES):
        raise _wrong(path, f"gates of {where} are some of {', '.join(GATES)}")
    gate_file, accuracy = (_file(path, where, entry.get(key)) for key in ("gate_file", "accuracy"))
    env, arguments = entry.get("env") or {}, entry.get("arguments") or []
    if not isinstance(env, dict) or not isinstance(arguments, list):
        raise _wrong(path, f"env of {where} is a mapping and arguments is a list")
    if accuracy is None:  # nothing says which tasks are measured
        gates = [one for one in gates if one != "accuracy"]
    return [
        Cell(
            entry["model"], size, gate, gate_file, accuracy, bool(entry.get("omni")),
            {str(key): str(value) for key, value in env.items()}, tuple(map(str, arguments)),
        )
        for size in sizes
        for gate in GATES
        if gate in gates
    ]  # fmt: skip


def _file(path: Path, where: str, name: Any) -> Path | None:
    if name is None:
        return None
    place = (path.parent / str(name)).absolute()
    if not place.is_file():
        raise _wrong(path, f"{where} names {name}, which is no file beside the matrix")
    return place


def _wrong(path: Path, what: str) -> BadInput:
    return BadInput(
        f"{path} is no matrix: {what}",
        expected="models, each with a model and some of tp, gates, gate_file, accuracy, omni, env, arguments",
        try_="references/serving.md shows one",
    )
