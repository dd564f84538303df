"""The ``Omni-new`` markers around omni code in what was merged: they end where the omni code ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npu_upgrade.code.statements import Statement
from npu_upgrade.lineage.marker_places import fenced
from npu_upgrade.lineage.marking import own_comments
from npu_upgrade.threeway.pieces import Piece


def close_in_place(pieces: Sequence[Piece], ours: Sequence[Statement]) -> tuple[Piece, ...]:
    """``pieces`` of a merge with the markers that end omni code right behind it, as ``ours`` has them.

    A marker stands before the statement that follows, so what upstream put between would be within.
    """
    out = list(pieces)
    inside = fenced(ours)
    own = {statement.key for statement in ours}
    for last, follower, held, after in zip(ours, ours[1:], inside, inside[1:], strict=False):
        closing = 0 if after or not held else own_comments(follower)
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
