"""Conditions and guards of the GPU side that the NPU side has only in part, or not at all."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.counterparts import Both, both_sides, upstream_of
from npu_upgrade.audit.parity.gaps import PORT, fact_text, gaps, lacking, told_lacking
from npu_upgrade.audit.parity.lost import OPERAND, before, lost, lost_in
from npu_upgrade.audit.world import World, on_npu_side
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import walk
from npu_upgrade.ground.tables import cut
from npu_upgrade.lineage.dialect import is_device_bound, is_replaced
from npu_upgrade.program.conditions import Condition, conditions_of, guards, is_telling, names_in, text_of
from npu_upgrade.program.facts import CLASS, FUNCTION, METHOD, MODEL, Fact, facts_of
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.program import Method

ABOUT = "conditions of the GPU side that its NPU counterpart has only in part, or not at all"

_WORD = re.compile(r"\w+")


def check(world: World) -> Iterator[Finding]:
    for gap in gaps(world, "branch"):
        name = gap.lacking[0].name
        what = f"{gap.gpu.qualname} has a branch for model.{name}, {(gap.npu or gap.gpu).qualname} has not"
        why = "such a model takes the branch of the others"
        yield lacking(gap, "missing branch", what, why, "vllm-omni #6654")
    found = list(_of_methods(world))
    yield from found
    told = {(finding.owner, finding.subject.rpartition(" in ")[2], finding.subject) for finding in found}
    asked = told_lacking(world)
    for item in lost(world, OPERAND):
        place = (item.npu.owner.name, item.npu.name)
        words = asked.get(id(item.model.node), set())
        if words & set(_WORD.findall(item.name)):
            continue
        if not any(known[:2] == place and item.name in known[2] for known in told):
            told.add((*place, item.name))
            beside = f" beside {cut(item.among, 90)}" if item.among else ""
            yield lost_in(item, f"tests {item.name}{beside}", item.name)


def _of_methods(world: World) -> Iterator[Finding]:
    told, mentions = told_lacking(world), Mentions(world.program)
    for both in both_sides(world):
        if both.goes_on or not (world.of_omni or both.is_copied):
            continue
        side = _Sides(both, told, world, mentions)
        yield from side.findings()


class _Sides:
    """One GPU method and its NPU counterpart."""

    def __init__(self, both: Both, told: dict[int, set[str]], world: World, mentions: Mentions) -> None:
        of_omni = world.of_omni
        self.both, self.of_omni, self.mentions = both, of_omni, mentions
        self.told = told.get(id(both.gpu.node), set())
        self.above = upstream_of(both.pair.gpu_side, both.gpu.name) if of_omni else None
        # What vllm had before and says otherwise now is no news of either side.
        old = before(self.above, world) if self.above else None
        self.upstream = "\n".join(text_of(m.node) for m in (self.above, old) if m)
        reached = both.pair.npu_side.reach(both.npu).values()
        self.nodes = [place.node for place in reached if on_npu_side(place.file)]
        self.text = "\n".join(text_of(node) for node in self.nodes)

    def findings(self) -> Iterator[Finding]:
        seen: set[str] = set()
        for condition in conditions_of(self.both.gpu.node):
            missing = self._missing(condition.parts)
            if not missing or seen & set(missing):
                continue
            beside = self._beside(condition)
            if beside is not None and (not self.of_omni or set(beside.parts) < set(condition.parts)):
                seen |= set(missing)
                yield self._finding("part of the condition", missing, condition.node, beside.node)
            elif condition.ends_in_error and self.of_omni and set(missing) == set(condition.parts):
                seen |= set(missing)
                yield self._finding("missing guard", missing, condition.node, None)
        if self.of_omni:
            yield from self._guards(seen)
            yield from self._switches()
            yield from self._senses()

    def _missing(self, parts: Iterable[str]) -> list[str]:
        """The telling parts that the NPU side has nowhere."""
        return [part for part in dict.fromkeys(parts) if part not in self.text and self._counts(part)]

    def _counts(self, part: str, upstream: str | None = None) -> bool:
        words = set(_WORD.findall(part))
        absent = {
            w for w in words if w in self.both.pair.gpu_side.own and w not in self.both.pair.npu_side.methods
        }
        return (
            is_telling(part)
            and part not in (self.upstream if upstream is None else upstream)
            and not is_device_bound(part)
            and not is_replaced(part)
            and not absent
            and not words & self.told
            and not self.mentions.is_asked_in_vain(part)
        )

    def _beside(self, condition: Condition) -> Condition | None:
        """The NPU condition that has another part of this one."""
        shared = {part for part in condition.parts if is_telling(part)}
        found = (other for node in self.nodes for other in conditions_of(node) if shared & set(other.parts))
        return next(found, None)

    def _guards(self, seen: set[str]) -> Iterator[Finding]:
        """Guards around a call that both sides make once, where the NPU side has no guard of its own."""
        for fact in facts_of(self.both.gpu.owner.file, self.both.gpu.node).of.values():
            other = self._call_on_npu(fact)
            if other is None:
                continue
            there = set(guards(self.both.npu.node, other.node, operands=True))
            parts = dict.fromkeys(guards(self.both.gpu.node, fact.node))
            plain = {_plain(part) for part in there} | seen
            missing = [part for part in parts if _plain(part) not in plain and self._counts(part, "")]
            missing = [part for part in missing if not self._told_under(part)]
            if missing and not any(is_telling(part) for part in there - set(parts)):
                what = f"{fact_text(fact)} is called whatever {' and '.join(missing)} says"
                yield self._finding("missing guard", missing, fact.node, other.node, what)

    def _told_under(self, part: str) -> bool:
        """Whether what stands under a condition is told to be lacking already."""
        branches = (c.branch for c in conditions_of(self.both.gpu.node) if c.branch and part in c.parts)
        words = (set(_WORD.findall(ast.unparse(statement))) for b in branches for statement in b.body)
        return any(self.told & found for found in words)

    def _call_on_npu(self, fact: Fact) -> Fact | None:
        if not fact.call or fact.kind not in (METHOD, MODEL, FUNCTION, CLASS) or fact.name in self.upstream:
            return None
        if any(names_in(method.node)[fact.name] != 1 for method in (self.both.gpu, self.both.npu)):
            return None
        return facts_of(self.both.npu.owner.file, self.both.npu.node).of.get(fact.key)

    def _switches(self) -> Iterator[Finding]:
        """Switches that the GPU side sets under a condition, read above it, and the NPU side leaves."""
        for condition in conditions_of(self.both.gpu.node):
            for node in condition.branch.body if condition.branch else []:
                name = _switched(node)
                if name and f"self.{name} = " not in self.upstream and self._is_left(name):
                    what = f"{self.both.gpu.qualname} sets {name}, {self.both.npu.qualname} leaves it"
                    yield self._finding("missing guard", [f"self.{name}"], condition.node, None, what)

    def _is_left(self, name: str) -> bool:
        npu = self.both.pair.npu_side
        if any(name in cls.assigned for cls in npu.cls.mro if cls.project == "vllm-omni"):
            return False
        below = [cls for cls in npu.cls.mro if cls.project != "vllm-omni"]
        if any(_switched(node) == name for cls in below for _, node in cls.assigned.get(name, [])):
            return False
        methods = (method for cls in below for method in cls.methods.values())
        return any((METHOD, name) in facts_of(method.owner.file, method.node) for method in methods)

    def _senses(self) -> Iterator[Finding]:
        """Conditions about the same operands, before the same step, that do not say the same."""
        mine, theirs = decisions_of(self.both.gpu.node), decisions_of(self.both.npu.node)
        known = {d.sense for node in self.nodes for d in decisions_of(node)}
        said = {d.sense for d in mine}
        beside = upstream_of(self.both.pair.npu_side, self.both.gpu.name, "vllm-ascend")
        above = [{d.sense for d in decisions_of(m.node)} if m else set() for m in (self.above, beside)]
        for gpu in mine:
            if gpu.sense in known or not gpu.operands or is_device_bound(ast.unparse(gpu.node)):
                continue
            fits = [d for d in theirs if d.branch == gpu.branch and d.operands == gpu.operands]
            # Where vllm and vllm-ascend differ in the same way, each side keeps to its own.
            fits = [
                d for d in fits if d.sense not in said and not (gpu.sense in above[0] and d.sense in above[1])
            ]
            if fits:
                yield self._other_sense(gpu, fits[0])

    def _other_sense(self, gpu: Decision, npu: Decision) -> Finding:
        tests = [cut(ast.unparse(decision.node), 90) for decision in (gpu, npu)]
        what = f"{self.both.gpu.qualname} tests {tests[0]}, {self.both.npu.qualname} tests {tests[1]}"
        return self._finding("another condition", sorted(gpu.operands), gpu.node, npu.node, what)

    def _finding(
        self, kind: str, missing: list[str], gpu: ast.expr, npu: ast.expr | None, what: str = ""
    ) -> Finding:
        both, names = self.both, " and ".join(missing)
        told = what or f"{both.gpu.qualname} tests {names}, {both.npu.qualname} does not"
        if npu is not None and not what:
            told += f": it tests only {cut(ast.unparse(npu), 90)}"
        return Finding(
            kind=kind,
            owner=both.npu.owner.name,
            subject=f"{names} in {both.gpu.name}",
            what=told,
            here=side(both.npu, _line_in(both.npu, npu)),
            there=side(both.gpu, gpu.lineno, f"{both.gpu.qualname}: {cut(ast.unparse(gpu), 90)}"),
            incident="P",
            why="both sides decide differently on the same request or model",
            todo=PORT,
            like="vllm-omni #6654",
        )


def _plain(part: str) -> str:
    """A part of a condition, less what only counts whether there is any: ``x`` of ``len(x) == 0``."""
    counts = "len(" in part
    return sense_of(ast.parse(part, mode="eval").body).removeprefix("not ") if counts else part


def _switched(node: ast.stmt) -> str:
    """The attribute of ``self`` that a statement sets to True or False."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
        return ""
    target = node.targets[0]
    on_self = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    return target.attr if on_self and isinstance(node.value.value, bool) else ""


