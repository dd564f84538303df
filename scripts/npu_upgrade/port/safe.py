"""Whether a unit with hunks in it is as safe as it was: values, guards, buffers and markers.

The merge puts statements where the unit has their neighbours. That the unit then reads what has no
value, runs a statement without its condition (or under another one), or sizes a buffer by something
else shows only on the whole unit.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from npu_upgrade.code.flow import Guards, conditions, guards_of, may_be_unbound
from npu_upgrade.code.sequences import Change
from npu_upgrade.code.statements import Statement, nodes_of
from npu_upgrade.code.uses import defines, free_names, uses
from npu_upgrade.lineage.marker_places import is_fence
from npu_upgrade.port.unit_diff import UnitDiff


@dataclass(frozen=True)
class Unsafe:
    """Why hunks are not safe; ``lacks`` are the names, tests or ``self.`` attributes that it takes."""

    reason: str
    lacks: frozenset[str] = frozenset()

    def is_cured_by(self, added: Iterable[str]) -> bool:
        """Whether statements that come bring something of what is lacking."""
        keys = list(added)
        given = defines(keys).union(
            *(below | otherwise for below, otherwise in filter(None, map(conditions, keys)))
        )
        given |= {f"self.{name}" for key in keys for name in attributes_of(key, ast.Store)}
        return bool(self.lacks & given)


def unsafe(
    pieces: Sequence[Change], diff: UnitDiff, ours: Sequence[Statement], result: Sequence[Statement]
) -> Unsafe | None:
    """What is wrong with a unit (``ours``) that has some pieces (``result``); None when nothing is."""
    # a name that the GPU unit itself may leave without a value is guarded in ways that no path shows
    names = may_be_unbound(result) - may_be_unbound(ours) - may_be_unbound(diff.new)
    names |= (free_names(result) - free_names(ours)) & defines(s.key for s in diff.new)
    if names:
        return Unsafe(f"{', '.join(sorted(names))} may have no value where this reads it", frozenset(names))
    return _lost_guard(pieces, diff, ours, result) or _split_buffer(pieces, diff, result)


def _lost_guard(
    pieces: Sequence[Change], diff: UnitDiff, ours: Sequence[Statement], result: Sequence[Statement]
) -> Unsafe | None:
    """A statement that comes and does not run on the conditions of the GPU side."""
    there, here, before = guards_of(diff.new), guards_of(result), guards_of(ours)
    # a condition that the GPU side had before and the unit spells in another way
    own_way = _tests(guards_of(diff.old)) - _tests(before)
    came = Counter(s.key for s in result) - Counter(s.key for s in ours)
    gone = {s.key for piece in pieces for s in diff.old[piece.a0 : piece.a1]}
    for number in sorted({n for piece in pieces for n in range(piece.b0, piece.b1)}):
        key = diff.new[number].key
        near = gone | {diff.new[n].key for n in _block(diff.new, number)}
        taken = {test for s, known in zip(ours, before, strict=True) if s.key in near for test in known.above}
        places = [n for n, s in enumerate(result) if s.key == key] if came[key] else []
        reasons = [
            _missing_guard(diff.new[number], there[number], here[n], own_way)
            or _other_guard(there[number], here[n], taken)
            for n in places
        ]
        if reasons and all(reasons):
            return reasons[0]
    return None


def _tests(guards: Sequence[Guards]) -> set[str]:
    return set().union(*(one.above | one.passed for one in guards))


def _missing_guard(statement: Statement, wanted: Guards, given: Guards, own_way: set[str]) -> Unsafe | None:
    have = given.above | given.passed | own_way
    lost = wanted.above - have
    # an earlier branch that left guards what speaks of the same names
    names = uses(statement.key).reads - {"self"}
    lost |= {test for test in wanted.passed - have if names & set(re.findall(r"\w+", test))}
    return Unsafe(f"it would run without its guard: {min(lost)}", lost) if lost else None


def _other_guard(wanted: Guards, given: Guards, near: set[str]) -> Unsafe | None:
    more = given.above - wanted.above - wanted.passed - near
    return Unsafe(f"it would run under another condition: {min(more)}") if more else None


def _block(side: Sequence[Statement], number: int) -> Iterator[int]:
    """The statements of the block that one stands in."""
    for step in (-1, 1):
        at = number + step
        while 0 <= at < len(side) and side[at].indent >= side[number].indent:
            if side[at].indent == side[number].indent:
                yield at
            at += step


def _split_buffer(pieces: Sequence[Change], diff: UnitDiff, result: Sequence[Statement]) -> Unsafe | None:
    """A buffer that does not have the size that a piece sets."""
    came = [s.key for piece in pieces for s in diff.new[piece.b0 : piece.b1]]
    sizes = {name for key in came for name in attributes_of(key, ast.Store)}
    sized = [
        (s.key, attributes_of(s.key, ast.Store), sizes & attributes_of(s.key, ast.Load)) for s in diff.new
    ]
    now = [(attributes_of(s.key, ast.Store), attributes_of(s.key, ast.Load)) for s in result]
    for key, buffers, by in sized:
        for buffer in buffers - by if "(" in key and by else ():
            made = [read for stored, read in now if buffer in stored]
            if made and not any(by <= read for read in made):
                what = f"the NPU side makes {buffer} without self.{min(by)}"
                return Unsafe(what, frozenset({f"self.{buffer}"}))
    return None


@functools.lru_cache(maxsize=8192)
def attributes_of(key: str, context: type[ast.expr_context]) -> frozenset[str]:
    """The attributes of ``self`` that a statement reads or binds."""
    return frozenset(
        node.attr
        for node in nodes_of(key)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, context)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def with_paired_fences(ours: Sequence[Statement], result: Sequence[Statement]) -> list[Statement]:
    """The result less the fence that came without its other half."""
    if _fences(result) % 2 == 0 or _fences(ours) % 2:
        return list(result)
    known = Counter(c.text for s in ours for c in s.comments)
    fresh = Counter(c.text for s in result for c in s.comments if is_fence(c.text)) - known
    out: list[Statement] = []
    for statement in result:
        odd = [c for c in statement.comments if fresh[c.text] and is_fence(c.text)][:1]
        fresh -= Counter({c.text: fresh[c.text] for c in odd})
        out.append(replace(statement, comments=tuple(c for c in statement.comments if c not in odd)))
    return out


def _fences(side: Sequence[Statement]) -> int:
    return sum(is_fence(comment.text) for statement in side for comment in statement.comments)
