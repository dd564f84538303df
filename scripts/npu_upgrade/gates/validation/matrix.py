"""The matrix of a validation on hardware: which models, with which parallelism, through which gates.

.. code-block:: yaml

    models:
      - model: /models/Qwen3-8B
        tp: [1, 2]                        # one cell for each
        gates: [dummy, real, features]    # default: all
        gate_file: gates/qwen3.yaml       # beside this file
        accuracy: configs/Qwen3-8B.yaml
        omni: true                        # default: as serve does
        env: {HCCL_BUFFSIZE: "1024"}
        arguments: [--max-model-len, "32768"]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from npu_upgrade.gates.yaml_file import read_yaml
from npu_upgrade.ground.errors import BadInput

GATES = ("dummy", "real", "features", "capacity", "performance", "accuracy")
_Gate = Literal["dummy", "real", "features", "capacity", "performance", "accuracy"]
_EVERY = tuple(one for one in GATES if one != "performance")  # measured where it is asked for
_Size = Annotated[int, msgspec.Meta(ge=1)]
_Plain = str | int | float | bool


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    tp: _Size | Annotated[list[_Size], msgspec.Meta(min_length=1)] = 1
    gates: Annotated[tuple[_Gate, ...], msgspec.Meta(min_length=1)] = _EVERY
    gate_file: str | None = None
    accuracy: str | None = None
    omni: bool | None = None
    env: dict[str, _Plain] = {}
    arguments: list[_Plain] = []


class _Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: Annotated[list[_Model], msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class Cell:
    """One gate of one model at one tensor-parallel size.

    ``omni``: None leaves it to serve. ``expected``: package -> the folder it has to be imported from below.
    ``budgets``: phase of a start -> its most seconds, where not serve's own.
    """

    model: str
    tp: int
    gate: str
    gate_file: Path | None = None
    accuracy: Path | None = None
    omni: bool | None = None
    env: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    expected: dict[str, Path] = field(default_factory=dict)
    budgets: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{Path(self.model).name} tp{self.tp} {self.gate}"


def load(path: Path) -> list[Cell]:
    """The cells of a matrix file, model by model and in the order of the gates."""
    return [cell for entry in read_yaml(path, _Matrix, _wrong).models for cell in _cells(path, entry)]


def single(model: str, tp: Sequence[int], gates: Sequence[str]) -> list[Cell]:
    """The cells of one model without a file."""
    return [Cell(model, size, gate) for size in tp or (1,) for gate in gates or _EVERY if gate != "accuracy"]


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


def _cells(path: Path, entry: _Model) -> list[Cell]:
    gate_file, accuracy = _file(path, entry.gate_file), _file(path, entry.accuracy)
    env = {key: str(value) for key, value in entry.env.items()}
    arguments = tuple(map(str, entry.arguments))
    return [
        Cell(entry.model, size, gate, gate_file, accuracy, entry.omni, env, arguments)
        for size in (entry.tp if isinstance(entry.tp, list) else [entry.tp])
        for gate in GATES
        if gate in entry.gates and (gate != "accuracy" or accuracy)  # else nothing says which tasks
    ]


def _file(path: Path, name: str | None) -> Path | None:
    if name is None:
        return None
    place = (path.parent / name).absolute()
    if not place.is_file():
        raise _wrong(path, f"it names {name}, which is no file beside the matrix")
    return place


def _wrong(path: Path, what: str) -> BadInput:
    return BadInput(
        f"{path} is no matrix: {what}",
        expected="models, each with a model and some of tp, gates, gate_file, accuracy, omni, env, arguments",
        try_="references/serving.md shows one",
    )
