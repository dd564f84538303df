"""Three-way merge inside one statement: by syntax tree, falling back to words.

Two versions of a statement that changed different arguments, operands or items combine;
two that changed the same one do not.
"""

from __future__ import annotations

import ast
import copy
import functools
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from npu_upgrade.pycode.sequences import Change, changes, patience

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_HEADER_BODY = " pass"
_omni_names: ContextVar[frozenset[str]] = ContextVar("omni_names", default=frozenset())
_kept_callees: ContextVar[list[str]] = ContextVar("kept_callees")
_dropped: ContextVar[list[str]] = ContextVar("dropped")


class _Clash(Exception):
    """Both sides changed the same piece."""


@dataclass(frozen=True, slots=True)
class MergedStatement:
    """The canonical text of a merged statement, and where it follows omni against upstream.

    ``callee_kept`` names omni's own call that kept its arguments; ``dropped`` the arguments
    that omni had dropped and upstream changed.
    """

    text: str
    callee_kept: str = ""
    dropped: str = ""


def merge_statement(
    base: str, ours: str, theirs: str, omni_names: frozenset[str] = frozenset()
) -> MergedStatement | None:
    """Merge three versions of a statement; None when both sides changed the same piece.

    ``omni_names`` are names that stand for omni's own functions and classes: another way
    to write the callee (``f(...)`` for ``module.f(...)``) is a spelling unless it is one.
    """
    if ours == theirs or theirs == base:
        return MergedStatement(ours)
    if ours == base:
        return MergedStatement(theirs)
    trees = [_parse(text) for text in (base, ours, theirs)]
    if any(tree is None for tree in trees):
        words = _merge_words(base, ours, theirs)
        return MergedStatement(words) if words is not None else None
    kept: list[str] = []
    dropped: list[str] = []
    tokens = (_kept_callees.set(kept), _omni_names.set(omni_names), _dropped.set(dropped))
    try:
        merged = _merge(*trees)  # type: ignore[arg-type]
    except _Clash:
        return None
    finally:
        _kept_callees.reset(tokens[0])
        _omni_names.reset(tokens[1])
        _dropped.reset(tokens[2])
    in_base, in_ours, in_theirs = (tree._chained for tree in trees)  # type: ignore[union-attr]
    merged._chained = in_ours if in_theirs == in_base else in_theirs  # type: ignore[attr-defined]
    return MergedStatement(_text(merged), ", ".join(kept), ", ".join(dropped))


def agreed_version(base: str, version: str, ours: str) -> str:
    """``base`` with the pieces of another upstream ``version`` that ``ours`` has instead.

    Works on arguments, operands and items; ``base`` itself where the three do not compare.
    """
    trees = [_parse(text) for text in (base, version, ours)]
    if any(tree is None for tree in trees):
        return base
    return _text(_agreed(*trees))  # type: ignore[arg-type]


def _agreed(base: ast.AST, version: ast.AST, ours: ast.AST) -> ast.AST:
    if _same(base, version) or _same(base, ours):
        return base
    if _same(version, ours):
        return version
    if not type(base) is type(version) is type(ours) or isinstance(base, ast.arguments):
        return base
    if _other_operator(base, version, ours):
        return base
    merged = type(base)()
    for name in base._fields:
        values = [getattr(node, name, None) for node in (base, version, ours)]
        if all(isinstance(value, ast.AST) for value in values):
            value = _agreed(*values)  # type: ignore[arg-type]
        elif all(isinstance(value, list) for value in values):
            value = _agreed_items(*values)  # type: ignore[arg-type]
        else:
            value = values[0]
        setattr(merged, name, value)
    if hasattr(base, "_chained"):
        merged._chained = base._chained  # type: ignore[attr-defined]
    return merged


def _agreed_items(base: list, version: list, ours: list) -> list:
    keys = [[_dump(node) for node in side] for side in (base, version, ours)]
    items: list = []
    place = 0
    for a0, a1, b0, b1 in _item_changes(keys[0], keys[1]):
        items += base[place:a0]
        has_new = all(key in keys[2] for key in keys[1][b0:b1])
        has_old = any(key in keys[2] for key in keys[0][a0:a1])
        if has_new and not has_old:
            items += version[b0:b1]
        elif a1 - a0 == b1 - b0 == 1 and len(base) == len(ours):
            items.append(_agreed(base[a0], version[b0], ours[a0]))
        else:
            items += base[a0:a1]
        place = a1
    return items + base[place:]


