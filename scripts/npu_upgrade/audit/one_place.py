"""Two statements that differ at one place only, where an edit may have slipped: what is otherwise there.

Told are a constant, an operator, a condition turned round, arguments in another order, an argument, operand,
element or wrapper that is gone, and a name in whose place another stands. What brings a new name is none.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from npu_upgrade.audit.parity.lost import EMPTY
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.statements import nodes_of
from npu_upgrade.code.walk import are_equal, dotted, last_name

_TEXT = re.compile(
    r"(logger\.|log\.|warnings\.|assert |raise |import |from |global |nonlocal |print\(|['\"])"
)
_LISTS = {"args", "keywords", "values", "elts", "decorator_list"}  # of which one may be gone
_Operator = ast.operator | ast.cmpop | ast.boolop | ast.unaryop
Node = Any


@dataclass(frozen=True)
class Otherwise:
    """What stood at the one place, and what stands there, if anything; ``name``: the new or lost one."""

    before: str
    now: str
    name: str = ""


@dataclass(frozen=True)
class _Difference:
    parent: ast.AST
    field: str
    old: Node
    new: Node


def otherwise(before: str, now: str) -> Otherwise | None:
    """The one place at which two statements differ; None where it is more, or another kind of edit."""
    if _TEXT.match(before):
        return None
    old, new = (next(iter(nodes_of(key)), None) for key in (before, now))
    if old is None or new is None:
        return None
    found: list[_Difference] = []
    _compare(old, new, old, "", found)
    if len(found) == 1:
        return _kind(found[0])
    if len(found) == 2 and found[0].parent is found[1].parent:
        return _swapped(*found) or _entry(*found)
    return None


def _compare(old: Node, new: Node, parent: ast.AST, field: str, found: list[_Difference]) -> None:
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            found.append(_Difference(parent, field, old, new))
            return
        for one, other in zip(old, new, strict=True):
            _compare(one, other, parent, field, found)
    elif old.__class__ is not new.__class__ or _is_other_leaf(old, new):
        found.append(_Difference(parent, field, old, new))
    elif isinstance(old, ast.AST):
        for name in old._fields:
            _compare(getattr(old, name, None), getattr(new, name, None), old, name, found)
    elif old != new:
        found.append(_Difference(parent, field, old, new))


def _is_other_leaf(old: Node, new: Node) -> bool:
    """Whether two constants, names or attributes are not the same."""
    if isinstance(old, ast.Attribute):
        return old.attr != new.attr
    return isinstance(old, (ast.Constant, ast.Name)) and not are_equal(old, new)


def _kind(one: _Difference) -> Otherwise | None:
    old, new = one.old, one.new
    if isinstance(old, list):
        return _gone(one)
    if isinstance(old, _Operator) and isinstance(new, _Operator):
        return Otherwise(_sign(old), _sign(new))
    if not (isinstance(old, ast.expr) and isinstance(new, ast.expr)):
        return None
    for more, less in ((old, new), (new, old)):
        if isinstance(more, ast.UnaryOp) and are_equal(more.operand, less):
            return Otherwise(unparse(old), unparse(new))
    if (
        isinstance(old, ast.BoolOp)
        and len(old.values) == 2
        and any(are_equal(part, new) for part in old.values)
    ):
        gone = old.values[1 if are_equal(old.values[0], new) else 0]
        return Otherwise(unparse(gone), "")
    if isinstance(old, ast.Call) and any(are_equal(part, new) for part in old.args):
        return Otherwise(f"{unparse(old.func)}()", "", last_name(old.func))
    if isinstance(old, ast.Constant) and isinstance(new, ast.Constant):
        texts = [one.value for one in (old, new) if isinstance(one.value, str)]
        return None if any(" " in text for text in texts) else Otherwise(unparse(old), unparse(new))
    return Otherwise(unparse(old), unparse(new), last_name(new)) if _are_beside(old, new) else None


def _are_beside(old: ast.expr, new: ast.expr) -> bool:
    """Whether both are names, or attributes that one object has, or what it has."""
    roots = [dotted(one).partition(".")[0] for one in (old, new)]
    if isinstance(old, ast.Attribute) and isinstance(new, ast.Attribute):
        return are_equal(old.value, new.value) or (roots[0] == roots[1] == "self")
    return isinstance(old, ast.Name) and isinstance(new, ast.Name)


def _sign(operator: _Operator) -> str:
    a, b = ast.Name("a"), ast.Name("b")
    if isinstance(operator, ast.boolop):
        made: ast.expr = ast.BoolOp(operator, [a, b])
    elif isinstance(operator, ast.cmpop):
        made = ast.Compare(a, [operator], [b])
    else:
        made = ast.BinOp(a, operator, b) if isinstance(operator, ast.operator) else ast.UnaryOp(operator, a)
    return unparse(made).replace("a", "", 1).removesuffix("b").strip()


def _gone(one: _Difference) -> Otherwise | None:
    """The one element that a list has no longer."""
    old, new = one.old, one.new
    if one.field not in _LISTS or len(old) != len(new) + 1:
        return None
    for place, part in enumerate(old):
        if are_equal([*old[:place], *old[place + 1 :]], new):
            empty = unparse(part.value if isinstance(part, ast.keyword) else part) in EMPTY
            return None if empty else Otherwise(unparse(part), "")
    return None


def _swapped(one: _Difference, other: _Difference) -> Otherwise | None:
    if isinstance(one.old, ast.AST) and are_equal(one.old, other.new) and are_equal(other.old, one.new):
        return Otherwise(
            *(", ".join(map(unparse, both)) for both in ([one.old, other.old], [one.new, other.new]))
        )
    return None


def _entry(one: _Difference, other: _Difference) -> Otherwise | None:
    """An entry that a dictionary, or a comparison that a chain, has no longer."""
    if isinstance(one.parent, ast.Dict) and isinstance(one.old, list) and len(one.old) == len(one.new) + 1:
        gone = [key for key in one.old if key and not any(are_equal(key, left) for left in one.new)]
        return Otherwise(unparse(gone[0]), "") if len(gone) == 1 else None
    return None
