"""Which facts of a GPU method have to hold on the NPU side, and whether they do."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from npu_upgrade.audit.device_words import speaks_of_kernels
from npu_upgrade.audit.parity.counterparts import upstream_of
from npu_upgrade.audit.world import Pair, on_npu_side
from npu_upgrade.code.walk import walk
from npu_upgrade.lineage.dialect import is_device_bound
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.program.conditions import text_of
from npu_upgrade.program.facts import (
    CLASS,
    FUNCTION,
    METHOD,
    MODEL,
    NO_FACTS,
    Effective,
    Fact,
    Facts,
    Key,
    facts_of,
)
from npu_upgrade.program.program import Method

_OMNI = "vllm-omni"


@dataclass
class Sides:
    """One pair, with the methods effective on both sides."""

    pair: Pair
    gpu: Effective = field(init=False)
    npu: Effective = field(init=False)

    def __post_init__(self) -> None:
        self.gpu, self.npu = Effective(self.pair.gpu), Effective(self.pair.npu)

    def is_absent(self, fact: Fact) -> bool:
        return fact.kind == METHOD and fact.name not in self.npu.methods

    def telling(self, gpu: Method) -> Iterator[Fact]:
        """The facts of a GPU method that have to hold on the NPU side too."""
        facts = facts_of(gpu.owner.file, gpu.node)
        elsewhere = _only_on_cuda(gpu.node)
        above = _upstream(self.gpu, gpu.name, "vllm")
        beside = _upstream(self.npu, gpu.name, "vllm-ascend")
        for key, fact in facts.of.items():
            # What vllm and vllm-ascend both do, the NPU copy has lost; what vllm alone does is its own.
            mine = fact.effect and key in beside.of if key in above.of else self._matters(fact, gpu)
            if mine and not self._is_for_device(fact) and id(fact.node) not in elsewhere:
                yield fact
        if any(kind == METHOD and name in self._flag_readers for kind, name in facts.of):
            yield from (fact for fact in facts.named if fact.key not in facts.of)

    def _is_for_device(self, fact: Fact) -> bool:
        """Whether it is for CUDA, or does nothing but call functions that are."""
        if is_device_bound(fact.name):
            return True
        method = self.gpu.own.get(fact.name) if fact.kind == METHOD else None
        symbols = facts_of(method.owner.file, method.node).symbols if method else ()
        return bool(symbols) and all(speaks_of_kernels(text_of(symbol.node)) for symbol in symbols)

    def _matters(self, fact: Fact, gpu: Method) -> bool:
        if fact.kind == METHOD:
            return fact.name in self.gpu.own
        if fact.kind in (FUNCTION, CLASS):
            file = gpu.owner.file
            named = {
                *file.functions,
                *file.classes,
                *Downstream.within(file.program).class_names,
                self.pair.gpu.name,
            }
            return fact.name not in named
        return fact.kind == MODEL or (fact.effect and fact.name.partition(".")[0] in self._state)

    @cached_property
    def _state(self) -> set[str]:
        """Attributes that vllm-omni's GPU classes set."""
        return {name for cls in self.pair.gpu.mro if cls.project == _OMNI for name in cls.assigned}

    @cached_property
    def _flag_readers(self) -> set[str]:
        """Methods that read the attribute of the model whose name they are given."""
        direct = {name for name, method in self.gpu.own.items() if _reads_by_name(method)}
        return direct | {
            name
            for name, method in self.gpu.own.items()
            if len(method.node.body) < 3 and any(does(method, (METHOD, other)) for other in direct)
        }

    def has(self, npu: Method | None, key: Key, gpu: Method | None) -> bool:
        """Whether the NPU side does it: in this method, in what that calls, or moved elsewhere."""
        if npu is not None and self._reaches(npu, key, gpu):
            return True
        return any(
            does(method, key)
            and not (method.name in self.gpu.methods and does(self.gpu.methods[method.name], key))
            for method in self.npu.own.values()
            if on_npu_side(method.owner.file)
        )

    def _reaches(self, npu: Method, key: Key, gpu: Method | None) -> bool:
        for place in self.npu.reach(npu).values():
            if key in place.facts:
                # What the GPU side does both here and in a method called from here is due in both.
                beside = self.gpu.methods.get(place.name) if gpu and place.owner else None
                if gpu is None or beside is None or place.name == npu.name:
                    return True
                if not (does(beside, key) and id(beside.node) in self.gpu.reach(gpu)):
                    return True
        return False


@functools.lru_cache(maxsize=4096)
def _only_on_cuda(node: ast.AST) -> frozenset[int]:
    """What stands under a condition that speaks of CUDA."""
    branches = (inner for inner in walk(node) if isinstance(inner, ast.If))
    bound = (branch for branch in branches if is_device_bound(ast.unparse(branch.test)))
    return frozenset(id(inner) for branch in bound for part in branch.body for inner in walk(part))


def _upstream(side: Effective, name: str, project: str) -> Facts:
    method = upstream_of(side, name, project)
    return facts_of(method.owner.file, method.node) if method else NO_FACTS


def does(method: Method, key: Key) -> bool:
    return key in facts_of(method.owner.file, method.node)


def _reads_by_name(method: Method) -> bool:
    names = {arg.arg for arg in method.node.args.args}
    calls = (node for node in walk(method.node) if isinstance(node, ast.Call))
    return any(
        isinstance(call.func, ast.Name)
        and call.func.id == "getattr"
        and len(call.args) > 1
        and isinstance(call.args[1], ast.Name)
        and call.args[1].id in names
        for call in calls
    )
