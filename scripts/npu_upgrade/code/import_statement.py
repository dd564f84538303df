"""Adds a name to one import statement, or takes one out, with the smallest change of its text."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from npu_upgrade.code.module import line_end, split_lines
from npu_upgrade.code.names import Import, imports_in

WIDTH = 120
Order = Callable[[Any], Any]


def natural(text: str) -> Any:
    """Sort key that ignores case and reads digits as numbers."""
    parts = re.split(r"([0-9]+)", text.lower())
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], text


def _by_kind(name: str) -> Any:
    """Constants, then classes, then the rest: the order of isort's default profile."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
    return kind, natural(name)


ORDERS: tuple[Order, ...] = (_by_kind, natural, str)


def is_sorted(items: Iterable[Any], order: Order) -> bool:
    """Whether the items are in this order."""
    keys = [order(item) for item in items]
    return all(a <= b for a, b in itertools.pairwise(keys))


def with_name(text: str, item: Import, orders: Sequence[Order] = ORDERS) -> str:
    """The ``from`` statement with the name of ``item`` at its sorted place, else at the end.

    ``text`` is whole lines, indented or not; ``orders`` are tried one after the other.
    """
    node = _parsed(text)
    names = [alias.name for alias in node.names]
    order = next((order for order in orders if is_sorted(names, order)), None)
    place = len(names)
    if order and item.name:
        place = next((i for i, name in enumerate(names) if order(name) > order(item.name)), place)
    new = item.statement().partition(" import ")[2]
    raw, spans = text.encode(), _spans(text, node)
    row_starts = _row_starts(text)
    if all(_alone(raw, span) for span in spans) and b"(" in raw[: spans[0][0]]:  # one on each line
        return _own_line(raw, spans, place, new).decode()
    joined = _inline(raw, spans, place, new).decode()
    if all(len(line.rstrip("\r\n")) <= WIDTH for line in split_lines(joined)):
        return joined
    if len(row_starts) == 1 or "#" not in text:
        every = [ast.unparse(alias) for alias in node.names]
        return _spread(text, [*every[:place], new, *every[place:]])
    return joined


def without_name(text: str, item: Import) -> str:
    """The statement without ``item``; empty when nothing is left. Comments of other names stay."""
    node = _parsed(text)
    gone = item.module, item.name, item.asname
    kept = [(found.module, found.name, found.asname) != gone for found in imports_in(node)]
    if not any(kept):
        return ""
    raw, spans = text.encode(), _spans(text, node)
    for index in reversed([i for i, keep in enumerate(kept) if not keep]):
        raw = _cut(raw, spans, index)
        spans = _spans(raw.decode(), _parsed(raw.decode()))
    return raw.decode()


def new_statement(item: Import, indent: str, comment: str = "") -> list[str]:
    """The lines of ``item`` as a statement of its own, in parentheses when one would be too long."""
    line = f"{indent}{item.statement()}"
    if item.name is not None and len(line) > WIDTH:
        return _spread(line + comment, [line.partition(" import ")[2]]).split("\n")[:-1]
    return [line + comment]


def trailing_comment(text: str) -> str:
    """The comment after a statement on one line, with the blanks before it."""
    node = _parsed(text)
    end = _span(_row_starts(text), node)[1]
    rest = text.encode()[end:].decode().rstrip("\r\n")
    return rest if rest.lstrip().startswith("#") else ""


def _parsed(text: str) -> ast.Import | ast.ImportFrom:
    source = "if 1:\n" + text if text[:1].isspace() else "\n" + text
    node = ast.parse(source).body[0]
    found = node.body[0] if isinstance(node, ast.If) else node
    assert isinstance(found, (ast.Import, ast.ImportFrom))
    return found


def _row_starts(text: str) -> list[int]:
    starts, at = [], 0
    for line in split_lines(text):
        starts.append(at)
        at += len(line.encode())
    return starts


def _span(starts: list[int], node: Any) -> tuple[int, int]:
    # _parsed puts one line in front of the text.
    return starts[node.lineno - 2] + node.col_offset, starts[node.end_lineno - 2] + node.end_col_offset


def _spans(text: str, node: ast.Import | ast.ImportFrom) -> list[tuple[int, int]]:
    starts = _row_starts(text)
    return [_span(starts, alias) for alias in node.names]


def _line(raw: bytes, start: int, end: int) -> tuple[int, int]:
    """The whole lines around a span, the line end included."""
    first = max(raw.rfind(b"\n", 0, start), raw.rfind(b"\r", 0, start)) + 1
    match = re.compile(rb"\r\n|\r|\n").search(raw, end)
    return first, match.end() if match else len(raw)


def _alone(raw: bytes, span: tuple[int, int]) -> bool:
    first, last = _line(raw, *span)
    after = raw[span[1] : last].strip().removeprefix(b",").strip()
    return not raw[first : span[0]].strip() and (not after or after.startswith(b"#"))


def _own_line(raw: bytes, spans: list[tuple[int, int]], place: int, new: str) -> bytes:
    like = spans[min(place, len(spans) - 1)]
    first, last = _line(raw, *like)
    eol = raw[last - 2 : last] if raw[last - 2 : last] == b"\r\n" else raw[last - 1 : last]
    line = raw[first : like[0]] + new.encode() + b"," + eol
    if place < len(spans):
        while first and (above := raw[slice(*_line(raw, first - 1, first - 1))]).strip().startswith(b"#"):
            first -= len(above)
        return raw[:first] + line + raw[first:]
    comma = b"" if raw[like[1] : last].lstrip().startswith(b",") else b","
    return raw[: like[1]] + comma + raw[like[1] : last] + line + raw[last:]


def _inline(raw: bytes, spans: list[tuple[int, int]], place: int, new: str) -> bytes:
    if place < len(spans):
        at = spans[place][0]
        return raw[:at] + new.encode() + b", " + raw[at:]
    at = spans[-1][1]
    return raw[:at] + b", " + new.encode() + raw[at:]


def _spread(text: str, names: list[str]) -> str:
    """The statement in parentheses with one name per line; only a trailing comment is kept."""
    lines = split_lines(text)
    eol = line_end(text)
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    module = imports_in(_parsed(text))[0].module
    comment = trailing_comment(text)
    body = "".join(f"{indent}    {name},{eol}" for name in names)
    return f"{indent}from {module} import ({comment}{eol}{body}{indent}){eol}"


def _cut(raw: bytes, spans: list[tuple[int, int]], index: int) -> bytes:
    start, end = spans[index]
    if _alone(raw, spans[index]) and b"(" in raw[: spans[0][0]]:
        first, last = _line(raw, start, end)
        return raw[:first] + raw[last:]
    if index + 1 < len(spans) and b"#" not in raw[end : spans[index + 1][0]]:
        return raw[:start] + raw[spans[index + 1][0] :]
    if index and b"#" not in raw[spans[index - 1][1] : start]:
        return raw[: spans[index - 1][1]] + raw[end:]
    comma = re.compile(rb"\s*,[ \t]*").match(raw, end)
    return raw[:start] + raw[comma.end() if comma else end :]
