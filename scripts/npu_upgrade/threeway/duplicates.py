"""What both sides brought to one block stands there once.

When upstream moves a statement that omni had moved too, both copies survive a merge. The
second one goes where it is sure to say nothing new: same block, nothing in between that
changes what it reads.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from npu_upgrade.code.statements import CONTINUES, END, Statement
from npu_upgrade.code.uses import reads, rebinds
from npu_upgrade.threeway.align import align, weight
from npu_upgrade.threeway.pieces import Flag, Piece, contest
from npu_upgrade.threeway.shifts import headers, parents

_LOOPS = re.compile(r"(async )?(for|while)\b")
_DEFINES = re.compile(r"(async )?(def|class)\b")


def drop_duplicates(
    pieces: Sequence[Piece],
    base: Sequence[Statement],
    ours: Sequence[Statement],
    theirs: Sequence[Statement],
) -> tuple[list[Piece], list[Flag]]:
    """``pieces`` without needless second copies, and a flag for each whose place or condition is in doubt."""
    known, own = ({s.key for s in side} for side in (base, ours))
    most = Counter(s.key for s in ours) | Counter(s.key for s in theirs)
    have = Counter(piece.key for piece in pieces if isinstance(piece, Statement))
    surplus = {key for key, count in have.items() if count > most[key] and weight(key) >= 2}
    out: list[Piece] = list(pieces)
    flags: list[Flag] = []
    for key in sorted(surplus):
        number = _needless_copy(out, key)
        if number is None:
            flags += _brought_twice(out, key, own) if key not in known else []
            continue
        statement = out[number]
        assert isinstance(statement, Statement)
        _remove(out, number, statement)
    _contest_doubled(out, surplus)
    return out, [*flags, *_contest_copies(out, most, ours)]


def drop_asserts(
    pieces: Sequence[Piece], ours: Sequence[Statement], theirs: Sequence[Statement]
) -> list[Piece]:
    """``pieces`` without the asserts of theirs right before ours tests the same: what it provides for."""
    own, upstream = ({s.key for s in side} for side in (ours, theirs))
    out: list[Piece] = list(pieces)
    for piece, after in itertools.pairwise(pieces):
        if not (isinstance(piece, Statement) and isinstance(after, Statement)):
            continue
        tested = piece.key.removeprefix("assert ")
        fresh = tested != piece.key and piece.key not in own
        if fresh and after.key == f"if {tested}:" and after.key not in upstream:
            _remove(out, next(n for n, one in enumerate(out) if one is piece), piece)
    return out


def _needless_copy(pieces: Sequence[Piece], key: str) -> int | None:
    """The second of two copies, in the block of the first or deeper, that says nothing new."""
    plain = _plain(pieces)
    above = parents(plain)
    places = [n for n, piece in enumerate(plain) if piece.key == key and not piece.is_header]
    for first, second in itertools.pairwise(places):
        around = [n for n in headers(above, second) if n > first]
        outermost = around[-1] if around else second
        one_block = above[first] == above[outermost] and plain[first].indent == plain[outermost].indent
        movable = rebinds([key]) and not _is_alone(plain, second)
        if not one_block or (around and not movable) or any(_DEFINES.match(plain[n].key) for n in around):
            continue
        # What a loop changes behind the second copy is changed when the copy comes again.
        loops = [n for n in around if _LOOPS.match(plain[n].key)]
        end = next(_block_ends(plain, loops[-1:]), second)
        between = [s.key for n, s in enumerate(plain[first + 1 : end], first + 1) if n != second]
        kept = reads([key]) | (rebinds([key]) if around else set())
        if not rebinds(between) & kept and "<conflict>" not in between:
            return second
    return None


def _is_alone(plain: Sequence[Statement], number: int) -> bool:
    """Whether a statement is all that stands below its header."""
    before, after = plain[number - 1], plain[number + 1 : number + 2]
    return before.is_header and (not after or after[0].indent <= before.indent)


def _block_ends(plain: Sequence[Statement], starts: Sequence[int]) -> Iterator[int]:
    """Where the blocks of some headers end."""
    for start in starts:
        deeper = (n for n in range(start + 1, len(plain)) if plain[n].indent <= plain[start].indent)
        yield next(deeper, len(plain))


def _plain(pieces: Sequence[Piece]) -> list[Statement]:
    return [p if isinstance(p, Statement) else Statement("<conflict>", 0, ()) for p in pieces]


def _brought_twice(pieces: list[Piece], key: str, own: Set[str]) -> list[Flag]:
    """Take out upstream's copy of a statement that ours has under a condition of its own; a flag for it.

    Where the copy does not stand alone in its block, it stays.
    """
    plain = _plain(pieces)
    above = parents(plain)
    copies = [
        (n, header)
        for n, header in enumerate(above)
        if plain[n].key == key and not plain[n].is_header and header is not None and plain[header].is_header
    ]
    upstream = [(n, header) for n, header in copies if plain[header].key not in own]
    if len(copies) < 2 or len(upstream) != 1:
        return []
    number, header = upstream[0]
    copy, before = plain[number], plain[header]
    after = plain[number + 1] if number + 1 < len(plain) else Statement(END, 0, ())
    alone = before.key.startswith("if ") and number == header + 1 and after.indent <= before.indent
    if not alone or CONTINUES.match(after.key):
        return []
    _remove(pieces, number, copy)
    _remove(pieces, header, before)
    reason = "both sides brought this statement; it stands under a condition of ours, not under upstream's"
    return [Flag("twice", reason, "", copy.code, f"{before.code}\n{copy.code}")]


def _contest_doubled(pieces: list[Piece], surplus: Set[str]) -> None:
    """Leave the later copy of several statements in a row to a person, where that is Python."""
    keys = [piece.key if isinstance(piece, Statement) else "" for piece in pieces]
    reason = "both sides have these statements, at different places; here they would stand twice"
    for start, end in reversed(list(_doubled(keys, surplus))):
        contest(pieces, start, end, reason)


def _contest_copies(pieces: list[Piece], most: Counter[str], ours: Sequence[Statement]) -> Iterator[Flag]:
    """Leave each copy too many to a person, with as much around it as answers of Python take.

    A flag where not even the whole would do.
    """
    reason = "both sides brought this statement, each at its own place; it has to run once"
    while (number := _copy_too_many(pieces, most, ours)) is not None:
        plain = _plain(pieces)
        own = {there for _, there in align(ours, plain)}
        starts = [number, *headers(parents(plain), number)]
        if not any(contest(pieces, start, start + 1, reason, own) for start in starts):
            yield Flag("twice", reason, "", plain[number].code, plain[number].code)
            return


def _copy_too_many(pieces: Sequence[Piece], most: Counter[str], ours: Sequence[Statement]) -> int | None:
    """The place of upstream's copy of a statement that stands more often than on either side."""
    plain = _plain(pieces)
    have = Counter(statement.key for statement in plain)
    own = {there for _, there in align(ours, plain)}
    for number, statement in reversed(list(enumerate(plain))):
        key = statement.key
        if most[key] and have[key] > most[key] and weight(key) > 2 and number not in own:
            return number
    return None


def _doubled(keys: Sequence[str], surplus: Set[str]) -> Iterator[tuple[int, int]]:
    seen: set[str] = set()
    end = 0
    for start, key in enumerate(keys):
        if start >= end and key in surplus and key in seen:
            end = next((n for n in range(start, len(keys)) if keys[n] not in surplus & seen), len(keys))
            if end - start > 1:
                yield start, end
        seen.add(key)


def _remove(pieces: list[Piece], number: int, statement: Statement) -> None:
    """Take a statement out; its comments go to the one that follows."""
    del pieces[number]
    if not statement.comments:
        return
    follower = pieces[number] if number < len(pieces) else None
    if isinstance(follower, Statement):
        pieces[number] = replace(follower, comments=(*statement.comments, *follower.comments))
    else:
        pieces.insert(number, Statement(END, statement.indent, (), 0, statement.comments))
