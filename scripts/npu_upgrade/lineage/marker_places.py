"""Where the omni code of a merged method is, and which of it stands within markers.

Open and close markers are the same text, some are missing and some are closed by a rule of
dashes. So markers count only where they are plain to see: before the code itself, or as
pairs at the depth of one block that has an even number of them.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from npu_upgrade.code.statements import END, Comment, Statement
from npu_upgrade.threeway.align import align
from npu_upgrade.threeway.shifts import parents

FENCE = "Omni-new"
NOTE = "# Omni-specific"
"""What stands before one statement of omni's."""
DIALECTS = {
    FENCE: re.compile(r"#[\s\-=]*omni[-_ ]new\b", re.IGNORECASE),
    "[Omni]": re.compile(r"#\s*\[omni\]", re.IGNORECASE),
    "OMNI:": re.compile(r"#\s*omni\s*:", re.IGNORECASE),
    "Omni-specific": re.compile(r"#\s*omni[- ]specific\b", re.IGNORECASE),
}
"""The ways in which comments mark omni code, by dialect."""

_RULE = re.compile(r"#\s*-{3,}\s*")
_DEFINES = ("def ", "async def ", "class ", "@")


def is_fence(text: str) -> bool:
    """Whether a comment opens or closes omni code (``# ---- Omni-new ----``)."""
    return bool(DIALECTS[FENCE].match(text))


def is_marker(text: str) -> bool:
    """Whether a comment marks omni code: a fence, or a note (``# [Omni] ...``, ``# OMNI: ...``,
    ``# Omni-specific ...``).
    """
    return dialect(text) is not None


def is_rule(text: str) -> bool:
    """Whether a comment is a line of dashes, which closes what a fence opened."""
    return bool(_RULE.fullmatch(text))


@dataclass(frozen=True, slots=True)
class Run:
    """Omni code at one depth: ``merged[start:end]``, whole blocks, or a header alone.

    ``end`` of a header alone is the statement after it.
    """

    start: int
    end: int
    header_only: bool = False


def omni_code(merged: Sequence[Statement], upstream: Sequence[Statement]) -> list[bool]:
    """Which statements of ``merged`` upstream's method does not have.

    The signature and the docstring of the method count as upstream's: a marker there would
    say nothing that the method's own name does not.
    """
    have = {number for _, number in align(upstream, merged)}
    body = body_start(merged)
    return [
        number >= body and number not in have and statement.key != END
        for number, statement in enumerate(merged)
    ]


def omni_runs(merged: Sequence[Statement], omni: Sequence[bool]) -> list[Run]:
    """The omni code in runs of whole blocks; fences between two statements part runs."""
    runs: list[Run] = []
    number = 0
    while number < len(merged):
        end = block_end(merged, number)
        if not omni[number]:
            number += 1
        elif not all(omni[number:end]):
            runs.append(Run(number, number + 1, header_only=True))
            number += 1
        else:
            while _goes_on(merged, omni, number, end):
                end = block_end(merged, end)
            runs.append(Run(number, end))
            number = end
    return runs


def block_end(merged: Sequence[Statement], start: int) -> int:
    """The statement after the one at ``start`` and all that stands under it."""
    end = start + 1
    while end < len(merged) and merged[end].key != END and merged[end].indent > merged[start].indent:
        end += 1
    return end


def unmarked_runs(merged: Sequence[Statement], omni: Sequence[bool]) -> list[Run]:
    """The runs that no marker is for."""
    runs = omni_runs(merged, omni)
    own = _own_markers(merged, runs)
    alone = [run for run in runs if run.header_only and run.start in own]
    closings = {run.start: closing for run in alone if (closing := _closing(merged, run, own))}
    covering = {run.start for run in alone if run.start not in closings and own[run.start] != [NOTE]}
    within = _fenced(merged, closings)
    headers = parents(merged)
    return [
        run
        for run in runs
        if run.start not in own
        and not within[run.start]
        and not (run.end - run.start == 1 and _is_noted_inside(merged[run.start]))
        and covering.isdisjoint(_above(headers, run.start))
    ]


def _is_noted_inside(statement: Statement) -> bool:
    """Whether a marker stands at the end of a line of the statement itself, as behind an argument."""
    return any("#" in line and dialect("#" + line.rpartition("#")[2]) for line in statement.lines)


def unmarked_statements(merged: Sequence[Statement], omni: Sequence[bool]) -> set[int]:
    """The omni statements of :func:`unmarked_runs`, less those that fences inside a run hold."""
    within = fenced(merged)
    runs = unmarked_runs(merged, omni)
    return {n for run in runs for n in range(run.start, run.end) if omni[n] and not within[n]}


