"""Putting text of a run into a Markdown page without the page, or its macros, reading it as its own."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any

_MACRO = re.compile(r"\{\{|\{%|\{#")
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_LONGEST_CELL = 300


def cell(value: Any) -> str:
    """A value for a table cell: one line, its bars and angle brackets escaped, not too long to read."""
    text = " ".join(str(value).split())
    text = text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"
    return re.sub(r"([|<*\[\]`\\]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def code(value: Any) -> str:
    """A value as inline code that no backtick or bar in it can leave."""
    text = " ".join(str(value).split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * (longest + 1)
    return f"{marks} {text} {marks}" if longest else f"{marks}{text}{marks}"


def quoted(value: Any) -> str:
    """A text as a JSON string: control characters and newlines are visible."""
    return json.dumps(value, ensure_ascii=False)


def without_macros(page: str, verbatim: str) -> str:
    """``page`` with every double brace that is not ``verbatim`` made one that macros leave alone."""
    kept = page.split(verbatim) if verbatim else [page]
    shown = [_MACRO.sub(lambda match: f"{{{{ '{match[0]}' }}}}", part) for part in kept]
    return verbatim.join(shown)


def shell_lines(words: Iterable[str]) -> str:
    """Options as indented continuation lines of a shell command, an option and its value together."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("-") or not lines or len(lines[-1]) > 1 or "=" in lines[-1][0]:
            lines.append([word])
        else:
            lines[-1].append(word)
    return "".join(f" \\\n  {shlex.join(line)}" for line in lines)


def tidy(page: str) -> str:
    """No trailing blanks, no two empty lines in a row outside code, one newline at the end."""
    lines: list[str] = []
    fence = ""
    for line in page.splitlines():
        line = line.rstrip()
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and line.strip() == mark[1]:
            fence = ""
        if line or fence or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).strip("\n") + "\n"
