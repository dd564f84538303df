"""What the NPU runners have: their units, their classes' attributes, the names they can import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.code.names import names_of
from npu_upgrade.code.uses import defines
from npu_upgrade.lineage.downstream import Downstream, Runner, Upstream, read_runner
from npu_upgrade.lineage.import_sources import Sources, UpstreamFile
from npu_upgrade.port.sides import statements
from npu_upgrade.program.program import ClassSymbol, Program
from npu_upgrade.sources.tree import SourceTree, overlay


@dataclass(frozen=True)
class NpuSide:
    """The NPU runners of ``side`` above the GPU side of ``gpu`` and the vllm-ascend they are made for.

    ``runners`` are those that mirror a GPU runner, ``modules`` their files by kind of runner.
    """

    side: Downstream
    gpu: SourceTree
    ascend: SourceTree
    vllm: SourceTree
    runners: tuple[Runner, ...]
    modules: Mapping[str, Module]

    @property
    def omni(self) -> SourceTree:
        return self.side.tree

    @property
    def upstream(self) -> Upstream:
        return self.side.upstream

    @cached_property
    def texts(self) -> dict[str, str]:
        """The runner files by path."""
        return {runner.path: self.modules[runner.kind].source for runner in self.runners}

    @cached_property
    def tree(self) -> SourceTree:
        """vllm-omni as it will be: the NPU side of the one tree, all else of the other."""
        if self.omni.spec == self.gpu.spec:
            return self.omni
        project = self.side.project
        there = [path for path in self.gpu.list(project.package) if project.holds(path)]
        gone = {path: None for path in there if not self.omni.exists(path)}
        return overlay(self.gpu, gone | {path: self.omni.read(path) for path in self.side.paths})

    @cached_property
    def program(self) -> Program:
        packages = (self.side.project.package, *self.side.project.upstreams)
        return Program(dict(zip(packages, (self.tree, self.ascend, self.vllm), strict=True)))

    @cached_property
    def sources(self) -> Sources:
        """Where names can be imported from."""
        return Sources(self.texts, self.texts, self.upstream_file, self.gpu_texts, self.ascend, self.tree)

    @cached_property
    def upstream_file(self) -> UpstreamFile:
        return UpstreamFile(self.upstream.path, self.ascend.read(self.upstream.path))

    @cached_property
    def gpu_texts(self) -> dict[str, str]:
        return {runner.gpu_path: self.gpu.read(runner.gpu_path) for runner in self.runners}

    def cls(self, runner: Runner) -> ClassSymbol | None:
        return self.program.find_class(runner.path, runner.class_name)

    def ancestors(self, runner: Runner) -> list[ClassSymbol]:
        """The class of a runner and all it derives from, in the order of lookup."""
        found = self.cls(runner)
        return list(found.mro) if found else []

    def attributes(self, runner: Runner) -> set[str]:
        """What ``self`` has in a runner: methods, fields and what any method assigns."""
        found = {
            name for cls in self.ancestors(runner) for name in (*cls.methods, *cls.fields, *cls.assigned)
        }
        return found | set(dir(object))

    def inherits_gpu(self, runner: Runner) -> bool:
        """Whether the NPU runner derives from the GPU runner it mirrors."""
        return any(cls.file.path == runner.gpu_path for cls in self.ancestors(runner))

    def provider(self, runner: Runner, method: str) -> str:
        """Which side a method of a runner comes from: ``npu``, ``gpu``, ``upstream``, or empty."""
        for cls in self.ancestors(runner):
            if method in cls.methods:
                own = "npu" if self.side.project.is_device(cls.file.path) else "gpu"
                return own if self.side.is_own(cls) else "upstream"
        return ""

    def reads_names(self, runner: Runner, unit: str) -> set[str]:
        """The names that a unit of a runner file can read: its own and the module's."""
        module = self.modules[runner.kind]
        own = defines(s.key for s in statements(module.units.get(unit)))
        return own | names_of(module.source).bound

    def importable(self, runner: Runner, name: str) -> bool:
        return self.sources.find(name, runner.path) is not None


def read_npu_side(side: Downstream, gpu: SourceTree, ascend: SourceTree, vllm: SourceTree) -> NpuSide:
    """The NPU runners; raises :class:`BadInput` for files that are not Python or hold conflicts."""
    runners = tuple(runner for runner in side.runners if runner.gpu_path)
    modules = {runner.kind: parse_module(read_runner(side.tree, runner.path).source) for runner in runners}
    return NpuSide(side, gpu, ascend, vllm, runners, modules)
