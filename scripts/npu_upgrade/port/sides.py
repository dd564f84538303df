"""The GPU runners of a vllm-omni tree, and vLLM's runner below them, in the words of the NPU side."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.code.module import Module, Unit, parse_module
from npu_upgrade.code.names import Import, all_imports
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.dialect import idle_without_cuda, translate, written_for_cuda
from npu_upgrade.lineage.downstream import Downstream, Runner, read_runner
from npu_upgrade.sources.tree import SourceTree


@dataclass(frozen=True)
class GpuSide:
    """The GPU runner files of one tree, translated; modules by the kind of runner.

    ``paths`` are those of the runner files in the tree.
    """

    tree: SourceTree
    modules: Mapping[str, Module]
    paths: tuple[str, ...] = ()

    def unit(self, kind: str, name: str) -> Unit | None:
        return self.modules[kind].units.get(name)

    @cached_property
    def idle_without_cuda(self) -> frozenset[str]:
        """Functions of the modules that the runners import that do nothing on an NPU."""
        return idle_without_cuda(self.tree, self.paths)

    @cached_property
    def written_for_cuda(self) -> frozenset[str]:
        """Functions of the runner files that do on a CUDA device only what they are for."""
        return written_for_cuda(self.tree, self.paths)


@dataclass(frozen=True)
class VllmRunner:
    """vLLM's GPU model runner: its statements, all of them and by unit."""

    module: Module
    keys: Counter[str]

    def unit(self, name: str) -> Unit | None:
        return self.module.units.get(name)


def read_gpu_side(tree: SourceTree, side: Downstream) -> GpuSide:
    """The classes of ``tree`` that the runners of ``side`` mirror, in the words of the NPU side.

    Raises :class:`BadInput` when ``tree`` has none of them, or they are no Python.
    """
    names = spoken_names(tree, side)
    runners = [runner for runner in side.runners if runner.gpu_path]
    modules = {r.kind: parse_module(translate(read_runner(tree, r.gpu_path).source, names)) for r in runners}
    return GpuSide(tree, modules, tuple(dict.fromkeys(runner.gpu_path for runner in runners)))


def vllm_base(tree: SourceTree, runners: Sequence[Runner]) -> Import | None:
    """Where the GPU base runner takes vLLM's runner class from, read from its imports.

    Raises :class:`BadInput` when there is no GPU runner.
    """
    _check_gpu(tree, runners)
    runner = runners[0]
    module = read_runner(tree, runner.gpu_path)
    node = module.class_def(runner.gpu_class)
    bases = {ast.unparse(base) for base in node.bases} if node else set()
    found = [item for item in all_imports(module.source) if item.name and item.bound in bases]
    package = runner.gpu_path.partition("/")[0]
    return next((item for item in found if item.module.partition(".")[0] != package), None)


def spoken_names(tree: SourceTree, side: Downstream) -> dict[str, str]:
    """The classes of the GPU side and of vLLM with those that stand for them on the NPU side."""
    base = vllm_base(tree, side.runners)
    return side.class_names | ({base.bound: side.upstream.class_name} if base else {})


def read_vllm_runner(vllm: SourceTree, gpu: SourceTree, side: Downstream) -> VllmRunner:
    """The file of vLLM's runner that ``gpu`` builds on; :class:`BadInput` when ``vllm`` lacks it."""
    base, names = vllm_base(gpu, side.runners), spoken_names(gpu, side)
    path = base.module.replace(".", "/") + ".py" if base else ""
    if not path or not vllm.exists(path):
        raise BadInput(
            f"{vllm.spec} has no {path or 'runner'}, which the GPU runners build on",
            expected="the vllm that this vllm-omni was made for",
            try_="name it with --vllm SPEC",
        )
    module = parse_module(translate(read_runner(vllm, path).source, names))
    keys: Counter[str] = Counter()
    for unit in module.units.values():
        keys |= keys_of(statements(unit))
    return VllmRunner(module, keys)


def statements(unit: Unit | None) -> list[Statement]:
    """The statements of a unit without the empty one at its end; none for None."""
    return [s for s in split_statements(unit.source) if s.key != END] if unit else []


def keys_of(found: Sequence[Statement]) -> Counter[str]:
    return Counter(statement.key for statement in found)


def _check_gpu(tree: SourceTree, runners: Sequence[Runner]) -> None:
    mirrored = [runner.gpu_path for runner in runners if runner.gpu_path]
    missing = [path for path in mirrored if not tree.exists(path)] if mirrored else ["any of them"]
    if missing:
        raise BadInput(
            f"{tree.spec} is not a tree with the GPU runners that the NPU runners mirror: "
            f"{missing[0]} is missing",
            expected="the root of a vllm-omni checkout or release",
            try_="pypi:vllm-omni==VERSION, git:PATH@REF or dir:PATH of vllm-omni itself",
        )