def _line_in(method: Method, node: ast.expr | None) -> int:
    inside = node is not None and method.node.lineno <= node.lineno <= (method.node.end_lineno or 0)
    return node.lineno if node is not None and inside else 0


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}
_OPPOSITE |= {there: here for here, there in _OPPOSITE.items()}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_SIGN: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
# What says of a count that it is not zero, by sign and number, with whether the count stands on the left.
_SOME = {("!=", 0, True), ("!=", 0, False), ("<", 0, False), ("<=", 1, False)}
_NONE = {("==", 0, True), ("==", 0, False), ("<=", 0, True), ("<", 1, True)}


@dataclass(frozen=True)
class Decision:
    """A condition: ``sense`` in one spelling, ``operands`` it is about (no constants), its ``node``, and
    ``branch``, the first thing that depends on it, as text.
    """

    sense: str
    operands: frozenset[str]
    node: ast.expr
    branch: str


@functools.lru_cache(maxsize=4096)  # nodes are their own keys
def decisions_of(function: Function) -> tuple[Decision, ...]:
    """The conditions of ``if``, ``while`` and ``x if c else y`` in a function."""
    found = []
    for node in walk(function):
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            branch = unparse(node.body if isinstance(node, ast.IfExp) else node.body[0])
            operands = frozenset(_operands(node.test))
            found.append(Decision(sense_of(node.test), operands, node.test, branch))
    return tuple(found)


