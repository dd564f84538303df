"""Which statement of one version of a method is which statement of another."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from npu_upgrade.code.sequences import Change, Pair, changes, patience, similarity
from npu_upgrade.code.statements import CONTINUES, Statement

SIMILAR = 0.6
"""From this share of common text on, two statements count as versions of one another."""

_SIMILAR_ELSEWHERE = 0.8
_MAX_CELLS = 4000
Form = tuple[str, int]  # the key and the indent of a statement
_WORDS = {"return", "raise", "assert", "del", "import", "from", "yield", "await", "global", "pass"}
_FIRST_WORD = re.compile(r"^@?\w*")
_ASSIGNMENT = re.compile(r"[^=(\"']*[^=(\"'!<>]=[^=]|[^=(\"']*: ")


def align(base: Sequence[Statement], side: Sequence[Statement]) -> list[Pair]:
    """Pairs of equal statements, first at the same indent, then re-indented runs.

    Where a large part was re-indented, a line can happen to stand at another one's old depth
    and pull the two apart; then statements are paired whatever their depth.
    """
    by_depth = _align_by_depth(base, side)
    if len(by_depth) == min(len(base), len(side)):
        return by_depth
    any_depth = _solid_runs(patience([s.key for s in base], [s.key for s in side]), base, side)
    best = max(by_depth, any_depth, key=lambda pairs: sum(weight(base[i].key) for i, _ in pairs))
    return _less_foreign_branches(best, base, side)


def _less_foreign_branches(
    pairs: list[Pair], base: Sequence[Statement], side: Sequence[Statement]
) -> list[Pair]:
    """``pairs`` without the ``else:`` of one block that was paired with that of another one."""
    mates = dict(pairs)
    paired = {*mates.values()}

    def fits(i: int, j: int) -> bool:
        a, b = _opener(base, i), _opener(side, j)
        if a is None or b is None:
            return False
        free = a not in mates and b not in paired
        return mates.get(a) == b or (free and resembles(base[a], side[b]))

    return [(i, j) for i, j in pairs if not CONTINUES.match(base[i].key) or fits(i, j)]


def _opener(side: Sequence[Statement], number: int) -> int | None:
    """The header of the first branch of the block that a branch belongs to."""
    indent = side[number].indent
    for before in range(number - 1, -1, -1):
        one = side[before]
        if one.indent < indent:
            break
        if one.indent == indent and not CONTINUES.match(one.key):
            return before
    return None


def _align_by_depth(base: Sequence[Statement], side: Sequence[Statement]) -> list[Pair]:
    pairs = patience([(s.indent, s.key) for s in base], [(s.indent, s.key) for s in side])
    found = list(pairs)
    for gap in changes(pairs, len(base), len(side)):
        if gap.a0 < gap.a1 and gap.b0 < gap.b1:
            inner = patience([s.key for s in base[gap.a0 : gap.a1]], [s.key for s in side[gap.b0 : gap.b1]])
            shifted = [(gap.a0 + i, gap.b0 + j) for i, j in inner]
            found += _solid_runs(shifted, base, side)
    return sorted(found)


def align_similar(a: Sequence[Statement], b: Sequence[Statement]) -> list[Pair]:
    """Monotone pairing of statements that maximises similarity; equal ones count most.

    Above :data:`_MAX_CELLS` pairs, equal keys are anchored first and only the gaps between
    them are paired by similarity.
    """
    old, new = (tuple((one.key, one.indent) for one in side) for side in (a, b))
    if len(old) * len(new) <= _MAX_CELLS:
        return [*_best_pairs(old, new)]
    exact = patience([key for key, _ in old], [key for key, _ in new])
    anchors = [(i, j) for i, j in exact if weight(old[i][0]) > 2]
    pairs = list(anchors)
    for gap in changes(anchors, len(old), len(new)):
        if (gap.a1 - gap.a0) * (gap.b1 - gap.b0) <= _MAX_CELLS:
            inner = _best_pairs(old[gap.a0 : gap.a1], new[gap.b0 : gap.b1])
            pairs += [(gap.a0 + i, gap.b0 + j) for i, j in inner]
    return sorted(pairs)


@functools.lru_cache(maxsize=4096)
def _best_pairs(a: tuple[Form, ...], b: tuple[Form, ...]) -> tuple[Pair, ...]:
    score = [[_score(x, y, at == here) for y, here in b] for x, at in a]
    best = [[0.0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        for j in range(len(b) - 1, -1, -1):
            both = best[i + 1][j + 1] + score[i][j] if score[i][j] else 0.0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], both)
    pairs: list[Pair] = []
    i = j = 0
    while i < len(a) and j < len(b):
        if score[i][j] and best[i][j] == best[i + 1][j + 1] + score[i][j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return tuple(pairs)


def fine_changes(a: Sequence[Statement], b: Sequence[Statement]) -> list[Change]:
    """What differs between two versions, with changed statements paired one to one."""
    pairs = align(a, b)
    similar: list[Pair] = []
    for gap in changes(pairs, len(a), len(b)):
        inner = align_similar(a[gap.a0 : gap.a1], b[gap.b0 : gap.b1])
        similar += [(gap.a0 + i, gap.b0 + j) for i, j in inner]
    found = changes(sorted(pairs + similar), len(a), len(b))
    found += [Change(i, i + 1, j, j + 1) for i, j in similar if a[i].key != b[j].key]
    return sorted(found)


def resembles(a: Statement, b: Statement) -> bool:
    """Whether two statements are about the same thing, wherever they stand."""
    subject = _subject(a.key)
    return (bool(subject) and subject == _subject(b.key)) or _similarity(a.key, b.key) >= SIMILAR


def weight(key: str) -> int:
    """How much a statement says: its number of words (``else:`` says little)."""
    return len(key.replace("(", " ").replace(".", " ").replace(",", " ").split())


@functools.lru_cache(maxsize=1 << 17)
def _score(a: str, b: str, as_deep: bool) -> float:
    if a == b:
        # A bare ``else:`` or ``return`` must not pull unrelated places together.
        return 1.5 + min(weight(a), 20) / 40 if weight(a) > 2 else 0.3
    ratio = _similarity(a, b)
    if ratio < SIMILAR and _subject(a) and _subject(a) == _subject(b):
        ratio = SIMILAR
    # At another depth only a near-equal statement counts as the same one.
    return ratio if ratio >= (SIMILAR if as_deep else _SIMILAR_ELSEWHERE) else 0.0


@functools.lru_cache(maxsize=65536)
def _similarity(a: str, b: str) -> float:
    return similarity(a, b, SIMILAR) if _kind(a) == _kind(b) else 0.0


def _kind(key: str) -> str:
    """The sort of statement: the word of a header, ``return`` and the like, assignment or call."""
    word = _FIRST_WORD.findall(key)[0]
    if key.endswith(":") or word in _WORDS:
        return word
    return "=" if _ASSIGNMENT.match(key) else "()"


def _subject(key: str) -> str:
    """What a definition or an assignment is about: its name or its targets."""
    if key.startswith(("def ", "class ", "async def ")):
        return key.partition("(")[0]
    target, equals, _ = key.partition(" = ")
    return target if equals and "(" not in target else ""


def _solid_runs(pairs: list[Pair], base: Sequence[Statement], side: Sequence[Statement]) -> list[Pair]:
    """Matches worth believing: what was not re-indented, and runs moved by one shift that say enough."""
    kept: list[Pair] = []
    run: list[Pair] = []

    def flush() -> None:
        telling = [weight(base[i].key) for i, _ in run]
        unmoved = bool(run) and _shift(run[0], base, side) == 0
        if unmoved or sum(words > 3 for words in telling) >= 2 or (telling and max(telling) >= 6):
            kept.extend(run)
        run.clear()

    for i, j in pairs:
        if run and _shift(run[-1], base, side) != _shift((i, j), base, side):
            flush()
        run.append((i, j))
    flush()
    return kept


def _shift(pair: Pair, base: Sequence[Statement], side: Sequence[Statement]) -> int:
    return side[pair[1]].indent - base[pair[0]].indent