def _parse(text: str) -> ast.stmt | None:
    """The statement's tree; an ``elif`` is read as an ``if`` and marked so."""
    source, chained = (text[2:], True) if text.startswith("elif ") else (text, False)
    try:
        body = ast.parse(source + _HEADER_BODY if text.endswith(":") else source).body
    except SyntaxError:
        return None
    if len(body) != 1:
        return None
    body[0]._chained = chained  # type: ignore[attr-defined]
    return body[0]


def _text(node: ast.AST) -> str:
    text = ast.unparse(ast.fix_missing_locations(node))
    if isinstance(getattr(node, "body", None), list):
        text = text.rsplit("\n", 1)[0].rstrip()
    return "el" + text if getattr(node, "_chained", False) else text


def _merge(base: ast.AST, ours: ast.AST, theirs: ast.AST) -> ast.AST:
    if _same(ours, theirs) or _same(theirs, base):
        return ours
    if _same(ours, base):
        return theirs
    for inner, outer in ((ours, theirs), (theirs, ours)):
        if _wraps(outer, base):
            return _Substitute(base, inner).visit(copy.deepcopy(outer))
    if not type(base) is type(ours) is type(theirs) or _other_operator(base, ours, theirs):
        raise _Clash
    if isinstance(base, ast.Call) and _callee_replaced(base, ours, theirs):
        _kept_callees.get().append(ast.unparse(ours.func))  # type: ignore[attr-defined]
        return ours
    if isinstance(base, ast.Call) and _respelled(base, ours, theirs):
        ours = ast.Call(theirs.func, ours.args, ours.keywords)  # type: ignore[attr-defined]
    if isinstance(base, ast.arguments):
        return merge_parameters(base, ours, theirs)  # type: ignore[arg-type]
    merged = type(base)()
    for field in base._fields:
        values = [getattr(node, field, None) for node in (base, ours, theirs)]
        setattr(merged, field, _merge_field(type(base), field, *values))
    return merged


def _wraps(outer: ast.AST, base: ast.AST) -> bool:
    """Whether one side only put something around the expression that the other side changed."""
    if not isinstance(base, ast.expr) or isinstance(base, (ast.Name, ast.Constant)):
        return False
    dump = _dump(base)
    return sum(_dump(node) == dump for node in ast.walk(outer) if type(node) is type(base)) == 1


class _Substitute(ast.NodeTransformer):
    """Replaces one expression by another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = _dump(old), new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if _dump(node) == self.old else self.generic_visit(node)


def _other_operator(*nodes: ast.AST) -> bool:
    """Whether expressions of one kind combine their operands in different ways."""
    operators = {_dump(getattr(node, "op", None)) for node in nodes}
    return len(operators) > 1


def _callee_replaced(base: ast.Call, ours: ast.AST, theirs: ast.AST) -> bool:
    """Whether omni calls something else here, so that upstream's new arguments may not fit."""
    names = [ast.unparse(node.func).rpartition(".")[2] for node in (base, ours, theirs)]  # type: ignore[attr-defined]
    return names[0] == names[2] != names[1]


def _respelled(base: ast.Call, ours: ast.AST, theirs: ast.AST) -> bool:
    """Whether omni only writes the callee's module path in another way."""
    funcs = [ast.unparse(node.func) for node in (base, ours, theirs)]  # type: ignore[attr-defined]
    names = {func.rpartition(".")[2] for func in funcs}
    return funcs[0] == funcs[2] and len(names) == 1 and funcs[1].partition(".")[0] not in _omni_names.get()


def _merge_field(owner: type, field: str, base, ours, theirs):
    if isinstance(base, list) and isinstance(ours, list) and isinstance(theirs, list):
        if owner is ast.Call and field == "keywords":
            return _merge_named(base, ours, theirs, _keyword_name)
        return _merge_sequence(base, ours, theirs)
    if field in ("annotation", "returns") and all(isinstance(n, ast.AST) for n in (base, ours, theirs)):
        return _merge_annotation(base, ours, theirs)
    if isinstance(base, ast.AST) and isinstance(ours, ast.AST) and isinstance(theirs, ast.AST):
        return _merge(base, ours, theirs)
    if _dump(ours) == _dump(theirs) or _dump(theirs) == _dump(base):
        return ours
    if _dump(ours) == _dump(base):
        return theirs
    raise _Clash


