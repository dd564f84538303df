"""Logical statements of a piece of source: the unit that is compared and merged.

A statement is one logical line (a simple statement, or the header of a compound one).
Its ``key`` is the canonical text of its syntax tree, so that line breaks, quotes and
trailing commas do not count as changes. Comments and blank lines travel with the
statement that follows them and never take part in the comparison.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from npu_upgrade.code.portable import tokens, unparse

_LAYOUT = {tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_BARE = re.compile(r"(else|try|finally)\s*:\s*(#.*)?")
# What makes a program of a line that is none by itself: the text before it, the body it opens (where it
# has none), the text after it, and how many lines of the unparsed program stand before and after both.
_FRAMES = {
    "elif": ("if 0: pass\n", "\n pass", "", 2, 0),
    "else": ("if 0: pass\n", "\n pass", "", 2, 0),
    "except": ("try: pass\n", "\n pass", "", 2, 0),
    "finally": ("try: pass\n", "\n pass", "", 2, 0),
    "try": ("", "\n pass", "\nfinally: pass", 0, 2),
    "match": ("", "\n case _: pass", "", 0, 1),
    "case": ("match 0:\n ", "\n  pass", "", 1, 0),
}
_PLAIN = ("", "\n pass", "", 0, 0)
CONTINUES = re.compile(r"(elif|else|except|finally|case)\b")
"""Headers that belong to the block before them."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on its own line: its indent, its text, and the blank lines before it."""

    indent: int
    text: str
    blanks: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """One logical line.

    ``lines`` are its source lines less ``indent`` (lines inside a multi-line string stay
    as written); ``comments`` stand before it; ``blanks`` are the blank lines directly
    before it (after its comments). The last statement of a block of source may be the
    empty :data:`END`-keyed one that carries trailing comments.
    """

    key: str
    indent: int
    lines: tuple[str, ...]
    blanks: int = 0
    comments: tuple[Comment, ...] = ()

    @property
    def is_header(self) -> bool:
        """Whether a block must follow (``if x:`` but not ``if x: return``)."""
        return self.key.endswith(":")

    @property
    def code(self) -> str:
        return "\n".join(self.lines)

    def shifted(self, by: int) -> Statement:
        """The same statement ``by`` columns further right."""
        if not by:
            return self
        comments = tuple(replace(c, indent=max(0, c.indent + by)) for c in self.comments)
        return replace(self, indent=max(0, self.indent + by), comments=comments)


END = "<end>"


def split_statements(source: str) -> list[Statement]:
    """The statements of ``source`` (a whole module, or an indented method).

    Raises :class:`SyntaxError` when ``source`` cannot be tokenised. Cached by content.
    """
    return list(_split(source))


@functools.lru_cache(maxsize=2048)
def _split(source: str) -> tuple[Statement, ...]:
    lines = source.split("\n")
    offset = int(_starts_indented(lines))
    text = ("if 1:\n" if offset else "") + source + "\n"
    statements: list[Statement] = []
    comments: list[Comment] = []
    blanks = 0
    for kind, first, last, comment in _logical_lines(text):
        if kind == "blank":
            blanks += 1
        elif kind == "comment":
            comments.append(Comment(first[1], comment.strip(), blanks))
            blanks = 0
        elif first[0] - 1 - offset >= 0:
            raw = lines[first[0] - 1 - offset : last - offset]
            statements.append(_statement(raw, blanks, tuple(comments)))
            comments, blanks = [], 0
    if comments:
        statements.append(Statement(END, 0, (), 0, tuple(comments)))
    return tuple(statements)


def statements_of(source: str) -> list[Statement]:
    """The statements of any piece of a unit, whose depths need not follow from one another.

    The inverse of :func:`render`. Raises :class:`SyntaxError` when it cannot be tokenised.
    """
    try:
        return split_statements(source)
    except IndentationError as error:
        lines = source.split("\n")
        at = (error.lineno or 0) - 1 - _starts_indented(lines)
        while at > 0 and (not lines[at - 1].strip() or lines[at - 1].lstrip().startswith("#")):
            at -= 1
        if at <= 0:
            raise
        return [*split_statements("\n".join(lines[:at])), *statements_of("\n".join(lines[at:]))]


def render(statements: Sequence[Statement]) -> str:
    """The source of ``statements``."""
    out: list[str] = []
    for statement in statements:
        for comment in statement.comments:
            out += [""] * comment.blanks
            out.append(" " * comment.indent + comment.text)
        out += [""] * statement.blanks
        out += indented(statement.lines, statement.indent)
    return "\n".join(out)


