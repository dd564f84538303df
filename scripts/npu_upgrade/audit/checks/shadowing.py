"""Methods of vllm-ascend that the GPU side's, before them in the MRO, hide; mixins behind others."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function, misfit, places_of, plain_text, signature
from npu_upgrade.code.walk import walk
from npu_upgrade.ground.tables import shortened
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.self_use import SelfUse, self_use

ABOUT = (
    "methods of vllm-ascend that never run because a GPU-side class precedes it in the MRO, and of mixins "
    "that stand behind the class that they extend"
)
_SHOWN = 4


def check(world: World) -> Iterator[Finding]:
    found: dict[tuple[Method, Method], list[Shadow]] = {}
    for cls in world.concrete if world.of_omni else ():
        for shadow in (one for made in (cls, *cls.variants) for one in shadows(made, world)):
            found.setdefault((shadow.over, shadow.under), []).append(replace(shadow, cls=cls))
    for several in found.values():
        yield _finding(several, world)
    for cls in world.last_classes if world.of_omni else ():
        yield from _behind(cls)


def _behind(cls: ClassSymbol) -> Iterator[Finding]:
    """Methods of the bases of a class that go on to the next one, behind one that never goes on to them.

    A mixin that passes on with ``super()`` extends what comes after it. As the last it extends nothing.
    """
    bases = [base for base in cls.bases if isinstance(base, ClassSymbol)]
    for base in bases:
        others = {owner for other in bases if other is not base for owner in other.mro}
        for name, method in base.methods.items():
            over = cls.lookup(name)
            if name not in self_use(method.node).supers or over is None or over.owner not in others:
                continue
            of_its_own = any(name in owner.methods for owner in base.mro[1:])
            if not of_its_own and method not in _chain(cls, name):
                yield _unreached(cls, over, method)


def _unreached(cls: ClassSymbol, over: Method, under: Method) -> Finding:
    return Finding(
        kind="behind",
        owner=cls.name,
        subject=f"{under.owner.name}.{under.name}",
        what=f"{cls.name} has {under.owner.name} behind {over.owner.name}: {over.qualname} answers, and "
        f"{under.qualname}, which passes on to the next, never runs",
        here=side(cls),
        there=side(under, text=signature(under.node)),
        incident="S",
        why="what the mixin adds is silently left out",
        todo=f"name {under.owner.name} before {over.owner.name} among the bases",
    )


def _finding(found: list[Shadow], world: World) -> Finding:
    shadow = found[0]
    under = shadow.under
    return Finding(
        kind="shadow-misfit" if shadow.misfit else "shadowed",
        owner=world.nearest_common([one.cls for one in found]).name,
        subject=under.name if under.owner in shadow.cls.mro else under.qualname,
        what=_what(shadow),
        here=side(shadow.by, text=signature(shadow.by.node)),
        there=side(under, text=signature(under.node)),
        incident="S",
        why="what vllm-ascend does there for NPUs is silently left out"
        if not shadow.misfit
        else "the call raises TypeError",
        todo=f"override {under.name} in the NPU class: vllm-ascend's logic with omni's",
        like="vllm-omni #505",
        parts=tuple(dict.fromkeys(part for one in found for part in one.lost)),
    )


def _what(shadow: Shadow) -> str:
    over, under = shadow.over, shadow.under
    if shadow.misfit:
        return f"{over.qualname} stands before {under.qualname} and does not fit its calls: {shadow.misfit}"
    way = "" if shadow.by is over else f"{shadow.by.qualname} goes on to it past vllm-ascend's; "
    return (
        f"{way}{over.qualname} hides {under.qualname} and does not pass on to it; "
        f"lost: {shortened(shadow.lost, _SHOWN)}"
    )


# A shorter line is ``return None`` or ``else:``.
_SHORT = 12


@dataclass(frozen=True)
class Shadow:
    """On objects of ``cls``, ``over`` (the GPU side's) runs where ``under`` (vllm-ascend's) should.

    Where ``under`` is not of that class, objects on a special device are meant.

    ``by`` is the method of an NPU class that goes on to ``over``, or ``over`` itself.

    ``lost`` is what only vllm-ascend's method has: the names it uses, else its statements.
    ``misfit`` tells why calls meant for it fail although the other one passes on; where it is
    empty nothing passes on.
    """

    cls: ClassSymbol
    over: Method
    under: Method
    by: Method
    lost: tuple[str, ...]
    misfit: str = ""


def shadows(cls: ClassSymbol, world: World) -> Iterator[Shadow]:
    """The methods of vllm-ascend that calls on objects of a class do not reach, or reach in vain."""
    ascend = [owner for owner in cls.mro if owner.project == "vllm-ascend"]
    for name in {name: None for owner in ascend for name in owner.methods}:
        under = next(owner.methods[name] for owner in ascend if name in owner.methods)
        chain = _chain(cls, name)
        over = next((m for m in chain if _is_gpu_side(m, world)), None)
        if over is None or (name.startswith("__") and name != "__init__"):
            continue
        if under in chain:
            if reason := _call_misfit(over, under) or (over is chain[0] and _other_places(over, under)):
                yield Shadow(cls, over, under, over, (), reason)
        elif _precedes(cls, over, under) and (lost := _lost(cls, under, chain, over)):
            yield Shadow(cls, over, under, chain[max(chain.index(over) - 1, 0)], lost)


def _chain(cls: ClassSymbol, name: str) -> list[Method]:
    """The methods that one call runs: the first of the MRO, and those reached on from there."""
    found: list[Method] = []
    method = cls.lookup(name)
    while method is not None and method not in found:
        found.append(method)
        method = _next(cls, method, self_use(method.node))
    return found


def _next(cls: ClassSymbol, method: Method, use: SelfUse) -> Method | None:
    """The method of the same name that one passes on to, by ``super()`` or by a class's name."""
    if method.name in use.supers:
        return cls.after(method.owner, method.name)
    owners = {owner for owner, called in use.explicit if called == method.name}
    named = next((base for base in cls.mro if base.name in owners), None)
    return named.lookup(method.name) if named else None


