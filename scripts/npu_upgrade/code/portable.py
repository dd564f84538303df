"""Code read and written alike by every Python, for whatever is kept, compared or hashed.

Since 3.12, an f-string is many tokens, and :func:`ast.unparse` writes quotes into its
expressions that older Pythons cannot read.
"""

from __future__ import annotations

import ast
import copy
import io
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_QUOTES = ("'", '"', '"""', "'''")
_OPENS, _CLOSES = (getattr(tokenize, f"FSTRING_{end}", None) for end in ("START", "END"))


def tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens of ``text``; an f-string is one STRING token. Raises :class:`SyntaxError`."""
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    try:
        yield from found if _OPENS is None else _whole_strings(found, text.split("\n"))
    except tokenize.TokenError as error:
        raise SyntaxError(f"not Python: {error}") from error


def _whole_strings(found: Iterable[tokenize.TokenInfo], lines: Sequence[str]) -> Iterator[tokenize.TokenInfo]:
    begun: list[tokenize.TokenInfo] = []
    for token in found:
        if token.type == _OPENS:
            begun.append(token)
        elif token.type == _CLOSES:
            first = begun.pop()
            if not begun:
                yield _joined(first, token, lines)
        elif not begun:
            yield token


def _joined(first: tokenize.TokenInfo, last: tokenize.TokenInfo, lines: Sequence[str]) -> tokenize.TokenInfo:
    (row, column), (end_row, end_column) = first.start, last.end
    rows = list(lines[row - 1 : end_row])
    rows[-1] = rows[-1][:end_column]
    rows[0] = rows[0][column:]
    return first._replace(type=tokenize.STRING, string="\n".join(rows), end=last.end)


def unparse(node: ast.AST) -> str:
    """What :func:`ast.unparse` writes, with f-strings as Python 3.11 writes and reads them."""
    try:
        text = ast.unparse(node)
    except ValueError:  # 3.11 cannot write every f-string that a newer Python reads
        text = "f'"
    if "f'" not in text and 'f"' not in text and not isinstance(node, ast.FormattedValue):
        return text
    return ast.unparse(_with_written_fstrings(node))


def _with_written_fstrings(node: Any) -> Any:
    """The tree with each f-string as a name that spells it; what holds none is not copied."""
    if isinstance(node, ast.JoinedStr):
        return ast.Name(_quoted(list(_parts(node))), ast.Load())
    if isinstance(node, ast.FormattedValue):
        return ast.Name("".join(text for text, _ in _field(node)), ast.Load())
    if isinstance(node, list):
        items = [_with_written_fstrings(item) for item in node]
        return items if any(new is not old for new, old in zip(items, node, strict=True)) else node
    if not isinstance(node, ast.AST):
        return node
    result = node
    for name, old in ast.iter_fields(node):
        new = _with_written_fstrings(old)
        if new is not old:
            result = copy.copy(node) if result is node else result
            setattr(result, name, new)
    return result


Part = tuple[str, bool]
"""A piece of an f-string as it is written, and whether it is code."""


def _parts(node: ast.expr) -> Iterator[Part]:
    """The parts of an f-string, of a format or of a constant in one."""
    if isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from _parts(value)
    elif isinstance(node, ast.FormattedValue):
        yield from _field(node)
    elif isinstance(node, ast.Constant):
        yield _escaped(str(node.value).replace("{", "{{").replace("}", "}}")), False
    else:
        raise ValueError(f"an f-string cannot hold {type(node).__name__}")


def _field(node: ast.FormattedValue) -> Iterator[Part]:
    text = unparse(node.value)
    if isinstance(node.value, (ast.Lambda, ast.IfExp)):
        text = f"({text})"
    space = " " if text.startswith("{") else ""
    yield "{" + space + text + (f"!{chr(node.conversion)}" if node.conversion != -1 else ""), True
    if node.format_spec:
        yield ":", True
        yield from _parts(node.format_spec)
    yield "}", True


def _escaped(text: str) -> str:
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode("ascii") for c in text
    )


def _quoted(parts: list[Part]) -> str:
    """The f-string of ``parts`` in the first quotes that do not stand in it."""
    whole, code = "".join(text for text, _ in parts), "".join(text for text, is_code in parts if is_code)
    wide = [quote for quote in _QUOTES if "\n" not in code or len(quote) == 3]
    for quote in wide:
        if quote not in whole and not whole.endswith(quote[0]):
            return f"f{quote}{whole}{quote}"
    # Each kind stands in it: text can be escaped, code cannot.
    quote = next((quote for quote in wide if quote not in code), wide[0])
    sign = quote[0]
    whole = "".join(text if is_code else text.replace(sign, "\\" + sign) for text, is_code in parts)
    return f"f{quote}{whole}{quote}"
