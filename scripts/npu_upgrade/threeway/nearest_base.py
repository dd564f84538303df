"""The upstream text that a method was copied from, put together from known versions.

Where only releases are known, the copy was made at some commit between two of them, so
no single release is its base. For every place where a neighbouring version differs from
the best one, the text that ours agrees with is chosen. A piece of a *newer* version is
taken only when ours holds all of it: a base that is too new would hide upstream changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npu_upgrade.code.sequences import Change, longest_common, similarity
from npu_upgrade.code.statements import CONTINUES, END, Statement
from npu_upgrade.threeway.align import align, fine_changes, resembles, weight
from npu_upgrade.threeway.expressions import agreed_version

_NEAR = 2
"""So many older versions are near enough for "ours lacks it" to mean "was not copied yet"."""

_TELLING = 2
"""A statement of at least this many words says which version it is from."""


def nearest_base(
    best: Sequence[Statement],
    older: Sequence[Sequence[Statement]],
    newer: Sequence[Sequence[Statement]],
    ours: Sequence[Statement],
) -> list[Statement]:
    """``best`` with the pieces of its neighbours that ``ours`` agrees with.

    ``older`` and ``newer`` are other versions of the same method, nearest first.
    """
    for version in (best, *older, *newer):
        if _code(version) == _code(ours):
            return list(version)
    base = list(best)
    for version in [*older[:_NEAR], *newer]:
        base = _take_agreed(base, version, ours, runs=True)
    for version in older[_NEAR:]:
        base = _take_agreed(base, version, ours, runs=False)
    return _drop_unseen(base, older[0], ours) if older else base


def add_ported(
    base: Sequence[Statement], ours: Sequence[Statement], theirs: Sequence[Statement]
) -> list[Statement]:
    """``base`` with the statements that ours and theirs both added at one place.

    What omni has ported already is no change of either side, wherever it stands among
    their other changes there.
    """
    in_ours, in_theirs = dict(align(base, ours)), dict(align(base, theirs))
    anchors = [i for i in range(len(base)) if i in in_ours and i in in_theirs]
    # What base has too was moved, not added: a second copy would look dropped by each side once.
    moved = {s.key for i, s in enumerate(base) if i not in in_ours or i not in in_theirs}
    added: list[tuple[int, Statement]] = []
    b, o, t = 0, 0, 0
    for i in [*anchors, len(base)]:
        o_end = in_ours[i] if i < len(base) else len(ours)
        t_end = in_theirs[i] if i < len(base) else len(theirs)
        own = _unmatched(ours, o, o_end, set(in_ours.values()))
        other = _unmatched(theirs, t, t_end, set(in_theirs.values()))
        for x, y in longest_common([ours[n].key for n in own], [theirs[n].key for n in other]):
            low, high = _common_range(b, i, own[x], other[y], in_ours, in_theirs)
            key = ours[own[x]].key
            if low > high or key in moved or weight(key) < _TELLING:
                continue
            shift = _shift_before(base, theirs, in_theirs, Change(low, low, other[y], other[y]))
            statement = theirs[other[y]].shifted(shift)
            place = next((n for n in range(low, high + 1) if _fits(base, n, statement.indent)), None)
            if place is not None:
                added.append((place, statement))
        b, o, t = i + 1, o_end + 1, t_end + 1
    out = list(base)
    for place, statement in reversed(added):
        out.insert(place, statement)
    return out


def _code(statements: Sequence[Statement]) -> list[tuple[int, str]]:
    return [(s.indent, s.key) for s in statements if s.key != END]


def _unmatched(side: Sequence[Statement], start: int, end: int, matched: set[int]) -> list[int]:
    return [n for n in range(start, end) if n not in matched]


def _fits(base: Sequence[Statement], place: int, indent: int) -> bool:
    """Whether a statement of this depth can stand at a place without tearing a block apart."""
    after = base[place].indent if place < len(base) else 0
    before = base[place - 1] if place else None
    return after <= indent and not (before is not None and before.is_header and before.indent >= indent)


def _common_range(
    start: int, end: int, o: int, t: int, in_ours: dict[int, int], in_theirs: dict[int, int]
) -> tuple[int, int]:
    """Where in ``base[start:end]`` a statement can stand that both sides added; empty when they differ."""
    low = max(
        [n + 1 for n in range(start, end) if in_ours.get(n, o) < o or in_theirs.get(n, t) < t], default=start
    )
    high = min(
        [n for n in range(start, end) if in_ours.get(n, o) > o or in_theirs.get(n, t) > t], default=end
    )
    return low, high


def _take_agreed(
    base: list[Statement], version: Sequence[Statement], ours: Sequence[Statement], *, runs: bool
) -> list[Statement]:
    """``base`` with what ours shares with ``version``: whole runs, or only parts of statements."""
    in_base, in_version = dict(align(base, ours)), dict(align(version, ours))
    same = dict(align(base, version))
    base = [_indent_agreed(base, i, version, same, ours, in_base) for i in range(len(base))]
    out: list[Statement] = []
    place = 0
    for change in fine_changes(base, version):
        out += base[place : change.a0]
        have = [n for n in range(change.a0, change.a1) if weight(base[n].key) >= _TELLING]
        offer = [n for n in range(change.b0, change.b1) if weight(version[n].key) >= _TELLING]
        # What base explains already is no sign of the other version.
        explained = {o for n, o in in_base.items() if not change.a0 <= n < change.a1}
        agrees = (
            (runs or bool(have and offer))
            and bool(have or offer)
            and all(n in in_version and in_version[n] not in explained for n in offer)
            and not any(n in in_base for n in have)
            and _context_is_kept(change.a0, change.a1, len(base), in_base)
        )
        if agrees:
            shift = _shift_before(base, version, same, change)
            out += [statement.shifted(shift) for statement in version[change.b0 : change.b1]]
        elif change.a1 - change.a0 == change.b1 - change.b0 == 1:
            out.append(_agreed_statement(base[change.a0], version[change.b0], ours))
        else:
            out += base[change.a0 : change.a1]
        place = change.a1
    return out + base[place:]


def _agreed_statement(base: Statement, version: Statement, ours: Sequence[Statement]) -> Statement:
    """``base`` with the arguments of ``version`` that ours' form of the statement has."""
    forms = [] if any(s.key == base.key for s in ours) else [s for s in ours if resembles(s, base)]
    if not forms or base.is_header != version.is_header:
        return base
    closest = max(forms, key=lambda form: similarity(form.key, base.key))
    key = agreed_version(base.key, version.key, closest.key)
    return base if key == base.key else replace(base, key=key, lines=tuple(key.split("\n")))