def _is_gpu_side(method: Method, world: World) -> bool:
    """Whether a method belongs to an omni class that is not made for NPUs."""
    return method.owner.project == "vllm-omni" and method.owner.file not in world.files


def _precedes(cls: ClassSymbol, over: Method, under: Method) -> bool:
    return cls.mro.index(over.owner) < cls.mro.index(under.owner)


def _lost(cls: ClassSymbol, under: Method, chain: list[Method], over: Method) -> tuple[str, ...]:
    """What vllm-ascend's method has that neither vLLM's nor any method that runs has.

    An NPU class's own method may say the same in other words, so only names count there.
    """
    parent = cls.after(under.owner, under.name)
    others = [method.node for method in [*chain, *([parent] if parent else [])]]
    names = _names(under.node) - frozenset().union(*map(_names, others))
    if names or over is not chain[0]:
        return tuple(sorted(names))
    return tuple(sorted(_lines(under.node) - frozenset().union(*map(_lines, others))))


def _other_places(over: Method, under: Method) -> str:
    """Where a positional argument meant for one method arrives as something else in the other."""
    pairs = zip(_places(over.node), _places(under.node), strict=False)
    wrong = next(
        ((has, wants) for has, wants in pairs if has != wants and wants not in _places(over.node)), None
    )
    return f"its callers give {wrong[1]} where it takes {wrong[0]}" if wrong else ""


def _call_misfit(over: Method, under: Method) -> str:
    """Why the call of ``super()`` in one method does not fit the other."""
    calls = (
        node
        for node in walk(over.node)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == under.name
        and isinstance(node.func.value, ast.Call)
        and isinstance(node.func.value.func, ast.Name)
        and node.func.value.func.id == "super"
    )
    return next((reason for call in calls if (reason := misfit(call, under.node, bound=True))), "")


@functools.lru_cache(maxsize=4096)  # a node is its own key
def _names(node: Function) -> frozenset[str]:
    """The functions and attributes that a method calls, reads or sets."""
    found = {inner.attr for inner in walk(node) if isinstance(inner, ast.Attribute)}
    calls = (inner.func for inner in walk(node) if isinstance(inner, ast.Call))
    return frozenset(found | {func.id for func in calls if isinstance(func, ast.Name)}) - {node.name, "super"}


@functools.lru_cache(maxsize=4096)
def _lines(node: Function) -> frozenset[str]:
    """The lines of a method that say something, less its head and what passes on to another one."""
    lines = {line.strip() for line in plain_text(node).split("\n")[1:]}
    return frozenset(line for line in lines if len(line) > _SHORT and "super()" not in line)


def _places(node: Function) -> list[str]:
    return [arg.arg for arg in places_of(node.args)][1:]
