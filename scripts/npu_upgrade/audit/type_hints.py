"""Compares type hints by meaning: unions in any spelling, quotes, typing's old names, subclasses."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable

from npu_upgrade.program.program import ClassSymbol, File
from npu_upgrade.threeway.signature_merge import alternatives

# Types that say nothing, or that only a type checker can compare.
_OPEN = {"Any", "object", "Annotated", "Callable", "Self", "Protocol", "Literal", "ClassVar"}
_OLD = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set", "Type": "type"}
_WIDER = {
    "Sequence": {"list", "tuple"},
    "Iterable": {"list", "tuple", "Sequence", "Iterator", "Generator", "set", "dict"},
    "Mapping": {"dict"},
    "Iterator": {"Generator"},
    "Collection": {"list", "tuple", "set", "dict", "Sequence"},
}


def lost_parameters(parent: ast.expr | None, own: ast.expr | None, files: tuple[File, File]) -> list[str]:
    """The types that ``parent`` says a caller may give, and that have nothing to do with ``own``.

    ``files`` are those in which the two hints stand, to tell subclasses. None is left out: it
    is mostly a default that no caller gives.
    """
    if parent is None or own is None or _says_nothing(parent) or _says_nothing(own):
        return []
    lost = [part for part in _parts(parent) if not any(_related(item, part, files) for item in _parts(own))]
    return [_text(part) for part in lost if _text(part) != "None"]


def lost_returns(parent: ast.expr | None, own: ast.expr | None, files: tuple[File, File]) -> list[str]:
    """What ``parent`` is said to return and ``own`` is not, so that callers of one misread the other.

    A narrower result is fine; a tuple of another length is not, nor is a class of the trees left
    out where others of the same union are named.
    """
    if parent is None or own is None:
        return []
    upper, lower = tuple_arities(parent), tuple_arities(own)
    if upper and lower and not upper & lower:
        return [_text(part) for part in _parts(parent) if tuple_arities(part)]
    lost = [part for part in _parts(parent) if not any(_related(item, part, files) for item in _parts(own))]
    if len(lost) == len(_parts(parent)) or _says_nothing(own):
        return []
    return [_text(part) for part in lost if isinstance(files[0].resolve(_plain(part)), ClassSymbol)]


def _related(own: ast.expr, parent: ast.expr, files: tuple[File, File]) -> bool:
    return _covers(own, parent, files) or _covers(parent, own, (files[1], files[0]))


def _says_nothing(annotation: ast.expr) -> bool:
    return any(_head(part) in _OPEN or _is_variable(part) for part in _parts(annotation))


def tuple_arities(annotation: ast.expr | None) -> set[int]:
    """The lengths of the tuples that a hint names; none for those of any length."""
    found = set()
    for part in _parts(annotation) if annotation else []:
        if _head(part) == "tuple" and isinstance(part, ast.Subscript):
            items = part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
            if not any(isinstance(item, ast.Constant) and item.value is ... for item in items):
                found.add(len(items))
    return found


@functools.lru_cache(maxsize=8192)
def _parts(annotation: ast.expr) -> tuple[ast.expr, ...]:
    return tuple(part for part in alternatives(annotation) if isinstance(part, ast.expr))


def _covers(own: ast.expr, parent: ast.expr, files: tuple[File, File]) -> bool:
    """Whether a value of the type ``parent`` is fine where ``own`` is asked for."""
    mine, theirs = _head(own), _head(parent)
    if mine == theirs or theirs in _WIDER.get(mine, ()):
        return not _disjoint(own, parent)
    upper, lower = files[0].resolve(_plain(parent)), files[1].resolve(_plain(own))
    if not isinstance(upper, ClassSymbol) or not isinstance(lower, ClassSymbol):
        return _may_be_same(own, parent, files)
    return lower in upper.mro or (lower.is_open and upper.is_open)


def _disjoint(own: ast.expr, parent: ast.expr) -> bool:
    """Whether two tuples of fixed length have different lengths."""
    mine, theirs = tuple_arities(own), tuple_arities(parent)
    return bool(mine and theirs and mine != theirs)


def _may_be_same(own: ast.expr, parent: ast.expr, files: tuple[File, File]) -> bool:
    """Whether either is a name for a type that is not seen, an alias perhaps."""
    return any(_is_alias(expr, file) for expr, file in ((parent, files[0]), (own, files[1])))


def _is_alias(expr: ast.expr, file: File) -> bool:
    plain = _plain(expr)
    return (isinstance(plain, ast.Name) and plain.id in file.values) or "Type" in _head(expr)[1:]


def _head(part: ast.expr) -> str:
    name = _text(_plain(part)).rpartition(".")[2]
    return _OLD.get(name, name)


def _plain(part: ast.expr) -> ast.expr:
    return part.value if isinstance(part, ast.Subscript) else part


def _is_variable(part: ast.expr) -> bool:
    name = _head(part)
    return name.startswith("_T") or (len(name) <= 2 and name[:1].isupper())


_text: Callable[[ast.expr], str] = functools.lru_cache(maxsize=8192)(ast.unparse)
