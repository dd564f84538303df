"""What the NPU runners have: their units, their classes' attributes, the names they can import."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from npu_upgrade.code.module import Module, Unit, parse_module
from npu_upgrade.code.names import names_of
from npu_upgrade.code.statements import nodes_of
from npu_upgrade.code.uses import defines
from npu_upgrade.code.walk import dotted
from npu_upgrade.lineage.downstream import Downstream, Runner, Upstream, read_runner
from npu_upgrade.lineage.import_sources import Sources, UpstreamFile
from npu_upgrade.port.driven import TELLING
from npu_upgrade.port.hunks import TEXT, Hunk
from npu_upgrade.port.sides import keys_of, statements
from npu_upgrade.program.conditions import guards
from npu_upgrade.program.program import ClassSymbol, Program
from npu_upgrade.program.self_use import self_use
from npu_upgrade.sources.tree import SourceTree, overlay
from npu_upgrade.threeway.align import weight


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

    def with_texts(self, texts: Mapping[str, str]) -> NpuSide:
        """The same with other runner files, by path; the tree is as before."""
        changed = {r.kind: parse_module(texts[r.path]) for r in self.runners if r.path in texts}
        return replace(self, modules={**self.modules, **changed})

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
        return Program({self.side.project.package: self.tree} | self.beneath.trees, self.beneath)

    @cached_property
    def beneath(self) -> Program:
        """What the project builds on."""
        return Program(dict(zip(self.side.project.upstreams, (self.ascend, self.vllm), strict=True)))

    @cached_property
    def sources(self) -> Sources:
        """Where names can be imported from."""
        return Sources(self.texts, self.texts, self.upstream_file, self.gpu_texts, self.ascend, self.tree)

    @cached_property
    def upstream_file(self) -> UpstreamFile:
        return UpstreamFile(self.upstream.path, self.ascend.read(self.upstream.path))

    @cached_property
    def upstream_keys(self) -> frozenset[str]:
        """The statements of vllm-ascend's own runner, by their keys."""
        units = self._upstream_units.values()
        return frozenset(key for unit in units for key in keys_of(statements(unit)))

    @cached_property
    def _upstream_units(self) -> dict[str, Unit]:
        return parse_module(self.ascend.read(self.upstream.path)).units

    def copied_from(self, unit: str) -> str | None:
        """The text of vllm-ascend's own method that has the name of a runner's; None where there is none."""
        copied = self._upstream_units.get(f"{self.upstream.class_name}.{unit.rpartition('.')[2]}")
        return copied.source if copied else None

    @cached_property
    def upstream_methods(self) -> frozenset[str]:
        """The methods that vllm-ascend's own runner defines."""
        return frozenset(name.rpartition(".")[2] for name in self._upstream_units)

    def is_read_beyond(self, key: str) -> bool:
        """Whether a statement of vllm-ascend's own runner sets an attribute that another file of it names."""
        targets = [one for node in nodes_of(key) if isinstance(node, ast.Assign) for one in node.targets]
        attributes = [
            one for one in targets if isinstance(one, ast.Attribute) and dotted(one.value) != "self"
        ]
        if not attributes or key not in self.upstream_keys:
            return False
        package = self.upstream.path.partition("/")[0]
        found = {path for one in attributes for path in self.program.holding(package, one.attr)}
        return bool(found - {self.upstream.path})

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

    def goes_on_to_gpu(self, runner: Runner, method: str) -> bool:
        """Whether a method of a runner always calls the GPU side's by ``super()``, and so has all of it."""
        cls = self.cls(runner)
        own, beyond = (cls.methods.get(method), cls.after(cls, method)) if cls else (None, None)
        call = self_use(own.node).supers.get(method) if own else None
        if own is None or call is None or beyond is None:
            return False
        return beyond.owner.file.path == runner.gpu_path and not guards(own.node, call)

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


def lacking(hunk: Hunk, own: Counter[str]) -> Counter[str]:
    """The statements that come with a hunk and that a unit with the statements ``own`` has fewer of.

    A statement that only moved inside the unit lacks nowhere.
    """
    there = keys_of(hunk.diff.new) if hunk.diff else hunk.added
    return _left(hunk.added, there, own)


def lingering(hunk: Hunk, own: Counter[str]) -> Counter[str]:
    """The statements that go with a hunk and that the unit has more of than the GPU side now."""
    return _left(hunk.removed, own, keys_of(hunk.diff.new if hunk.diff else ()))


def _left(asked: Counter[str], more: Counter[str], less: Counter[str]) -> Counter[str]:
    found = {k: min(n, more[k] - less[k]) for k, n in asked.items() if not k.startswith(TEXT)}
    return +Counter(found)


def own_keys(hunk: Hunk, npu: NpuSide) -> Counter[str]:
    """The statements of the NPU unit that a hunk belongs to."""
    return keys_of(statements(npu.modules[hunk.runner.kind].units.get(hunk.unit)))


def is_ported(hunk: Hunk, npu: NpuSide) -> bool:
    """Whether the NPU side holds all of a hunk that says something, and nothing of what goes with it."""
    if hunk.kind == "base":
        name = hunk.new[0].key.rpartition(".")[2]
        return any(cls.name == name for cls in npu.ancestors(hunk.runner))
    own = own_keys(hunk, npu)
    if hunk.kind == "method":
        return bool(own)
    return holds(hunk, own)


def holds(hunk: Hunk, own: Counter[str]) -> bool:
    """Whether a unit with the statements ``own`` has a change, as far as counting tells."""
    return not (_telling(lacking(hunk, own), hunk.added) or _telling(lingering(hunk, own), hunk.removed))


def _telling(left: Counter[str], side: Counter[str]) -> bool:
    """Whether ``left`` of one side of a hunk says anything: a short statement does where no longer one is."""
    longest = max(map(weight, side), default=0)
    return any(weight(key) > TELLING or longest <= TELLING for key in left)
