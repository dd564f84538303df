"""What the NPU runners have: their units, their classes' attributes, the names they can import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.code.names import names_of
from npu_upgrade.code.uses import defines
from npu_upgrade.lineage.import_sources import Sources, UpstreamFile
from npu_upgrade.lineage.layout import GPU_WORKER, NPU_WORKER, RUNNERS, Runner, Upstream, read_runner
from npu_upgrade.port.sides import statements
from npu_upgrade.program.program import ClassSymbol, Program
from npu_upgrade.sources.tree import SourceTree, overlay


@dataclass(frozen=True)
class NpuSide:
    """The NPU runners of ``omni`` above the GPU side of ``gpu`` and the vllm-ascend they are made for.

    ``modules`` are the runner files by kind of runner.
    """

    omni: SourceTree
    gpu: SourceTree
    ascend: SourceTree
    vllm: SourceTree
    upstream: Upstream
    modules: Mapping[str, Module]

    @cached_property
    def texts(self) -> dict[str, str]:
        """The runner files by path."""
        return {runner.path: self.modules[runner.kind].source for runner in RUNNERS}

    @cached_property
    def tree(self) -> SourceTree:
        """vllm-omni as it will be: the NPU workers of the one tree, all else of the other."""
        if self.omni.spec == self.gpu.spec:
            return self.omni
        gone = {path: None for path in self.gpu.list(NPU_WORKER) if not self.omni.exists(path)}
        return overlay(self.gpu, gone | {path: self.omni.read(path) for path in self.omni.list(NPU_WORKER)})

    @cached_property
    def program(self) -> Program:
        return Program({"vllm_omni": self.tree, "vllm_ascend": self.ascend, "vllm": self.vllm})

    @cached_property
    def sources(self) -> Sources:
        """Where names can be imported from."""
        return Sources(self.texts, self.texts, self.upstream_file, self.gpu_texts, self.ascend, self.tree)

    @cached_property
    def upstream_file(self) -> UpstreamFile:
        return UpstreamFile(self.upstream.path, self.ascend.read(self.upstream.path))

    @cached_property
    def gpu_texts(self) -> dict[str, str]:
        return {runner.gpu_path: self.gpu.read(runner.gpu_path) for runner in RUNNERS}

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
                path = cls.file.path
                return (
                    "npu"
                    if path.startswith(NPU_WORKER)
                    else "gpu"
                    if path.startswith(GPU_WORKER)
                    else "upstream"
                )
        return ""

    def reads_names(self, runner: Runner, unit: str) -> set[str]:
        """The names that a unit of a runner file can read: its own and the module's."""
        module = self.modules[runner.kind]
        own = defines(s.key for s in statements(module.units.get(unit)))
        return own | names_of(module.source).bound

    def importable(self, runner: Runner, name: str) -> bool:
        return self.sources.find(name, runner.path) is not None


def read_npu_side(
    omni: SourceTree, gpu: SourceTree, ascend: SourceTree, vllm: SourceTree, upstream: Upstream
) -> NpuSide:
    """The NPU runners; raises :class:`BadInput` for files that are not Python or hold conflicts."""
    modules = {runner.kind: parse_module(read_runner(omni, runner.path).source) for runner in RUNNERS}
    return NpuSide(omni, gpu, ascend, vllm, upstream, modules)
