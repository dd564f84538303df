"""The ``Omni-new`` markers around omni code: adding them, and ending where the omni code ends.

Markers are for readers and a hint at most: what is omni code is told by comparing with
upstream's method, never by markers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npu_upgrade.code.statements import END, Comment, Statement
from npu_upgrade.lineage.marker_places import Run, fenced, is_fence, is_rule, omni_code, unmarked_runs
from npu_upgrade.threeway.pieces import Piece

MARKER = "# -------------------------------------- Omni-new -------------------------------------------------"


def add_markers(merged: Sequence[Statement], upstream: Sequence[Statement]) -> list[Statement]:
    """``merged`` with a marker before and after all omni code that has none.

    Statements and their order stay; so do the markers that are there. Doing it twice is the
    same as doing it once.
    """
    out = list(merged)
    # From the back, so that an END added for the last run moves no other.
    for run in reversed(unmarked_runs(merged, omni_code(merged, upstream))):
        _close(out, run)
        out[run.start] = _opened(out[run.start])
    return out


def _opened(statement: Statement) -> Statement:
    """The statement with a marker before its own comments."""
    comments = list(statement.comments)
    place = _own_comments(statement)
    if place < len(comments):
        blanks, comments[place] = comments[place].blanks, replace(comments[place], blanks=0)
        rest = statement.blanks
    else:
        blanks, rest = statement.blanks, 0
    comments.insert(place, Comment(statement.indent, MARKER, blanks))
    return replace(statement, comments=tuple(comments), blanks=rest)


def _own_comments(statement: Statement) -> int:
    """Where the comments of a statement begin, after those that end what stands before it."""
    place = 0
    for number, comment in enumerate(statement.comments):
        if comment.indent > statement.indent or is_fence(comment.text) or is_rule(comment.text):
            place = number + 1
    return place


def _close(out: list[Statement], run: Run) -> None:
    """A marker after a run, before the comments of what follows."""
    depth = out[run.start].indent
    if run.end >= len(out):
        out.append(Statement(END, 0, (), 0, (Comment(depth, MARKER),)))
        return
    follower = out[run.end]
    # Under a header alone, a formatter would move it to the depth of the block anyway.
    depth = follower.indent if run.header_only else depth
    place = 0
    while place < len(follower.comments) and follower.comments[place].indent > depth:
        place += 1
    comments = (*follower.comments[:place], Comment(depth, MARKER), *follower.comments[place:])
    out[run.end] = replace(follower, comments=comments)


def close_in_place(pieces: Sequence[Piece], ours: Sequence[Statement]) -> tuple[Piece, ...]:
    """``pieces`` of a merge with the markers that end omni code right behind it, as ``ours`` has them.

    A marker stands before the statement that follows, so what upstream put between would be within.
    """
    out = list(pieces)
    inside = fenced(ours)
    own = {statement.key for statement in ours}
    for last, follower, held, after in zip(ours, ours[1:], inside, inside[1:], strict=False):
        closing = 0 if after or not held else _own_comments(follower)
        place = _first_between(out, last, follower, own) if closing else None
        if place is not None:
            _move(out, place, follower, [comment.text for comment in follower.comments[:closing]])
    return tuple(out)


def _first_between(out: Sequence[Piece], last: Statement, follower: Statement, own: set[str]) -> int | None:
    """Where upstream's new statements begin that stand between two statements of ours, if any do."""
    for number, piece in enumerate(out[:-1]):
        if isinstance(piece, Statement) and piece.key == last.key:
            end = number + 1
            while end < len(out) and isinstance(new := out[end], Statement) and new.key not in own:
                end += 1
            after = out[end] if end < len(out) else None
            if end > number + 1 and isinstance(after, Statement) and after.key == follower.key:
                first = out[number + 1]
                at_depth = isinstance(first, Statement) and first.indent == follower.indent
                return number + 1 if at_depth else None
    return None


def _move(out: list[Piece], place: int, follower: Statement, texts: Sequence[str]) -> None:
    """Put the comments of ``follower`` with these texts before the statement at ``place``."""
    after = next(
        n for n, one in enumerate(out) if n > place and isinstance(one, Statement) and one.key == follower.key
    )
    first, then = out[place], out[after]
    assert isinstance(first, Statement)
    assert isinstance(then, Statement)
    moved = tuple(comment for comment in then.comments if comment.text in texts)
    kept = tuple(comment for comment in then.comments if comment.text not in texts)
    out[place] = replace(first, comments=(*moved, *first.comments))
    out[after] = replace(then, comments=kept)