def fenced(method: Sequence[Statement]) -> list[bool]:
    """Which statements of a method stand between an opening and a closing fence."""
    return _fenced(method, {})


def body_start(merged: Sequence[Statement]) -> int:
    """Where the body of the method begins, after its decorators, signature and docstring."""
    top = merged[0].indent if merged else 0
    number = 0
    while number < len(merged) and merged[number].indent == top and merged[number].key.startswith(_DEFINES):
        number += 1
    if number and number < len(merged) and merged[number].key[:1] in "'\"":
        number += 1
    return number


def _goes_on(merged: Sequence[Statement], omni: Sequence[bool], start: int, end: int) -> bool:
    """Whether the run from ``start`` goes on with the statement at ``end``."""
    if end >= len(merged) or not omni[end] or merged[end].indent != merged[start].indent:
        return False
    return not _edges(merged[end]) and all(omni[end : block_end(merged, end)])


def _own_markers(merged: Sequence[Statement], runs: Sequence[Run]) -> dict[int, list[str]]:
    """The markers that stand before runs and are for them, by where the run starts."""
    found: dict[int, list[str]] = {}
    before: Run | None = None
    for run in runs:
        statement = merged[run.start]
        texts = [c.text for c in statement.comments if c.indent == statement.indent and is_marker(c.text)]
        if before and before.start in found and _ends_before(merged, before, found, run, len(texts)):
            texts.remove(next(filter(is_fence, texts)))
        if texts:
            found[run.start] = texts
        before = run
    return found


def _ends_before(
    merged: Sequence[Statement], before: Run, own: Mapping[int, list[str]], run: Run, markers: int
) -> bool:
    """Whether the first fence on ``run`` closes the marked run right before it."""
    edges = _edges(merged[run.start])
    noted = own[before.start] == [NOTE]  # which nothing closes
    if noted or before.end != run.start or not edges or not is_fence(edges[0].text):
        return False
    if before.header_only:
        return _closing(merged, before, own) is edges[0]
    # Whole runs meet only at a fence; a header alone may meet one without.
    beside = merged[before.start].indent == merged[run.start].indent
    return beside and (markers > 1 or not run.header_only)


def _closing(merged: Sequence[Statement], run: Run, own: Mapping[int, list[str]]) -> Comment | None:
    """The fence that closes a header alone, on the first statement under it, at either depth."""
    if not any(map(is_fence, own[run.start])):
        return None
    below = merged[run.end]
    depths = (merged[run.start].indent, below.indent)
    return next((c for c in below.comments if is_fence(c.text) and c.indent in depths), None)


def _edges(statement: Statement) -> list[Comment]:
    """The fences and rules before a statement, at its depth."""
    return [
        c
        for c in statement.comments
        if c.indent == statement.indent and (is_fence(c.text) or is_rule(c.text))
    ]


def _fenced(merged: Sequence[Statement], closings: Mapping[int, Comment]) -> list[bool]:
    """Which statements stand between an opening and a closing fence of a block around them."""
    inside = [False] * len(merged)
    for depth, start, end in _blocks(merged):
        toggles: list[int] = []
        for number, comment in _comments_at(merged, depth, start, end, closings):
            if is_fence(comment.text) or (is_rule(comment.text) and len(toggles) % 2):
                toggles.append(number)
        if len(toggles) % 2 == 0:
            for low, high in zip(toggles[::2], toggles[1::2], strict=True):
                inside[low:high] = [True] * (high - low)
    return inside


def _blocks(merged: Sequence[Statement]) -> Iterator[tuple[int, int, int]]:
    """Each block: its depth, its first statement, and the statement after it."""
    last = -1
    for number, statement in enumerate(merged):
        if statement.key != END and (number == 0 or statement.indent > last):
            end = number
            while end < len(merged) and merged[end].key != END and merged[end].indent >= statement.indent:
                end += 1
            yield statement.indent, number, end
        last = statement.indent


def _comments_at(
    merged: Sequence[Statement], depth: int, start: int, end: int, closings: Mapping[int, Comment]
) -> Iterator[tuple[int, Comment]]:
    """The comments of a block by the statement they stand before, in order.

    What closes a header alone stands on the statement under it, and belongs to the header's block.
    """
    for number in range(start, min(end + 1, len(merged))):
        closing = closings.get(number - 1)
        if closing and merged[number - 1].indent == depth:
            yield number, closing
        if merged[number].indent == depth or number == end:
            for comment in merged[number].comments:
                if comment is not closing and comment.indent == depth:
                    yield number, comment


def _above(headers: Sequence[int | None], number: int) -> set[int]:
    """The headers that a statement stands under."""
    found: set[int] = set()
    header = headers[number]
    while header is not None:
        found.add(header)
        header = headers[header]
    return found


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
