"""What a search for markers finds: the comments that mark omni code, by dialect."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator

DIALECTS = {
    "Omni-new": re.compile(r"#[\s\-=]*omni[-_ ]new\b", re.IGNORECASE),
    "[Omni]": re.compile(r"#\s*\[omni\]", re.IGNORECASE),
    "OMNI:": re.compile(r"#\s*omni\s*:", re.IGNORECASE),
    "Omni-specific": re.compile(r"#\s*omni[- ]specific\b", re.IGNORECASE),
}


def marker_lines(source: str) -> Iterator[tuple[int, str]]:
    """(1-based line, dialect) of every marker in a source; none where it is not Python."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return
    for token in tokens:
        if token.type == tokenize.COMMENT and (name := dialect(token.string)):
            yield token.start[0], name


def dialect(comment: str) -> str | None:
    """The dialect of a comment that marks omni code; None for any other comment."""
    return next((name for name, pattern in DIALECTS.items() if pattern.match(comment)), None)


def counted(source: str, first: int = 1, last: int | None = None) -> Counter[str]:
    """The markers in the lines ``first`` to ``last`` by dialect."""
    return Counter(
        name for line, name in marker_lines(source) if first <= line and (last is None or line <= last)
    )
