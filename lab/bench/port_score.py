"""What a port list is measured by, against what the maintainers took from the GPU side.

All figures are counts of statements by their canonical text, the GPU side's in the words of
the NPU side; docstrings do not count. See docs/source/benchmarks.md for what each means.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from bench.shared import Tally
from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.lineage.downstream import Downstream, Runner
from npu_upgrade.port.driven import TELLING, Upstream
from npu_upgrade.port.hunks import TEXT, Hunk
from npu_upgrade.port.npu_side import NpuSide, lacking, lingering, own_keys
from npu_upgrade.port.sides import GpuSide, keys_of, read_gpu_side, statements
from npu_upgrade.sources.tree import SourceTree, open_source
from npu_upgrade.threeway.align import weight

Lines = Counter[tuple[str, str, str]]
"""Statements by kind of runner, unit and ``+`` or ``-`` with the text."""


@dataclass
class PortScore(Tally):
    """Lines of the tiers, those taken now or later, and of all that was taken now those on the top."""

    top: int = 0
    top_taken: int = 0
    second: int = 0
    second_taken: int = 0
    third: int = 0
    third_taken: int = 0
    human: int = 0
    held: int = 0
    cases: list[str] = field(default_factory=list)


class Release:
    """The runners of one release; a method that an NPU class only inherits is the GPU class's."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        side = Downstream(tree)
        self.runners = side.runners
        self.npu = {r.kind: parse_module(tree.read(r.path)) for r in self.runners}
        self.gpu: GpuSide = read_gpu_side(tree, side)

    def inherits(self, runner: Runner) -> bool:
        return runner.gpu_class in self.bases(runner)

    def bases(self, runner: Runner) -> set[str]:
        return _bases(self.npu[runner.kind], runner)

    def keys(self, runner: Runner, unit: str) -> Counter[str]:
        """The statements that run as this unit of the NPU runner."""
        own = self.npu[runner.kind].units.get(unit)
        if own is None and "." in unit and self.inherits(runner):
            return gpu_keys(self.gpu.modules[runner.kind], unit)
        return counted(keys_of(statements(own)))

    def all_keys(self, runner: Runner) -> Counter[str]:
        return _all_keys(self.npu[runner.kind].source)


@cache
def release(version: str) -> Release:
    return Release(open_source(f"pypi:vllm-omni=={version}"))


@cache
def _all_keys(source: str) -> Counter[str]:
    units = parse_module(source).units.values()
    return sum((counted(keys_of(statements(unit))) for unit in units), Counter())


def gpu_keys(module: Module, unit: str) -> Counter[str]:
    return counted(keys_of(statements(module.units.get(unit))))


def counted(keys: Counter[str]) -> Counter[str]:
    """Statements that do something: docstrings left out."""
    return Counter({key: n for key, n in keys.items() if not key.startswith(TEXT)})


def open_lines(hunk: Hunk, npu: NpuSide) -> Lines:
    """What of a hunk the NPU side lacks, or still has."""
    own = own_keys(hunk, npu)
    where = hunk.runner.kind, hunk.unit
    found: Lines = Counter({(*where, f"+{key}"): n for key, n in lacking(hunk, own).items()})
    return found + Counter({(*where, f"-{key}"): n for key, n in lingering(hunk, own).items()})


def taken(lines: Lines, before: Release, after: Sequence[Release], elsewhere: bool = True) -> Lines:
    """Those of the lines that the NPU side of one of the later releases has taken over.

    ``elsewhere``: a statement that says enough may have gone to another method of the file.
    """
    found: Lines = Counter()
    for (kind, unit, line), count in lines.items():
        runner = next(r for r in before.runners if r.kind == kind)
        most = max(_change(runner, unit, line, before, other, elsewhere) for other in after)
        found[kind, unit, line] = min(count, most)
    return +found


def _change(runner: Runner, unit: str, line: str, before: Release, after: Release, elsewhere: bool) -> int:
    key, sign = line[1:], 1 if line[0] == "+" else -1
    if unit == runner.class_name:
        return int(key in after.bases(runner) and key not in before.bases(runner))
    change = sign * (after.keys(runner, unit)[key] - before.keys(runner, unit)[key])
    if elsewhere and sign > 0 and weight(key) > TELLING:
        change = max(change, after.all_keys(runner)[key] - before.all_keys(runner)[key])
    return max(0, change)


def human_lines(before: Release, after: Release, since: GpuSide, upstream: Upstream) -> Lines:
    """All GPU-side lines that the maintainers took over between two releases.

    Added: in the GPU runner's unit of the same name, and not vLLM's or vllm-ascend's. Removed:
    the GPU side dropped it as well, and vLLM did not. Units that the NPU class inherited
    before need no port.
    """
    found: Lines = Counter()
    for runner in before.runners:
        module = after.gpu.modules[runner.kind]
        for unit in module.units:
            if unit not in before.npu[runner.kind].units and "." in unit and before.inherits(runner):
                continue
            found += _unit_lines(runner, unit, before, after, since, upstream)
        gained = after.bases(runner) & _bases(module, runner) - before.bases(runner)
        found += Counter({(runner.kind, runner.class_name, f"+{base}"): 1 for base in gained})
    return found


def _unit_lines(
    runner: Runner, unit: str, before: Release, after: Release, since: GpuSide, upstream: Upstream
) -> Lines:
    old, new = before.keys(runner, unit), after.keys(runner, unit)
    gpu = gpu_keys(after.gpu.modules[runner.kind], unit)
    earlier = gpu_keys(since.modules[runner.kind], unit) | gpu_keys(before.gpu.modules[runner.kind], unit)
    added = _without((new - old) & (gpu - old), upstream.after)
    dropped = _without((old - new) & (earlier - gpu), upstream.before)
    where = runner.kind, unit
    found: Lines = Counter({(*where, f"+{key}"): n for key, n in added.items()})
    return found + Counter({(*where, f"-{key}"): n for key, n in dropped.items()})


def _without(keys: Counter[str], known: Collection[str]) -> Mapping[str, int]:
    return {key: count for key, count in keys.items() if key not in known}


def _bases(module: Module, runner: Runner) -> set[str]:
    node = module.class_def(runner.class_name)
    return {ast.unparse(base) for base in node.bases} if node else set()
