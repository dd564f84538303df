"""What an NPU method had in the old triple and has no longer, though what it follows still has it."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.call_keywords import callee
from npu_upgrade.audit.parity.counterparts import upstream_of
from npu_upgrade.audit.world import Pair, World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function, is_spread
from npu_upgrade.code.walk import are_equal, dotted, walk
from npu_upgrade.ground.held import held
from npu_upgrade.lineage.dialect import is_device_bound, is_replaced
from npu_upgrade.program.conditions import conditions_of, text_of
from npu_upgrade.program.facts import Effective, effective
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.program import File, Method
from npu_upgrade.program.scope import locals_of
from npu_upgrade.program.version_guards import may_guard

# What a callee takes where it is given nothing, most often.
EMPTY = {"None", "False", "[]", "{}", "()", "''", "0"}
OPERAND, KEYWORD, STEP = "operand", "keyword", "step"
_WORD = re.compile(r"\w+")
_ATTRIBUTE = re.compile(r"self(\.\w+)*\.\w+_\w+_\w+")
_LOG = ("logger.", "log.", "print", "super")
# (what it is one of, what it is): the other operands of a condition, or a callee; and the text or name
Item = tuple[str, str]


@dataclass(frozen=True)
class Lost:
    """One thing lost: ``kind`` operand, keyword or step; ``name`` it, of ``among`` (the rest of the
    condition, or the callee); ``npu`` the method without it, ``model`` the one that has it still.
    """

    kind: str
    name: str
    among: str
    npu: Method
    model: Method


def lost(world: World, kind: str) -> Iterator[Lost]:
    """What the methods of the NPU classes lost since ``world.old``; nothing without an old triple."""
    return (item for item in _alive(world) if item.kind == kind)


@held
def _alive(world: World) -> list[Lost]:
    found = list(_all(world)) if world.old else []
    mentions = Mentions(world.program)
    dead = _dead(mentions, found)
    found = [item for item in found if not dead & set(_WORD.findall(item.name))]
    return [item for item in found if item.kind != OPERAND or not mentions.is_asked_in_vain(item.name)]


def _dead(mentions: Mentions, found: list[Lost]) -> set[str]:
    """The methods that a method asks for before it calls them, and that nothing in the trees defines."""
    nodes = [item.model.node for item in found]
    asked = {name for node in nodes for name in locals_of(node).asked if f".{name}(" in text_of(node)}
    return {name for name in asked if not mentions.is_defined(name)}


def _all(world: World) -> Iterator[Lost]:
    told: set[int] = set()
    for pair in sorted(world.pairs, key=lambda pair: len(pair.npu.mro)):
        for method, old in _changed(pair, world):
            if id(method.node) not in told:
                told.add(id(method.node))
                yield from _of_method(method, old, pair, world)


def _changed(pair: Pair, world: World) -> Iterator[tuple[Method, Method]]:
    """The methods of the NPU class that read otherwise in the old triple, with the old ones."""
    for method in pair.npu.methods.values():
        old = before(method, world)
        if old and _differ(method.owner.file, method.node, old.owner.file, old.node):
            yield method, old


def _differ(file: File, node: Function, old_file: File, old: Function) -> bool:
    """Whether a function reads otherwise; most do not, and the source tells that, but for version guards."""
    source = _source(file, node)
    known = source == _source(old_file, old) and not may_guard(source)
    return not known and not are_equal(old, node)


def _source(file: File, node: Function) -> str:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return "\n".join(file.lines[first - 1 : node.end_lineno])


def before(method: Method, world: World) -> Method | None:
    """The same method in the old triple."""
    program = world.old.program if world.old else None
    cls = program.find_class(method.owner.file.path, method.owner.name) if program else None
    return cls.methods.get(method.name) if cls else None


def _of_method(method: Method, old: Method, pair: Pair, world: World) -> Iterator[Lost]:
    side = pair.npu_side
    models = [m for m in (pair.gpu_side.methods.get(method.name),) if m]
    above = upstream_of(side, method.name, "vllm-ascend") if world.of_omni else None
    vllm = upstream_of(side, method.name)
    models += [above] if above else []
    # What one of those that it follows gave up in the same time is not lost, but followed.
    followed = [(was, m) for m in models if (was := before(m, world))]
    others = _others(method, old, side)
    for kind, items_of in ((OPERAND, _operands), (KEYWORD, _keywords), (STEP, _steps)):
        gone = items_of(old.node) - items_of(method.node)
        given_up = {item for b, m in followed for item in items_of(b.node) - items_of(m.node)}
        known = {item for m in models for item in items_of(m.node)} if gone else set()
        come = {
            among for among, name in items_of(method.node) - items_of(old.node) if (among, name) not in known
        }
        apart = items_of(vllm.node) - items_of(above.node) if vllm and above else {}
        for item in gone:
            # What vllm-ascend does not do as vllm does, and an ``if`` that stands there elsewhere still.
            if item in apart or (not item[0] and item in items_of(method.node)):
                continue
            # Something of this method's own in the same place: it is another name for it.
            if item[0] in come or (kind == STEP and come):
                continue
            model = next((m for m in models if _has(kind, item, items_of(m.node))), None)
            if model and item not in given_up and not _elsewhere(kind, item, method, old, others):
                among, name = item
                known_there = above is not None and name in text_of(above.node)
                if known_there or not (is_device_bound(f"{among} {name}") or is_replaced(name)):
                    yield Lost(kind, name, among, method, model)


def _has(kind: str, item: Item, items: Counter[Item]) -> bool:
    """Whether it is among the items of a method that is followed: an operand beside whatever else, a
    keyword of a callee that it may have in a local name.
    """
    among, name = item
    if item in items or kind == STEP or not among:
        return item in items
    last = among.rpartition(".")[2]
    return any(n == name and (kind == OPERAND or a.rpartition(".")[2] == last) for a, n in items)


def _others(method: Method, old: Method, side: Effective) -> list[tuple[Function, Function | None]]:
    """What the method calls that is new or reads otherwise than before, each with the old one."""
    reach = effective(old.owner).reach(old).values()
    known = {(place.file.path, place.name): place for place in reach}
    reached = [place for place in side.reach(method).values() if place.node is not method.node]
    pairs = [(place, known.get((place.file.path, place.name))) for place in reached]
    return [
        (place.node, was.node if was else None)
        for place, was in pairs
        if was is None or _differ(place.file, place.node, was.file, was.node)
    ]


def _elsewhere(
    kind: str, item: Item, method: Method, old: Method, others: Iterable[tuple[Function, Function | None]]
) -> bool:
    """Whether the method has it in another way now: in what it calls, or spelled or passed otherwise."""
    among, name = item
    texts = [(text_of(node), text_of(was) if was else "") for node, was in others]
    if kind == KEYWORD:
        calls = [_calls(node).get(among, []) for node in (old.node, method.node)]
        if not calls[1] or any(is_spread(call) for call in calls[1]):
            return True  # the call itself is gone, or passes what cannot be told
        more = max(len(c.args) for c in calls[1]) > max((len(c.args) for c in calls[0]), default=0)
        moved = any(now.count(f"{name}=") > was.count(f"{name}=") for now, was in texts)
        return more or moved
    if kind == OPERAND:
        here = text_of(method.node)
        as_often = here.count(name) >= text_of(old.node).count(name)
        # What is called may come to the same attribute in another way.
        last = name.rpartition(".")[2] if _ATTRIBUTE.fullmatch(name) else name
        return as_often or among not in here or any(now.count(last) > was.count(last) for now, was in texts)
    called = f"{among.rpartition('.')[2]}("
    calls = (len(_calls(node).get(among, ())) for node in (method.node, old.node))
    fewer = next(calls) < next(calls)
    return not fewer or any(now.count(called) > was.count(called) for now, was in texts)


@functools.lru_cache(maxsize=1024)  # nodes are their own keys
def _operands(node: Function) -> Counter[Item]:
    """The operands of conditions, each with each of the others; those of ``if`` alone too."""
    found: Counter[Item] = Counter()
    for condition in conditions_of(node):
        parts = list(dict.fromkeys(condition.parts))
        found.update((other, part) for part in parts for other in parts if part != other)
        found.update(("", part) for part in parts if len(parts) == 1)
    return found


@functools.lru_cache(maxsize=1024)
def _keywords(node: Function) -> Counter[Item]:
    """The keywords of the calls, each with what is called; leaving out an empty value is no loss."""
    calls = ((name, call) for name, found in _calls(node).items() for call in found)
    return Counter(
        (name, keyword.arg)
        for name, call in calls
        for keyword in call.keywords
        if keyword.arg and unparse(keyword.value) not in EMPTY
    )


@functools.lru_cache(maxsize=1024)
def _steps(node: Function) -> Counter[Item]:
    """The calls made for their effect, or to put in the place of a name what they make of it, by callee."""
    steps = (n for n in walk(node) if isinstance(n, (ast.Expr, ast.Assign)) and isinstance(n.value, ast.Call))
    names = (_name(n.value) for n in steps if isinstance(n.value, ast.Call) and _is_step(n))
    return Counter((name, name) for name in names if not name.startswith(_LOG))


def _is_step(stmt: ast.Expr | ast.Assign) -> bool:
    """Whether a call stands alone, or is of the object itself and takes the name that it sets."""
    if isinstance(stmt, ast.Expr):
        return True
    target, call = stmt.targets[0], stmt.value
    if not isinstance(target, ast.Name) or not isinstance(call, ast.Call):
        return False
    given = {arg.id for arg in call.args if isinstance(arg, ast.Name)}
    return target.id in given and dotted(call.func).startswith("self.")


@functools.lru_cache(maxsize=1024)
def _calls(node: Function) -> dict[str, list[ast.Call]]:
    found: dict[str, list[ast.Call]] = {}
    for call in walk(node):
        if isinstance(call, ast.Call):
            found.setdefault(_name(call), []).append(call)
    return found


def _name(call: ast.Call) -> str:
    return callee(call) or unparse(call.func)


def lost_in(item: Lost, what: str, subject: str) -> Finding:
    """The finding for something lost; ``what`` it is in words."""
    npu, model = item.npu, item.model
    return Finding(
        kind="lost",
        owner=npu.owner.name,
        subject=f"{subject} in {npu.name}",
        what=f"{npu.qualname} no longer {what}; {model.qualname} of {model.owner.project} does",
        here=side(npu),
        there=side(model),
        incident="P",
        why="the old version had it, and what it follows has it still, so an upgrade lost it",
        todo="put it back, or waive it with the reason",
    )
