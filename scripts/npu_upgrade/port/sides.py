"""The GPU runners of a vllm-omni tree, and vLLM's runner below them, in the words of the NPU side."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npu_upgrade.code.module import Module, Unit, parse_module
from npu_upgrade.code.names import Import, all_imports
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.dialect import translate
from npu_upgrade.lineage.layout import RUNNERS, read_runner
from npu_upgrade.sources.tree import SourceTree


@dataclass(frozen=True)
class GpuSide:
    """The three GPU runner files of one tree, translated; modules by the kind of runner."""

    tree: SourceTree
    modules: Mapping[str, Module]

    def unit(self, kind: str, name: str) -> Unit | None:
        return self.modules[kind].units.get(name)


@dataclass(frozen=True)
class VllmRunner:
    """vLLM's GPU model runner: its statements, all of them and by unit."""

    module: Module
    keys: Counter[str]

    def unit(self, name: str) -> Unit | None:
        return self.module.units.get(name)


def read_gpu_side(tree: SourceTree, names: Mapping[str, str]) -> GpuSide:
    """The GPU runners of ``tree``; :class:`BadInput` when it has none, or they are no Python.

    ``names`` are vLLM's names that vllm-ascend calls otherwise (see :func:`upstream_names`).
    """
    _check_gpu(tree)
    modules = {r.kind: parse_module(translate(read_runner(tree, r.gpu_path).source, names)) for r in RUNNERS}
    return GpuSide(tree, modules)


def vllm_base(tree: SourceTree) -> Import | None:
    """Where the GPU base runner takes vLLM's runner class from, read from its imports.

    Raises :class:`BadInput` when there is no GPU runner.
    """
    _check_gpu(tree)
    runner = RUNNERS[0]
    module = read_runner(tree, runner.gpu_path)
    node = module.class_def(runner.gpu_class)
    bases = {ast.unparse(base) for base in node.bases} if node else set()
    found = [item for item in all_imports(module.source) if item.name and item.bound in bases]
    return next((item for item in found if item.module.startswith("vllm.")), None)


def upstream_names(base: Import | None, upstream_class: str) -> dict[str, str]:
    """vLLM's runner class and the class of vllm-ascend that stands for it."""
    return {base.bound: upstream_class} if base else {}


def read_vllm_runner(vllm: SourceTree, base: Import | None, names: Mapping[str, str]) -> VllmRunner:
    """vLLM's runner file; :class:`BadInput` when the tree does not have it."""
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


def _check_gpu(tree: SourceTree) -> None:
    missing = [runner.gpu_path for runner in RUNNERS if not tree.exists(runner.gpu_path)]
    if missing:
        raise BadInput(
            f"{tree.spec} is not a vllm-omni tree with GPU runners: {missing[0]} is missing",
            expected="the root of a vllm-omni checkout or release",
            try_="pypi:vllm-omni==VERSION, git:PATH@REF or dir:PATH of vllm-omni itself",
        )
