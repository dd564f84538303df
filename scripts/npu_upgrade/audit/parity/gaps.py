"""Which of the GPU side's facts an NPU class lacks, each put where it belongs.

Every drift is told once. What stands in a method that the NPU class lacks belongs to that
method, unless the NPU side has that method's text elsewhere; what stands under a condition
that is lacking belongs to the condition.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.counterparts import is_written_out, share_within, upstream_of
from npu_upgrade.audit.world import Pair, World, on_npu_side
from npu_upgrade.code.walk import walk
from npu_upgrade.ground.held import held
from npu_upgrade.ground.tables import shortened
from npu_upgrade.lineage.dialect import idle_without_cuda, is_device_bound, speaks_of_kernels
from npu_upgrade.lineage.downstream import class_names_in
from npu_upgrade.program.conditions import text_of
from npu_upgrade.program.facts import (
    CLASS,
    FUNCTION,
    MEMBER,
    METHOD,
    MODEL,
    NO_FACTS,
    Effective,
    Fact,
    Facts,
    Key,
    facts_of,
)
from npu_upgrade.program.program import ClassSymbol, Method

_OMNI = "vllm-omni"
_WRITTEN_OUT = 0.3
_OWN_WAY = 0.5


@dataclass(frozen=True)
class Gap:
    """What one GPU method has and its NPU counterpart lacks.

    ``kind`` is ``method`` (``npu`` is the method that runs instead, None where nothing does),
    ``own-way`` (the NPU side does it by itself, differently), ``hook``, ``attribute`` or
    ``branch``. ``lacking`` are the facts, the most telling first; ``where`` is the NPU method to look at.
    """

    kind: str
    pair: Pair
    gpu: Method
    npu: Method | None
    lacking: tuple[Fact, ...]
    where: Method | None


def gaps(world: World, *kinds: str) -> Iterator[Gap]:
    """The gaps of these kinds over all pairs of omni classes, each pair of methods once."""
    return (gap for gap in _every(world) if gap.kind in kinds)


@held
def _every(world: World) -> list[Gap]:
    return list(_gaps(world))


def told_lacking(world: World) -> dict[int, set[str]]:
    """The names that other checks tell to be lacking in a GPU method, by its node."""
    found: dict[int, set[str]] = {}
    for gap in gaps(world, "method", "own-way", "hook", "attribute", "branch"):
        found.setdefault(id(gap.gpu.node), set()).update(fact.name for fact in gap.lacking)
    return found


def _gaps(world: World) -> Iterator[Gap]:
    told: set[tuple[int, int]] = set()
    absent: list[tuple[str, ClassSymbol]] = []
    for pair in sorted(world.pairs if world.of_omni else [], key=lambda pair: len(pair.npu.mro)):
        for gap in Parity(pair, world).gaps(told):
            if gap.kind == "method":
                if any(name == gap.gpu.name and cls in pair.npu.mro[1:] for name, cls in absent):
                    continue
                absent.append((gap.gpu.name, pair.npu))
            yield gap


@dataclass
class Parity:
    """The gaps of one pair."""

    pair: Pair
    world: World

    def gaps(self, told: set[tuple[int, int]]) -> Iterator[Gap]:
        """All gaps of the pair; ``told`` are the pairs of methods already compared, and grows."""
        known: set[Key] = set()
        for method in self.counterparts:
            other = self.pair.npu_side.methods.get(method.name)
            place = (id(method.node), id(other.node) if other else 0)
            if place in told:
                continue
            if other is None or not self.is_counterpart(other, method):
                yield from self._absence(method, other, known)
            else:
                told.add(place)
                yield from self._differences(method, other, [other])

    @cached_property
    def missing(self) -> list[ClassSymbol]:
        """Bases that the NPU class lacks; they are told as a whole."""
        return missing_bases(self.pair, self.world)

    @cached_property
    def counterparts(self) -> list[Method]:
        """The GPU methods of omni that another one stands for on the NPU side, or none."""
        own = sorted(self.pair.gpu_side.own.values(), key=lambda m: (m.owner.file.path, m.node.lineno))
        others = ((m, self.pair.npu_side.methods.get(m.name)) for m in own if m.owner not in self.missing)
        return [method for method, other in others if other is None or other.node is not method.node]

    def is_counterpart(self, npu: Method, gpu: Method) -> bool:
        """Whether a method was written as the NPU version of ``gpu``, not of what that one overrides."""
        if npu.owner.project != _OMNI or npu.owner in gpu.owner.mro:
            return False
        if gpu.owner is not self.pair.gpu or npu.owner is self.pair.npu:
            return True
        return all(pair.npu is not npu.owner for pair in self.world.pairs)

    # A method that is missing

    def _absence(self, gpu: Method, npu: Method | None, known: set[Key]) -> Iterator[Gap]:
        """``known`` are the facts lacking in methods told before: helpers of one feature share them."""
        callers = self._callers(gpu) if npu is None else [npu]
        if not callers:
            return
        where = callers[0] if npu is None else npu
        written = self._written_out(gpu, callers) if npu is None else 0.0
        if written >= _WRITTEN_OUT and where is not None:
            yield from self._differences(gpu, where, callers)
            return
        lacking = tuple(self._lacking_inside(gpu, callers, set()))
        if npu is not None and npu.owner.project == "vllm-ascend":
            # vllm-ascend has its own version for its own device; what omni asks of models is not in it.
            lacking = tuple(fact for fact in lacking if fact.kind in (MODEL, METHOD))
        new = [fact for fact in lacking if fact.key not in known]
        known |= {fact.key for fact in lacking}
        if new or (lacking and npu is not None) or self._is_used(gpu, callers):
            yield Gap("method", self.pair, gpu, npu, lacking, where)
        elif npu is None and not lacking and written < _OWN_WAY and self._asks_model(gpu):
            yield Gap("own-way", self.pair, gpu, npu, tuple(self._asks_model(gpu)), where)

    def _callers(self, gpu: Method) -> list[Method | None]:
        """NPU counterparts of the methods that use ``gpu``; [None] for one that is called from outside."""
        using = [caller for caller in self.pair.gpu_side.callers.get(gpu.name, []) if caller.name != gpu.name]
        if not using:
            others = _text_of_others(self.world)
            named = f'"{gpu.name}"' in others or f".{gpu.name}(" in others
            return [None] if named else []
        found = [(caller, self.pair.npu_side.methods.get(caller.name)) for caller in using]
        return [
            other
            for caller, other in found
            if other and (other.node is caller.node or self.is_counterpart(other, caller))
        ]

    def _is_used(self, gpu: Method, callers: Sequence[Method | None]) -> bool:
        """Whether the NPU side itself calls what it does not have."""
        return gpu.name not in self.pair.npu_side.methods and any(
            does(method, (METHOD, gpu.name)) for method in callers if method
        )

    def _written_out(self, gpu: Method, callers: Sequence[Method | None]) -> float:
        others = [(m.owner.file, m.node) for m in callers if m and on_npu_side(m.owner.file)]
        return share_within(gpu.owner.file, gpu.node, others)

    def _asks_model(self, gpu: Method) -> list[Fact]:
        facts = facts_of(gpu.owner.file, gpu.node).of.values()
        return [fact for fact in facts if fact.kind == MODEL and fact.call]

    def _lacking_inside(self, gpu: Method, npu: Sequence[Method | None], seen: set[str]) -> Iterator[Fact]:
        """The facts of a method, and of those that come with it, that none of ``npu`` has."""
        seen.add(gpu.name)
        for fact in self.telling(gpu):
            name = fact.name
            if self.is_absent(fact) and name in self.pair.gpu_side.own:
                if name not in seen and self.pair.gpu_side.own[name].owner not in self.missing:
                    yield from self._lacking_inside(self.pair.gpu_side.own[name], npu, seen)
            elif not any(self.has(method, fact.key, None) for method in npu):
                yield fact

    # A method that both have

    def _differences(self, gpu: Method, npu: Method, places: Sequence[Method | None]) -> Iterator[Gap]:
        lacking = [fact for fact in self.telling(gpu) if self._is_lacking(fact, gpu, places)]
        for group in grouped(gpu.node, lacking):
            if any(self.is_absent(fact) for fact in group.facts):
                continue
            asked = [fact for fact in group.facts if fact.kind == MODEL]
            kind = "hook" if not asked else "branch" if group.is_branch else "attribute"
            first = [fact for fact in asked or group.facts if fact.call] or asked or group.facts
            rest = [fact for fact in group.facts if fact is not first[0]]
            yield Gap(kind, self.pair, gpu, npu, (first[0], *rest), npu)

    def _is_lacking(self, fact: Fact, gpu: Method, places: Sequence[Method | None]) -> bool:
        if self.is_absent(fact):
            return True
        if is_written_out(fact, gpu, [place for place in places if place]):
            return False
        return not any(self.has(place, fact.key, gpu) for place in places)

    # What has to hold on the NPU side, and whether it does

    def is_absent(self, fact: Fact) -> bool:
        return fact.kind == METHOD and fact.name not in self.pair.npu_side.methods

    def telling(self, gpu: Method) -> Iterator[Fact]:
        """The facts of a GPU method that have to hold on the NPU side too."""
        facts = facts_of(gpu.owner.file, gpu.node)
        elsewhere = _only_on_cuda(gpu.node)
        above = _upstream(self.pair.gpu_side, gpu.name, "vllm")
        beside = _upstream(self.pair.npu_side, gpu.name, "vllm-ascend")
        for key, fact in facts.of.items():
            # What vllm and vllm-ascend both do, the NPU copy has lost; what vllm alone does is its own.
            mine = fact.effect and key in beside.of if key in above.of else self._matters(fact, gpu)
            if mine and not self._is_for_device(fact) and id(fact.node) not in elsewhere:
                yield fact
        if any(kind == METHOD and name in self._flag_readers for kind, name in facts.of):
            yield from (fact for fact in facts.named if fact.key not in facts.of)

    def _is_for_device(self, fact: Fact) -> bool:
        """Whether it is for CUDA, idle without it, or does nothing but call functions that are for it."""
        if is_device_bound(fact.name) or fact.name.rpartition(".")[2] in self._idle:
            return True
        method = self.pair.gpu_side.own.get(fact.name) if fact.kind == METHOD else None
        symbols = facts_of(method.owner.file, method.node).symbols if method else ()
        return bool(symbols) and all(speaks_of_kernels(text_of(symbol.node)) for symbol in symbols)

    @cached_property
    def _idle(self) -> frozenset[str]:
        omni = self.world.triple.omni
        files = {cls.file.path for cls in self.pair.gpu.mro if cls.project == _OMNI}
        return idle_without_cuda(omni, files) if omni else frozenset()

    def _matters(self, fact: Fact, gpu: Method) -> bool:
        if fact.kind == METHOD:
            return fact.name in self.pair.gpu_side.own
        if fact.kind in (FUNCTION, CLASS):
            file = gpu.owner.file
            named = {
                *file.functions,
                *file.classes,
                *class_names_in(file.program),
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
        direct = {name for name, method in self.pair.gpu_side.own.items() if _reads_by_name(method)}
        return direct | {
            name
            for name, method in self.pair.gpu_side.own.items()
            if len(method.node.body) < 3 and any(does(method, (METHOD, other)) for other in direct)
        }

    def has(self, npu: Method | None, key: Key, gpu: Method | None) -> bool:
        """Whether the NPU side does it: in this method, in what that calls, or moved elsewhere."""
        if npu is not None and self._reaches(npu, key, gpu):
            return True
        return any(
            does(method, key)
            and not (
                method.name in self.pair.gpu_side.methods
                and does(self.pair.gpu_side.methods[method.name], key)
            )
            for method in self.pair.npu_side.own.values()
            if on_npu_side(method.owner.file)
        )

    def _reaches(self, npu: Method, key: Key, gpu: Method | None) -> bool:
        for place in self.pair.npu_side.reach(npu).values():
            if key in place.facts:
                # What the GPU side does both here and in a method called from here is due in both.
                beside = self.pair.gpu_side.methods.get(place.name) if gpu and place.owner else None
                if gpu is None or beside is None or place.name == npu.name:
                    return True
                if not (does(beside, key) and id(beside.node) in self.pair.gpu_side.reach(gpu)):
                    return True
        return False


@held
def _text_of_others(world: World) -> str:
    """The text of vllm-omni outside its workers, where methods of workers are called by name."""
    paths = world.program.paths("vllm_omni")
    return "\n".join(world.program.text(path) for path in paths if "/worker" not in path)


@dataclass(frozen=True)
class Group:
    """Facts that are lacking together; ``is_branch`` when a branch of a chain of conditions is what lacks."""

    facts: list[Fact]
    is_branch: bool


def grouped(method: ast.stmt, lacking: Sequence[Fact]) -> Iterator[Group]:
    """The facts of each condition that tests one of them, then the others one by one."""
    left = list(lacking)
    branches = [node for node in walk(method) if isinstance(node, ast.If)] if left else []
    names = {id(fact): _bound_to(method, fact.node) for fact in left}
    for branch in branches:
        tested = _ids(branch.test)
        used = {node.id for node in walk(branch.test) if isinstance(node, ast.Name)}
        asks = [fact for fact in left if id(fact.node) in tested or used & names[id(fact)]]
        if asks:
            body = {inner for part in branch.body for inner in _ids(part)}
            inside = [fact for fact in left if fact in asks or id(fact.node) in body]
            left = [fact for fact in left if fact not in inside]
            yield Group(inside, _is_one_of_several(method, branch))
    # One statement is one step, and so is all that is done with one member.
    places = {id(fact): _statement(method, fact.node) for fact in left}
    members = {places[id(f)]: f.name.partition(".")[0] for f in left if f.kind == MEMBER}
    together: dict[object, list[Fact]] = {}
    for fact in left:
        place = places[id(fact)]
        together.setdefault(members.get(place, place), []).append(fact)
    yield from (Group(facts, False) for facts in together.values())


def _statement(method: ast.stmt, node: ast.expr) -> int:
    """The line where the simple statement around a node begins."""
    simple = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
    around = (n for n in walk(method) if isinstance(n, simple))
    lines = [n.lineno for n in around if n.lineno <= node.lineno <= (n.end_lineno or n.lineno)]
    return max(lines, default=node.lineno)


def _ids(node: ast.AST) -> set[int]:
    return {id(inner) for inner in walk(node)}


def _bound_to(method: ast.AST, value: ast.expr) -> set[str]:
    """The names that a statement of the method gives to what holds ``value``."""
    return {
        name.id
        for node in walk(method)
        if isinstance(node, ast.Assign) and node.lineno <= value.lineno <= (node.end_lineno or node.lineno)
        if id(value) in _ids(node.value)
        for target in node.targets
        for name in walk(target)
        if isinstance(name, ast.Name)
    }


def _is_one_of_several(method: ast.AST, branch: ast.If) -> bool:
    if branch.orelse:
        return True
    return any(isinstance(node, ast.If) and node.orelse == [branch] for node in walk(method))


def missing_bases(pair: Pair, world: World) -> list[ClassSymbol]:
    """The missing ancestors in their order, less those with a counterpart of their own."""
    mirrored = {id(other.gpu) for other in world.pairs}
    return [
        cls
        for cls in pair.gpu.mro
        if cls.project == "vllm-omni" and id(cls) not in mirrored and cls not in pair.npu.mro
    ]


_SHOWN = 4
PORT = "port it (upgrade.py port), or waive it with the reason"


def fact_text(fact: Fact) -> str:
    """A fact in words: ``self.f()``, ``self.model.f``, the function ``f()``."""
    if fact.kind == MODEL:
        return f"model.{fact.name}" + ("()" if fact.call else "")
    if fact.kind in (FUNCTION, CLASS):
        return f"{fact.name}()"
    return f"self.{fact.name}()"


def facts_text(facts: tuple[Fact, ...]) -> str:
    return shortened(map(fact_text, facts), _SHOWN)


def lacking(gap: Gap, kind: str, what: str, why: str, like: str) -> Finding:
    """The finding for a fact of a GPU method that the NPU counterpart lacks."""
    npu, fact = gap.npu or gap.where, gap.lacking[0]
    owner = npu.owner if npu and npu.owner.project == gap.pair.npu.project else gap.pair.npu
    here = side(npu) if npu and npu.owner is owner else side(owner)
    return Finding(
        kind=kind,
        owner=owner.name,
        subject=f"{fact.name} in {gap.gpu.name}",
        what=what,
        here=here,
        there=side(gap.gpu, fact.node.lineno, f"{gap.gpu.qualname}: {fact_text(fact)}"),
        incident="P",
        why=why,
        todo=PORT,
        like=like,
    )


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
