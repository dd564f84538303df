"""Comments in a merge: they follow their statement, and none of ours gets lost."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from dataclasses import replace

from npu_upgrade.code.statements import Comment, Statement

Comments = tuple[Comment, ...]
_WORD = re.compile(r"\w+")


def merge_comments(base: Comments, ours: Comments, theirs: Comments) -> Comments:
    """Comments of a statement that all three versions have; both sides' additions stay."""
    texts = [[c.text for c in side] for side in (base, ours, theirs)]
    if texts[1] == texts[0]:
        return theirs
    if texts[2] in (texts[0], texts[1]):
        return ours
    added = own_comments(base, ours, theirs)
    return (*theirs, *(c for c in added if c.text not in texts[2]))


def own_comments(base: Comments, side: Comments, other: Comments = ()) -> Comments:
    """The comments of ``side`` that ``base`` does not have, none where they say what it or ``other`` says.

    Of a comment that was edited all lines are kept: half of it would say something else.
    """
    known, texts = [c.text for c in base], [c.text for c in side]
    own = tuple(comment for comment in side if comment.text not in known)
    if _is_said([c.text for c in own], [*known, *(c.text for c in other)]):
        return ()
    edited = len(own) < len(side) and any(text not in texts for text in known)
    return side if edited and not other else own


def lost_inline(base: Statement, ours: Statement, lines: tuple[str, ...], indent: int) -> Comments:
    """Comments that ours added inside a statement and the layout ``lines`` lacks, as own lines."""
    present = [*_inline(base.lines), *_inline(lines)]
    own = [text for text in _inline(ours.lines) if text not in present]
    return () if _is_said(own, present) else tuple(Comment(indent, text) for text in own)


def with_inline(
    lines: tuple[str, ...], base: Statement, ours: Statement, theirs: Statement
) -> tuple[str, ...]:
    """The lines of a statement with the comments that its sides have at the ends of the same ones.

    Those that ours has of base are not its own: they stay where theirs has them.
    """
    known, out = _inline(base.lines), list(lines)
    own = [one for one in _commented(ours.lines) if one[1].strip() not in known]
    for code, rest in [*own, *_commented(theirs.lines)] if lines[1:] else []:
        same = [n for n, line in enumerate(out) if line.strip().rstrip(",") == code]
        if len(same) == 1:
            out[same[0]] += rest
    return tuple(out)


def _commented(lines: tuple[str, ...]) -> list[tuple[str, str]]:
    """The code of each line that ends with a comment, without its comma, and what follows it."""
    found = []
    for comment in _inline(lines):
        line = next((one for one in lines if one.endswith(comment)), "")
        code = line.removesuffix(comment).rstrip()
        if code.strip():
            found.append((code.strip().rstrip(","), line[len(code) :]))
    return found


def _is_said(texts: list[str], known: list[str]) -> bool:
    """Whether comments have no word of their own, however their lines are wrapped."""
    words, others = (_WORD.findall(" ".join(some).lower()) for some in (texts, known))
    return bool(words) and not Counter(words) - Counter(others)


def _inline(lines: tuple[str, ...]) -> list[str]:
    """The comments inside a logical line."""
    if not any("#" in line for line in lines):
        return []
    reader = io.StringIO("\n".join(lines) + "\n").readline
    return [token.string for token in tokenize.generate_tokens(reader) if token.type == tokenize.COMMENT]


def shift_comments(comments: Comments, by: int) -> Comments:
    """The same comments ``by`` columns further right."""
    return tuple(replace(c, indent=max(0, c.indent + by)) for c in comments) if by else comments
