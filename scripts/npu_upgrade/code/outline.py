"""The units of a large module by a scan of its lines, many times faster than parsing it.

What :func:`npu_upgrade.code.module.parse_module` finds is found here too, with the same
text; wherever the scan could be wrong, the module is parsed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from npu_upgrade.code.module import parse_module, unit_names
from npu_upgrade.code.signatures import Function

# Lines at the depth of a class or a method that open or end one: no comment, no closing bracket.
_EDGE = re.compile(
    r"^( {4})?(?=[^\s#)\]}])(@|(?:async[ \t]+)?def[ \t]+(\w+)|class[ \t]+(\w+))?", re.MULTILINE
)
_ODD = re.compile(r"^(?: {1,3}|\t)[^\s#]|\r", re.MULTILINE)


class _Piece(NamedTuple):
    qualname: str
    start: int
    end: int


def outline(source: str, known: set[str] | None = None) -> dict[str, str]:
    """Qualified name -> source of each unit of ``source``; empty when it is not Python.

    ``known`` holds unit texts that are known to be whole, and takes those found to be: the
    same method stands in hundreds of versions of a file and is checked once.
    """
    if _ODD.search(source):
        return _parsed(source)
    known = set() if known is None else known
    units: list[tuple[str, str]] = []
    place = 0
    for piece in _pieces(source):
        text = _without_tail(source[piece.start : piece.end])
        if not _balanced(source[place : piece.start]) or (text not in known and not _is_unit(text)):
            return _parsed(source)
        known.add(text)
        units.append((piece.qualname, text))
        place = piece.start + len(text)
    if not _balanced(source[place:]):
        return _parsed(source)
    return {name: text for name, (_, text) in zip(unit_names(units), units, strict=True)}


def unit_texts(source: str) -> Iterator[str]:
    """What look like the units of ``source``, unlike :func:`outline` without a look at what is in them."""
    return (_without_tail(source[piece.start : piece.end]) for piece in _pieces(source))


def _pieces(source: str) -> Iterator[_Piece]:
    """Where the units seem to be, in order; ends include trailing comments."""
    owner, owner_start, has_methods = "", 0, False
    name, start, decorated = "", 0, -1
    for edge in [*_EDGE.finditer(source), None]:
        place = edge.start() if edge else len(source)
        inner = bool(edge and edge[1])
        if inner and not owner:
            continue
        if name:
            yield _Piece(name, start, place)
            name = ""
        if not inner and owner:
            if not has_methods:
                yield _Piece(owner, owner_start, place)
            owner, has_methods = "", False
        if edge is None:
            return
        begin = place if decorated < 0 else decorated
        decorated = begin if edge[2] == "@" else -1
        if edge[3]:
            name, start = f"{owner}.{edge[3]}" if owner else edge[3], begin
            has_methods = bool(owner)
        elif edge[4] and not inner:
            owner, owner_start = edge[4], begin


def _without_tail(text: str) -> str:
    """``text`` less the blank lines and comments after its last statement."""
    while True:
        end = text.find("\n", len(text.rstrip()))
        text = text if end < 0 else text[:end]
        last = text.rfind("\n")
        if last < 0 or not text[last:].lstrip().startswith("#"):
            return text
        text = text[:last]


def _is_unit(text: str) -> bool:
    """Whether ``text`` is exactly one function, or one class without methods."""
    try:
        tree = ast.parse(f"class _:\n{text}" if text.startswith(" ") else text)
    except (SyntaxError, ValueError):
        return False
    body: list[ast.stmt] = tree.body
    if text.startswith(" ") and len(body) == 1 and isinstance(body[0], ast.ClassDef):
        body = body[0].body
    if len(body) != 1:
        return False
    inside = body[0].body if isinstance(body[0], ast.ClassDef) else []
    return isinstance(body[0], (Function, ast.ClassDef)) and not any(
        isinstance(node, Function) for node in inside
    )


def _balanced(gap: str) -> bool:
    """Whether no long string seems to reach out of ``gap``."""
    return gap.count('"""') % 2 == 0 and gap.count("'''") % 2 == 0


def _parsed(source: str) -> dict[str, str]:
    try:
        return {name: unit.source for name, unit in parse_module(source).units.items()}
    except (SyntaxError, ValueError):
        return {}
