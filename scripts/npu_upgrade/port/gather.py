"""All hunks for the NPU runners: what changed in units they have, and what they lack altogether."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.code.statements import Statement
from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.port.driven import Upstream
from npu_upgrade.port.hunks import Hunk, unit_hunks
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.sides import GpuSide, statements


def gather(npu: NpuSide, since: GpuSide, new: GpuSide, upstream: Upstream) -> list[Hunk]:
    """The hunks of all runners in the order of their files; those the NPU side has already too."""
    found: list[Hunk] = []
    for runner in npu.runners:
        found += _bases(runner, npu, new)
        own = npu.modules[runner.kind].units
        for name, unit in new.modules[runner.kind].units.items():
            old = since.unit(runner.kind, name)
            if name in own and old:
                found += unit_hunks(runner, name, statements(old), statements(unit), upstream)
            elif name not in own and unit.owner == runner.class_name and _lacks(npu, runner, unit.name):
                found.append(Hunk("method", runner, name, (), tuple(statements(unit))))
    return found


def _lacks(npu: NpuSide, runner: Runner, method: str) -> bool:
    """Whether no NPU class provides a method of the GPU runner, and none inherits it."""
    if npu.inherits_gpu(runner):
        return False
    return npu.provider(runner, method) != "npu"


def _bases(runner: Runner, npu: NpuSide, new: GpuSide) -> Iterator[Hunk]:
    """Base classes of the GPU runner that the NPU runner does not derive from."""
    node = new.modules[runner.kind].class_def(runner.class_name)
    if node is None or npu.inherits_gpu(runner):
        return
    names = {cls.name for cls in npu.ancestors(runner)}
    for base in node.bases:
        name = ast.unparse(base)
        if name not in names and name.rpartition(".")[2] not in names:
            yield Hunk("base", runner, runner.class_name, (), (Statement(name, 0, (name,)),))
