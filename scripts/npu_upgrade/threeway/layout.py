"""How a merged statement is written: its quotes as its sides have them, what is too long one part a line."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Sequence

from npu_upgrade.threeway.trees import parse_statement, same

_WIDTH = 110
_STEP = 4
_NOT = re.compile(r"(\b(?:and|or) )\((not [\w.]+(?:\(\))?)\)")
_PLAIN = re.compile(r"'[^'\"\\]*'")
_CONDITION = re.compile(r"(?:if|elif|while) ")
_CONTEXTS = re.compile(r"(?:async )?with (?!\()")
_DEFINES = ("def ", "async def ")
_OPEN, _CLOSE = "([{", ")]}"


def as_lines(text: str, indent: int, sides: Sequence[str]) -> tuple[str, ...]:
    """The lines of a statement that is given as its canonical text; ``sides`` are the texts it came from."""
    written = as_written(_quoted(text, sides))
    if "\n" in written or indent + len(written) <= _WIDTH:
        return tuple(written.split("\n"))
    lines = _chained(written) or _broken(_bracketed(written), indent)
    joined = parse_statement(" ".join(line.strip() for line in lines))
    tree = parse_statement(written)
    return tuple(lines) if joined and tree and same(joined, tree) else (written,)


def as_written(text: str) -> str:
    """A canonical text without brackets around a plain ``not`` behind ``and`` or ``or``, and with spaces
    around the default of a parameter with a hint.
    """
    plain = _spaced(_NOT.sub(r"\1\2", text))
    before, after = parse_statement(text), parse_statement(plain)
    return plain if before and after and same(before, after) else text


def _spaced(text: str) -> str:
    """The header of a function with ``x: int = 1`` where ``ast.unparse`` has ``x: int=1``."""
    if not text.startswith(_DEFINES):
        return text
    out, place, depth, hinted = "", 0, 0, False
    for token, start, end in _tokens(text):
        depth += (token in tuple(_OPEN)) - (token in tuple(_CLOSE))
        if depth == 1 and token in (":", ","):
            hinted = token == ":"
        elif depth == 1 and hinted and token == "=" and text[start - 1] != " ":
            out, place = f"{out}{text[place:start]} = ", end
    return out + text[place:]


def _quoted(text: str, sides: Sequence[str]) -> str:
    """The text with double quotes around the strings that a side has in them."""
    out, place = "", 0
    for token, start, end in _tokens(text):
        double = f'"{token[1:-1]}"'
        if _PLAIN.fullmatch(token) and any(double in side for side in sides):
            out, place = out + text[place:start] + double, end
    return out + text[place:]


def _chained(text: str) -> list[str]:
    """A condition of several parts with one a line; nothing for what is no such condition."""
    tree, head = parse_statement(text), _CONDITION.match(text)
    if not isinstance(tree, ast.If | ast.While) or not isinstance(tree.test, ast.BoolOp) or not head:
        return []
    places, depth = [head.end()], 0
    for token, start, _ in _tokens(text):
        depth += (token in tuple(_OPEN)) - (token in tuple(_CLOSE))
        places += [start] if depth == 0 and token in ("and", "or") else []
    parts = [text[a:b].strip() for a, b in itertools.pairwise([*places, len(text) - 1])]
    return [f"{head[0]}(", *(" " * _STEP + part for part in parts), "):"]


def _bracketed(text: str) -> str:
    """The text with brackets around the names of an assignment to several, and around several contexts."""
    tree = parse_statement(text)
    head = _CONTEXTS.match(text)
    if isinstance(tree, ast.With | ast.AsyncWith) and len(tree.items) > 1 and head and text[-1] == ":":
        return f"{head[0]}({text[head.end() : -1]}):"
    if not isinstance(tree, ast.Assign) or not isinstance(tree.targets[0], ast.Tuple) or text[0] in _OPEN:
        return text
    end = tree.targets[0].end_col_offset or 0
    return f"({text[:end]}){text[end:]}" if text.isascii() else text


def _broken(text: str, indent: int) -> list[str]:
    """The text with the parts of its longest outermost brackets one a line, where it is too long."""
    best: tuple[int, int, list[int]] = (0, 0, [])
    if indent + len(text) > _WIDTH:
        best = max(_outermost(text), key=lambda pair: pair[1] - pair[0], default=best)
    first, last, commas = best
    if not commas:
        return [text]
    places = [first, *commas, last]
    parts = [text[a + 1 : b].strip() for a, b in itertools.pairwise(places)]
    lines = [text[: first + 1]]
    for part in filter(None, parts):
        lines += [" " * _STEP + line for line in _broken(f"{part},", indent + _STEP)]
    return [*lines, text[last:]]


def _outermost(text: str) -> list[tuple[int, int, list[int]]]:
    """Where each pair of brackets that stands in none begins and ends, with the commas between its parts."""
    found: list[tuple[int, int, list[int]]] = []
    depth, first, commas = 0, 0, []
    for token, start, _ in _tokens(text):
        if token in tuple(_OPEN):
            depth += 1
            if depth == 1:
                first, commas = start, []
        elif token in tuple(_CLOSE):
            depth -= 1
            if depth == 0:
                found.append((first, start, commas))
        elif token == "," and depth == 1:
            commas.append(start)
    return found


def _tokens(text: str) -> list[tuple[str, int, int]]:
    """The tokens of one line, each with where it begins and ends; none where it is no Python."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    return [(one.string, one.start[1], one.end[1]) for one in tokens if one.start[0] == one.end[0] == 1]