def _merge_annotation(base: ast.expr, ours: ast.expr, theirs: ast.expr) -> ast.expr:
    """Merge type hints as sets of alternatives; spelling alone is no change."""
    alternatives = [_alternatives(side) for side in (base, ours, theirs)]
    in_base, in_ours, in_theirs = ({_dump(node) for node in side} for side in alternatives)
    if in_theirs == in_base:
        return ours
    if in_ours == in_base:
        return theirs
    kept = [n for n in alternatives[1] if _dump(n) in in_theirs or _dump(n) not in in_base]
    kept += [n for n in alternatives[2] if _dump(n) not in in_base | in_ours]
    if not kept:
        raise _Clash
    return functools.reduce(lambda left, right: ast.BinOp(left, ast.BitOr(), right), kept)


def _alternatives(node: ast.expr) -> list[ast.expr]:
    """``Optional[A]``, ``Union[A, B]``, ``"A | B"`` and ``A | B`` as a flat list."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _alternatives(ast.parse(node.value, mode="eval").body)
        except SyntaxError:
            return [node]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _alternatives(node.left) + _alternatives(node.right)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Optional":
            return [*_alternatives(node.slice), ast.Constant(None)]
        if node.value.id == "Union":
            return [item for part in inner for item in _alternatives(part)]
    return [node]


class _Parameter(ast.AST):
    """A parameter with its default, so that both move together."""

    _fields = ("kind", "arg", "default")


def merge_parameters(base: ast.arguments, ours: ast.arguments, theirs: ast.arguments) -> ast.arguments:
    """Merge signatures by parameter name; the kinds keep their order."""
    sides = [_parameters(side) for side in (base, ours, theirs)]
    merged = _merge_named(*sides, lambda node: node.arg.arg)  # type: ignore[attr-defined]
    by_kind = {
        kind: [p for p in merged if p.kind == kind] for kind in ("pos", "arg", "vararg", "kwonly", "kwarg")
    }
    plain = by_kind["pos"] + by_kind["arg"]
    first = next((number for number, p in enumerate(plain) if p.default is not None), len(plain))
    if any(p.default is None for p in plain[first:]):
        raise _Clash  # a parameter without a default would follow one that has it
    return ast.arguments(
        posonlyargs=[p.arg for p in by_kind["pos"]],
        args=[p.arg for p in by_kind["arg"]],
        vararg=by_kind["vararg"][0].arg if by_kind["vararg"] else None,
        kwonlyargs=[p.arg for p in by_kind["kwonly"]],
        kw_defaults=[p.default for p in by_kind["kwonly"]],
        kwarg=by_kind["kwarg"][0].arg if by_kind["kwarg"] else None,
        defaults=[p.default for p in plain[first:]],
    )


def _parameters(node: ast.arguments) -> list:
    plain = [("pos", a) for a in node.posonlyargs] + [("arg", a) for a in node.args]
    missing: list = [None] * (len(plain) - len(node.defaults))
    found = [
        _Parameter(kind, arg, default)
        for (kind, arg), default in zip(plain, missing + node.defaults, strict=True)
    ]
    if node.vararg:
        found.append(_Parameter("vararg", node.vararg, None))
    found += [_Parameter("kwonly", a, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
    if node.kwarg:
        found.append(_Parameter("kwarg", node.kwarg, None))
    return found


def _merge_named(base: list, ours: list, theirs: list, name: Callable[[ast.AST], str]) -> list:
    """Merge keyword arguments by name, in ours' order; what ours dropped stays dropped."""
    by = [{name(node): node for node in side} for side in (base, ours, theirs)]
    if any(len(names) != len(side) for names, side in zip(by, (base, ours, theirs), strict=True)):
        return _merge_sequence(base, ours, theirs)
    kept: list = []
    for key in _interleave([*by[1]], [*by[2]]):
        in_base, in_ours, in_theirs = (names.get(key) for names in by)
        if in_ours is not None and in_theirs is not None:
            if in_base is None and not _same(in_ours, in_theirs):
                kept.append(_newer_spelling(in_ours, in_theirs))
                continue
            kept.append(_merge(in_base or in_theirs, in_ours, in_theirs))
        elif in_base is None:
            kept.append(in_ours or in_theirs)
        elif in_ours is not None and not _same(in_base, in_ours):
            raise _Clash  # upstream dropped the argument that omni had changed
        elif in_theirs is not None and not _same(in_base, in_theirs):
            _dropped.get().append(key)
    return kept


def _newer_spelling(ours: ast.AST, theirs: ast.AST) -> ast.AST:
    """Upstream's way to pass an argument that both sides added with one value."""
    if isinstance(ours, ast.keyword) and isinstance(theirs, ast.keyword):
        values = [n.value.values[0] if n.arg is None else n.value for n in (ours, theirs)]  # type: ignore[attr-defined]
        if _same(*values):
            return theirs
    raise _Clash


