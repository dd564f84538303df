"""Constructors that do not take what those of all other heirs of their base take: whoever makes an object of
any of them gives it to this one too.
"""

from __future__ import annotations

from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function, named_of, signature
from npu_upgrade.program.heirs import heirs
from npu_upgrade.program.program import ClassSymbol

ABOUT = "constructors that take less than those of all other heirs of their base"

_FEWEST = 3
_ANY = "**"


def check(world: World) -> Iterator[Finding]:
    for cls in world.side.classes if world.of_omni else ():
        made = cls.methods.get("__init__")
        for base in cls.mro[1:] if made else ():
            if made and base.project == cls.project and (found := _narrower(cls, made.node, base, world)):
                yield found
                break


def _narrower(cls: ClassSymbol, own: Function, base: ClassSymbol, world: World) -> Finding | None:
    others = [one for one in heirs(base, world.program) if one is not cls and "__init__" in one.methods]
    if len(others) < _FEWEST:
        return None
    takes = [_takes(one.methods["__init__"].node) for one in others]
    lacking = sorted(set.intersection(*takes) - _takes(own))
    if not lacking or (_ANY not in lacking and _ANY in _takes(own)):
        return None
    names = ", ".join("any further ones by name" if name == _ANY else name for name in lacking)
    return Finding(
        kind="narrower",
        owner=cls.name,
        subject=f"__init__: {', '.join(lacking)}",
        what=f"{cls.name}() does not take {names}, as all {len(others)} others that make a {base.name} do",
        here=side(cls.methods["__init__"], text=signature(own)),
        there=side(others[0].methods["__init__"], text=signature(others[0].methods["__init__"].node)),
        incident="S",
        why="whoever makes any of them gives them the same, and this one raises TypeError",
        todo="take what the others take",
    )


def _takes(node: Function) -> set[str]:
    """The names of its parameters, with ``**`` where it takes any."""
    return {arg.arg for arg in named_of(node.args)} | ({_ANY} if node.args.kwarg else set())
