"""Putting the ``Omni-new`` markers around omni code that has none, and a note before one statement alone.

Markers are for readers and a hint at most: what is omni code is told by comparing with
upstream's method, never by markers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npu_upgrade.code.statements import END, Comment, Statement
from npu_upgrade.lineage.marker_places import NOTE, Run, is_fence, is_rule, unmarked_runs

MARKER = "# -------------------------------------- Omni-new -------------------------------------------------"


def add_markers(merged: Sequence[Statement], omni: Sequence[bool]) -> list[Statement]:
    """``merged`` with a marker before and after all ``omni`` statements of it that have none.

    One statement alone, as a condition that is omni's over upstream's block, has a note before it: a pair
    around it would be longer than the code, and end inside of a block where it began before it.
    Statements and their order stay; so do the markers that are there. Doing it twice is the
    same as doing it once.
    """
    out = list(merged)
    # From the back, so that an END added for the last run moves no other.
    for run in reversed(unmarked_runs(merged, omni)):
        alone = run.end - run.start == 1
        if not alone:
            _close(out, run)
        out[run.start] = _opened(out[run.start], NOTE if alone else MARKER)
    return out


def _opened(statement: Statement, marker: str) -> Statement:
    """The statement with a marker before its own comments."""
    comments = list(statement.comments)
    place = own_comments(statement)
    if place < len(comments):
        blanks, comments[place] = comments[place].blanks, replace(comments[place], blanks=0)
        rest = statement.blanks
    else:
        blanks, rest = statement.blanks, 0
    comments.insert(place, Comment(statement.indent, marker, blanks))
    return replace(statement, comments=tuple(comments), blanks=rest)


def own_comments(statement: Statement) -> int:
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
    place = 0
    while place < len(follower.comments) and follower.comments[place].indent > depth:
        place += 1
    comments = (*follower.comments[:place], Comment(depth, MARKER), *follower.comments[place:])
    out[run.end] = replace(follower, comments=comments)