def indented(lines: Sequence[str], indent: int) -> list[str]:
    """Source lines of a statement at a column; the inside of a long string is not moved."""
    inside = string_lines("\n".join(lines)) if len(lines) > 1 else frozenset()
    return [
        line if number in inside or not line.strip() else " " * indent + line
        for number, line in enumerate(lines)
    ]


def _starts_indented(lines: list[str]) -> bool:
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    return first[:1].isspace()


def _logical_lines(text: str) -> Iterator[tuple[str, tuple[int, int], int, str]]:
    """Yield (kind, first token's position, last line, comment text) of each logical line."""
    start: tuple[int, int] | None = None
    for token in tokens(text):
        if token.type in _LAYOUT:
            continue
        if token.type == tokenize.NL:
            if start is None and not token.line.strip():
                yield "blank", token.start, token.start[0], ""
        elif token.type == tokenize.COMMENT and start is None:
            yield "comment", token.start, token.start[0], token.string
        elif token.type == tokenize.COMMENT:
            continue
        elif token.type == tokenize.NEWLINE:
            if start is not None:
                yield "code", start, token.start[0], ""
            start = None
        elif start is None:
            start = token.start


def _statement(raw: list[str], blanks: int, comments: tuple[Comment, ...]) -> Statement:
    indent = len(raw[0]) - len(raw[0].lstrip())
    inside = string_lines("\n".join(raw).lstrip()) if len(raw) > 1 else frozenset()
    lines = tuple(
        line if number in inside else (line[indent:] if not line[:indent].strip() else line.lstrip())
        for number, line in enumerate(raw)
    )
    return Statement(canonical("\n".join(lines)), indent, lines, blanks, comments)


@functools.lru_cache(maxsize=65536)
def string_lines(code: str) -> frozenset[int]:
    """The 0-based lines of ``code`` that begin inside a string; none when it is not Python."""
    if '"""' not in code and "'''" not in code and "\\\n" not in code:
        return frozenset()
    inside: set[int] = set()
    try:
        for token in tokens(code + "\n"):
            if token.type == tokenize.STRING:
                inside.update(range(token.start[0], token.end[0]))
    except SyntaxError:
        return frozenset()
    return frozenset(inside)


@functools.lru_cache(maxsize=262144)
def canonical(code: str) -> str:
    """One spelling for all layouts of a logical line (``code`` has no leading indent)."""
    code = code.strip()
    if bare := _BARE.fullmatch(code):
        return bare[1] + ":"
    try:
        return _unparse(code)
    except (SyntaxError, ValueError):
        return " ".join(code.split())


def parse_line(code: str) -> ast.Module | ast.Expression:
    """The syntax of one logical line; a header gets an empty body, and a part of a block the rest of it.

    Raises :class:`SyntaxError` for what is no Python.
    """
    return _parse(code)[0]


@functools.lru_cache(maxsize=32768)
def nodes_of(key: str) -> tuple[ast.AST, ...]:
    """All nodes of one logical line, the outermost first; none for what is no Python."""
    try:
        return tuple(ast.walk(parse_line(key)))
    except SyntaxError:
        return ()


def _unparse(code: str) -> str:
    tree, before, after = _parse(code)
    if isinstance(tree, ast.Expression):
        return "@" + unparse(tree)
    lines = unparse(_without_doc_indent(tree)).split("\n")
    return textwrap.dedent("\n".join(lines[before : len(lines) - after])).strip()


def _parse(code: str) -> tuple[ast.Module | ast.Expression, int, int]:
    """The syntax of a line, and how many unparsed lines of it stand before and after the line's own."""
    if code.startswith("@"):
        return ast.parse(code[1:].strip(), mode="eval"), 0, 0
    try:
        return ast.parse(code), 0, 0
    except SyntaxError:
        word = re.match(r"\w*", code)
        before, body, after, above, below = _FRAMES.get(word[0] if word else "", _PLAIN)
    try:
        # A part of a block may hold its statements in the line itself.
        return ast.parse(before + code + after), above, below
    except SyntaxError:
        return ast.parse(before + code + body + after), above, below + 1


def _without_doc_indent(tree: ast.Module) -> ast.Module:
    """Docstrings compare by their words, not by how they are indented."""
    node = tree.body[0] if tree.body else None
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        node.value.value = "\n".join(line.strip() for line in node.value.value.split("\n"))
    return tree


def line_numbers(statements: Sequence[Statement], start: int) -> list[tuple[int, int]]:
    """The first and last line (1-based) of each statement of a source.

    ``start`` is the line (0-based) at which the source begins in its file.
    """
    found: list[tuple[int, int]] = []
    line = start
    for statement in statements:
        line += statement.blanks + sum(comment.blanks + 1 for comment in statement.comments)
        found.append((line + 1, line + len(statement.lines)))
        line += len(statement.lines)
    return found