def sense_of(node: ast.expr, negated: bool = False) -> str:
    """The text of a condition, the same for what means the same: negations moved inwards, sides and
    operands in order, counts compared with 0 or 1 as one. ``x is None`` is not ``not x``.
    """
    sign = "not " if negated else ""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return sense_of(node.operand, not negated)
    if isinstance(node, ast.BoolOp):
        joined = isinstance(node.op, ast.And) is not negated
        senses = {sense_of(value, negated) for value in _flat(node)}
        return f"({(' and ' if joined else ' or ').join(sorted(senses))})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(node.left, type(node.ops[0]), node.comparators[0], negated)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        if node.func.id == "bool":
            return sense_of(node.args[0], negated)
        if node.func.id == "len":
            return f"{sign}{unparse(node.args[0])}"
    return f"{sign}{unparse(node)}"


def _compared(left: ast.expr, op: type[ast.cmpop], right: ast.expr, negated: bool) -> str:
    op = _OPPOSITE[op] if negated else op
    if op in _TURNED:
        left, op, right = right, _TURNED[op], left
    for count, limit, first in ((left, right, True), (right, left, False)):
        if _is_count(count) and isinstance(limit, ast.Constant) and isinstance(limit.value, int):
            said = (_SIGN[op], limit.value, first)
            if said in _SOME | _NONE:
                return sense_of(count, said in _NONE)
    if op in (ast.Eq, ast.NotEq):
        for value, number in ((left, right), (right, left)):
            if isinstance(number, ast.Constant) and number.value == 0 and number.value is not False:
                return sense_of(value, op is ast.Eq)
        return f" {_SIGN[op]} ".join(sorted((unparse(left), unparse(right))))
    return f"{unparse(left)} {_SIGN[op]} {unparse(right)}"


def _is_count(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def _flat(node: ast.BoolOp) -> list[ast.expr]:
    """The operands of one joining, those of the same joining inside it included."""
    found: list[ast.expr] = []
    for value in node.values:
        same = isinstance(value, ast.BoolOp) and type(value.op) is type(node.op)
        found += _flat(value) if isinstance(value, ast.BoolOp) and same else [value]
    return found


def _operands(node: ast.expr) -> list[str]:
    """What a condition is about: the expressions it joins and compares, less constants and ``len``."""
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in _operands(value)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _operands(node.operand)
    if isinstance(node, ast.Compare):
        return [text for value in (node.left, *node.comparators) for text in _operands(value)]
    if isinstance(node, ast.Call) and unparse(node.func) in ("bool", "len"):
        return [text for value in node.args for text in _operands(value)]
    return [] if isinstance(node, ast.Constant) else [unparse(node)]
