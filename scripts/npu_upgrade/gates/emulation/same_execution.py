"""Whether a run that is known would execute the same in an edited file: the edit is where it never came.

Python's own lines tell which statements ran, and a block is entered at its first one. What stands in a block
that was not entered, or behind a statement that always left its block, can be anything, as long as the names
of the function mean what they meant.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import are_equal, is_text, walk
from npu_upgrade.gates.emulation.changed import (
    binds,
    extent,
    functions,
    is_silent,
    nodes_by_name,
    outside,
    parsed,
    within,
)

_BLOCKS = ("body", "orelse", "finalbody")
_PARTS = ("handlers", "cases")  # each with a body of its own

Executed = Mapping[str, Sequence[int]]  # function -> numbers of its statements; "" is what is outside
Place = tuple[int, int]


def same_execution(
    before: str, after: str, executed: Executed, is_loaded: Callable[[ast.Import | ast.ImportFrom], bool]
) -> dict[str, list[int]] | None:
    """What such a run executes of ``after``, function -> numbers of statements; None where that is unknown.

    ``executed`` has those of ``before``. Outside of functions all has to be the same, signatures too; only
    imports may come on top that bind names which nothing there had, of what ``is_loaded`` then anyway.
    """
    try:
        old, new = parsed(before), parsed(after)
    except SyntaxError:
        return None
    brought = _imports_brought(old, new)
    bound = {binds(alias) for one in brought for alias in one.names}
    if not all(map(is_loaded, brought)) or bound & _names(old):
        return None
    was, now = nodes_by_name(old), nodes_by_name(new)
    places, others = functions(before), functions(after)
    found = {name: list[int]() for name in executed}
    for name, numbers in executed.items():
        if name and numbers:
            pairs = _Pairs({places[name][number] for number in numbers})
            nodes = was[name], now.get(name, [])
            if len(nodes[0]) != len(nodes[1]) or not all(map(pairs.in_function, *nodes)):
                return None
            found[name] = [number for number, place in enumerate(others[name]) if place in pairs.ran]
    places_brought = {(one.lineno, one.col_offset) for one in brought}
    rest = [code for place, code in outside(after).items() if place not in places_brought]
    if [*outside(before).values()] != rest:
        return None
    added = {extent(one) for one in brought}
    kept = [number for number, place in enumerate(others[""]) if place not in added]
    ran = {kept[number] for number in executed.get("", ())}
    found[""] = sorted(ran.union(set(range(len(others[""]))).difference(kept) if ran else ()))
    return found


def _imports_brought(old: ast.Module, new: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    known = {ast.dump(one) for one in old.body if isinstance(one, (ast.Import, ast.ImportFrom))}
    imports = [one for one in new.body if isinstance(one, (ast.Import, ast.ImportFrom))]
    return [one for one in imports if ast.dump(one) not in known]


@dataclass
class _Pairs:
    """Statements of two texts side by side: places of the first that were executed, those of the second."""

    executed: set[Place]
    ran: set[Place] = field(default_factory=set)
    _names: set[str] = field(default_factory=set)  # of what ran, in the function that is looked at

    def in_function(self, old: Function, new: Function) -> bool:
        """Whether a function runs the same, and what it names means the same."""
        around, self._names = self._names, set()
        same = self._in_block(old.body, new.body)
        bound, binds = _bound(old), _bound(new)
        same = same and bound.declared == binds.declared and bound.yields == binds.yields
        same = same and not (bound.names ^ binds.names) & self._names
        self._names |= around
        return same

    def _in_block(self, old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> bool:
        old, new = ([one for one in block if not is_text(one)] for block in (old, new))
        last = max((at for at, one in enumerate(old) if self._came_to(one)), default=-1)
        if old[last + 1 :] and not is_silent(old[last + 1]):  # what stands before it left the block
            old, new = old[: last + 1], new[: last + 1]
        return len(old) == len(new) and all(map(self._is_same, old, new))

    def _came_to(self, statement: ast.stmt) -> bool:
        return any(extent(one) in self.executed for one in within(statement))

    def _is_same(self, old: ast.AST, new: ast.AST) -> bool:
        if old.__class__ is not new.__class__:
            return False
        for name in old._fields:
            one: Any = getattr(old, name, None)
            other: Any = getattr(new, name, None)
            if name in _PARTS:
                same = len(one) == len(other) and all(map(self._is_same, one, other))
            elif name in _BLOCKS and isinstance(one, list) and not isinstance(old, ast.ClassDef):
                entered = any(map(self._came_to, one)) or all(map(is_silent, one))
                inside = isinstance(old, Function) and isinstance(new, Function)
                same = not entered or (self.in_function(old, new) if inside else self._in_block(one, other))
            else:
                same = are_equal(one, other)
                self._names |= _names(one)
            if not same:
                return False
        if isinstance(old, ast.stmt) and isinstance(new, ast.stmt) and extent(old) in self.executed:
            self.ran.add(extent(new))
        return True


@dataclass
class _Bound:
    """The names that a function binds, those it declares to be another's, and whether it yields."""

    names: set[str] = field(default_factory=set)
    declared: set[str] = field(default_factory=set)
    yields: bool = False


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _bound(function: Function) -> _Bound:
    found = _Bound()
    todo: list[tuple[ast.AST, bool]] = [(one, True) for one in function.body]
    while todo:
        node, own = todo.pop()
        if isinstance(node, ast.NamedExpr):
            found.names.add(node.target.id)  # of the function in a comprehension, too
        elif own and isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.names.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            found.declared |= {f"{node.__class__.__name__} {name}" for name in node.names}
        elif isinstance(node, ast.alias):
            found.names.add(binds(node))
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.names.add(node.rest)
        found.yields |= own and isinstance(node, (ast.Yield, ast.YieldFrom))
        if isinstance(node, _SCOPES):
            found.names |= {node.name} if not isinstance(node, ast.Lambda) else set()
        else:
            inner = own and not isinstance(node, _COMPREHENSIONS)
            todo += [(one, inner) for one in ast.iter_child_nodes(node)]
    return found


def _names(node: object) -> set[str]:
    """The names that are read or bound anywhere in what a field of a tree holds."""
    nodes = node if isinstance(node, list) else [node]
    return {
        name
        for part in nodes
        if isinstance(part, ast.AST)
        for one in walk(part)
        for key in ("id", "name", "asname", "arg")
        if isinstance(name := getattr(one, key, None), str)
    }