def _indent_agreed(base, number, version, same, ours, in_base) -> Statement:
    """The statement at the depth of ``version`` when ours has it there too."""
    statement = base[number]
    if number in same and number in in_base:
        indent = version[same[number]].indent
        if ours[in_base[number]].indent == indent != statement.indent:
            return statement.shifted(indent - statement.indent)
    return statement


def _shift_before(
    base: Sequence[Statement], version: Sequence[Statement], same: dict[int, int], change: Change
) -> int:
    """How much deeper base stands than ``version`` at the last common statement before a change."""
    before = [i for i, j in same.items() if i < change.a0 and j < change.b0]
    return base[max(before)].indent - version[same[max(before)]].indent if before else 0


def _drop_unseen(
    base: list[Statement], older: Sequence[Statement], ours: Sequence[Statement]
) -> list[Statement]:
    """``base`` less what it added to ``older`` and ours never had.

    Such statements were not dropped by omni: the copy was made before upstream added them.
    """
    known = {statement.key for statement in older}
    kept = {s.key for s in base} & {s.key for s in ours}
    own = [s for s in ours if s.key not in kept]
    out: list[Statement] = []
    place = 0
    for change in fine_changes(base, ours):
        run = base[change.a0 : change.a1]
        telling = [s.key for s in run if weight(s.key) >= _TELLING]
        unseen = (
            bool(telling)
            and known.isdisjoint(telling)
            and _whole_blocks(base, change.a0, change.a1)
            and not any(resembles(mine, s) for mine in own for s in run if s.key in telling)
        )
        out += base[place : change.a0] + ([] if unseen else run)
        place = change.a1
    return out + base[place:]


def _whole_blocks(side: Sequence[Statement], start: int, end: int) -> bool:
    """Whether ``side[start:end]`` can go and what is left still is Python."""
    top = min(s.indent for s in side[start:end])
    after = side[end].indent if end < len(side) else 0
    emptied = start > 0 and side[start - 1].is_header and after <= side[start - 1].indent
    continued = end < len(side) and CONTINUES.match(side[end].key) and after >= top
    starts_block = side[start].indent == top and not CONTINUES.match(side[start].key)
    return starts_block and after <= top and not emptied and not continued


def _context_is_kept(start: int, end: int, length: int, in_ours: dict[int, int]) -> bool:
    """Whether ours still has what stands around a place (else omni dropped the region)."""
    before = start == 0 or start - 1 in in_ours
    after = end == length or end in in_ours
    return before and after
