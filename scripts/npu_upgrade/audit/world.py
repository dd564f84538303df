"""What is audited: a triple of trees, the files and classes in question, and their counterparts.

With vllm-omni the audit is about its NPU platform and workers; without, about vllm-ascend, or another
platform plugin of vLLM in its place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from packaging.version import Version

from npu_upgrade.audit.copies import Copy, find_copies
from npu_upgrade.lineage.downstream import Downstream, is_within
from npu_upgrade.lineage.project import distribution, package_of
from npu_upgrade.program.facts import Effective, effective
from npu_upgrade.program.mentions import Mention, Mentions
from npu_upgrade.program.program import ClassSymbol, File, Method, Program
from npu_upgrade.program.scope import Scope
from npu_upgrade.program.self_use import methods_on
from npu_upgrade.sources.tree import SourceTree

ASCEND = "vllm_ascend"

NO_TREE = SourceTree("none", "none")
"""In the place of a vllm that is not looked at: nothing is known of it."""


@dataclass(frozen=True)
class Triple:
    """The three trees of one audit; ``omni`` is None when vllm-ascend itself is audited.

    In the place of vllm-ascend there may be another platform plugin of vLLM, to be audited itself.
    """

    omni: SourceTree | None
    ascend: SourceTree
    vllm: SourceTree

    def trees(self) -> dict[str, SourceTree]:
        """The trees by the package at their top."""
        found = {self.plugin: self.ascend, "vllm": self.vllm, "vllm_omni": self.omni}
        return {package: tree for package, tree in found.items() if tree and tree is not NO_TREE}

    @property
    def downstream(self) -> str:
        """The package whose files an upgrade edits."""
        return "vllm_omni" if self.omni else ASCEND

    @property
    def plugin(self) -> str:
        """The package of the platform plugin."""
        return ASCEND if self.ascend.project == distribution(ASCEND) else package_of(self.ascend)


@dataclass(frozen=True)
class Pair:
    """An NPU class and the class it mirrors.

    ``inherits`` tells that the NPU class derives from the other one (vllm-ascend's runner from
    vLLM's), so that what it does not override is not missing.
    """

    npu: ClassSymbol
    gpu: ClassSymbol
    inherits: bool

    @property
    def npu_side(self) -> Effective:
        """The methods that are effective on the NPU class."""
        return effective(self.npu)

    @property
    def gpu_side(self) -> Effective:
        """The methods that are effective on the class it mirrors."""
        return effective(self.gpu)


@dataclass(eq=False)
class World:
    """One triple with what the checks look at; ``old`` is the matched old triple, None without one.

    ``beneath`` is the program of its vllm alone, where several worlds share one. Where there are ``words``,
    only functions with one of them in their text are looked at.
    """

    triple: Triple
    old: World | None = None
    beneath: Program | None = None
    words: re.Pattern[str] | None = None
    program: Program = field(init=False)
    side: Downstream = field(init=False)

    def __post_init__(self) -> None:
        self.program = Program(self.triple.trees(), self.beneath)
        self.side = Downstream.within(self.program)

    def concerns(self, scope: Scope) -> bool:
        """Whether a function is looked at."""
        if self.words is None:
            return True
        lines = scope.file.lines
        node = scope.node
        if not isinstance(node, ast.Module):
            lines = lines[node.lineno - 1 : node.end_lineno]
        return any(map(self.words.search, lines))

    @property
    def of_omni(self) -> bool:
        return self.triple.omni is not None

    @property
    def looks_beside(self) -> bool:
        """Whether what other files of the project have for the device is looked at, too."""
        return self.of_omni

    @cached_property
    def plugin(self) -> str:
        """The package of the platform plugin: vllm_ascend, or the other one that is audited."""
        return self.triple.plugin

    @property
    def own(self) -> str:
        """The project that is audited."""
        return "vllm-omni" if self.of_omni else distribution(self.plugin)

    @cached_property
    def vllm_version(self) -> Version | None:
        """The version of vLLM, by which branches on it are decided."""
        return self.program.vllm

    @cached_property
    def files(self) -> list[File]:
        """All audited files: vllm-omni's NPU platform, else all of vllm-ascend."""
        return [file for path in self.side.paths if (file := self.program.file(path))]

    @cached_property
    def worker_files(self) -> list[File]:
        """Those of the audited files that hold model runners and workers, special devices' included."""
        return [file for file in self.files if _of_workers(file.path)]

    @cached_property
    def classes(self) -> list[ClassSymbol]:
        """The classes of the worker files."""
        return [cls for file in self.worker_files for cls in file.classes.values()]

    @property
    def own_classes(self) -> list[ClassSymbol]:
        """The classes of all audited files; of vllm-ascend, those of its workers."""
        return self.side.classes if self.of_omni else self.classes

    @cached_property
    def concrete(self) -> list[ClassSymbol]:
        """The classes of the worker files that no other one of them derives from."""
        return _without_heirs(self.classes)

    @cached_property
    def last_classes(self) -> list[ClassSymbol]:
        """The classes of all audited files (of vllm-ascend, of its workers) that no other derives from."""
        return _without_heirs(self.own_classes)

    def nearest_common(self, runners: Sequence[ClassSymbol]) -> ClassSymbol:
        """The nearest audited class that all these derive from, itself included."""
        shared = (base for base in runners[0].mro if base in self.side.classes)
        return next((base for base in shared if all(base in cls.mro for cls in runners)), runners[0])

    @cached_property
    def copies(self) -> list[Copy]:
        """The methods of the NPU runners that are copies of vllm-ascend's."""
        return find_copies(self.side, self.triple.ascend) if self.of_omni else []

    @cached_property
    def pairs(self) -> list[Pair]:
        """The NPU classes with the classes they mirror, in the order of their files."""
        found = []
        for cls in self.classes:
            other = self.side.mirror(cls)
            if other is None and not self.of_omni:
                other = next((base for base in cls.mro[1:] if not self.side.is_own(base)), None)
            if other and other is not cls:
                found.append(Pair(cls, other, other in cls.mro))
        return found


def _without_heirs(classes: Sequence[ClassSymbol]) -> list[ClassSymbol]:
    """Those that no other one of them derives from."""
    parents = {id(base) for cls in classes for base in cls.mro[1:]}
    return [cls for cls in classes if id(cls) not in parents]


def on_npu_side(file: File) -> bool:
    """Whether a file belongs to the NPU side of the downstream."""
    if not is_within(file.program):
        return False
    side = Downstream.within(file.program)
    return side.project.holds(file.path) and file.path.startswith(f"{side.project.package}/")


def _of_workers(path: str) -> bool:
    return any(part.startswith(("worker", "model_runner")) for part in path.split("/"))


def may_run(method: Method, cls: ClassSymbol, mentions: Mentions, world: World) -> bool:
    """Whether something names the method that is neither a method another one hides on ``cls``
    nor in a class that an NPU class stands in for without deriving from it.
    """
    if method.name.startswith("__"):
        return True
    defined = re.compile(rf"^\s*(?:async\s+)?def\s+{method.name}\b")
    lines = (mention for mention in mentions.of(method.name) if not defined.search(mention.text))
    return any(runs_on_npu(mention, cls, world) for mention in lines)


def runs_on_npu(mention: Mention, cls: ClassSymbol, world: World) -> bool:
    """Whether a line may run where objects of ``cls`` are in use."""
    file = world.program.file(mention.path)
    place = file.method_at(mention.line) if file else None
    if place is None:
        return True
    if any(place.owner in pair.gpu.mro and place.owner not in pair.npu.mro for pair in world.pairs):
        return False
    return place.owner not in cls.mro or any(place.node is method.node for method in methods_on(cls))