def _keyword_name(node: ast.AST) -> str:
    """The name of a keyword argument; ``**{"name": value}`` passes ``name`` too."""
    if node.arg:  # type: ignore[attr-defined]
        return node.arg  # type: ignore[attr-defined]
    value = node.value  # type: ignore[attr-defined]
    if isinstance(value, ast.Dict) and len(value.keys) == 1 and isinstance(value.keys[0], ast.Constant):
        return str(value.keys[0].value)
    return "**" + ast.unparse(value)


def _interleave(first: list[str], second: list[str]) -> list[str]:
    """All names, in the order of ``first``; those only in ``second`` after their
    neighbour and what ``first`` alone has there."""
    order = list(first)
    for number, name in enumerate(second):
        if name not in order:
            before = next((n for n in reversed(second[:number]) if n in order), None)
            place = order.index(before) + 1 if before is not None else 0
            while place < len(order) and order[place] not in second:
                place += 1
            order.insert(place, name)
    return order


def _merge_sequence(base: list, ours: list, theirs: list) -> list:
    """Merge items in order; items at one place combine when they only add or pair up."""
    keys = [[_dump(node) for node in side] for side in (base, ours, theirs)]
    edits = [(change, side - 1) for side in (1, 2) for change in _item_changes(keys[0], keys[side])]
    edits.sort(key=lambda edit: (edit[0].a0, edit[0].a1, -edit[1]))
    merged: list = []
    place = 0
    number = 0
    while number < len(edits):
        change, side = edits[number]
        follower = edits[number + 1] if number + 1 < len(edits) else None
        merged += base[place : change.a0]
        if follower and follower[1] != side and _meet(change, follower[0]):
            mine, other = (follower[0], change) if side else (change, follower[0])
            merged += _merge_overlap(base, ours, theirs, mine, other)
            place = max(change.a1, follower[0].a1)
            number += 2
            if number < len(edits) and edits[number][0].a0 < place:
                raise _Clash
        else:
            merged += (ours, theirs)[side][change.b0 : change.b1]
            place = change.a1
            number += 1
    return merged + base[place:]


def _item_changes(old: list[str], new: list[str]) -> list[Change]:
    """Changed runs of items; a run that keeps its length changed item by item."""
    found: list[Change] = []
    for a0, a1, b0, b1 in changes(patience(old, new), len(old), len(new)):
        if a1 - a0 == b1 - b0:
            found += [Change(a0 + n, a0 + n + 1, b0 + n, b0 + n + 1) for n in range(a1 - a0)]
        else:
            found.append(Change(a0, a1, b0, b1))
    return found


def _meet(a, b) -> bool:
    return (a.a0 < b.a1 and b.a0 < a.a1) or a.a0 == b.a0


def _merge_overlap(base: list, ours: list, theirs: list, mine, other) -> list:
    left, right = ours[mine.b0 : mine.b1], theirs[other.b0 : other.b1]
    if [_dump(n) for n in left] == [_dump(n) for n in right] and mine[:2] == other[:2]:
        return left
    if mine.a0 == mine.a1 == other.a0 == other.a1:
        return _both_appended(left, right)
    old = base[mine.a0 : mine.a1]
    if mine[:2] == other[:2] and len(old) == len(left) == len(right):
        return [_merge(*nodes) for nodes in zip(old, left, right, strict=True)]
    raise _Clash


def _both_appended(left: list, right: list) -> list:
    """Items that both sides added at one place: upstream's first, unless they are rivals."""
    mine = [node for node in left if _dump(node) not in {_dump(n) for n in right}]
    if any(isinstance(node, ast.stmt) for node in left + right):
        raise _Clash
    return [*right, *mine]


def _same(a: ast.AST, b: ast.AST) -> bool:
    return _dump(a) == _dump(b)


def _dump(value: object) -> str:
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


def _merge_words(base: str, ours: str, theirs: str) -> str | None:
    words = [_TOKEN.findall(text) for text in (base, ours, theirs)]
    left = changes(patience(words[0], words[1]), len(words[0]), len(words[1]))
    right = changes(patience(words[0], words[2]), len(words[0]), len(words[2]))
    if any(a.a0 <= b.a1 and b.a0 <= a.a1 for a in left for b in right):
        return None
    merged: list[str] = []
    place = 0
    edits: Sequence = sorted(
        [(c, words[1]) for c in left] + [(c, words[2]) for c in right], key=lambda e: e[0]
    )
    for change, side in edits:
        merged += words[0][place : change.a0] + side[change.b0 : change.b1]
        place = change.a1
    return "".join(merged + words[0][place:])
