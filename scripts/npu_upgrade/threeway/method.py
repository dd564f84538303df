"""Three-way merge of one method, statement by statement.

``base`` is the upstream text the method was copied from, ``ours`` the method as it is
now (with omni logic), ``theirs`` the upstream text to move to. Two guards stand behind
the merge: its result must be Python, and must read no local name that nothing defines.
A decision that breaks one of them becomes a conflict.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from npu_upgrade.code.flow import LEAVES
from npu_upgrade.code.statements import CONTINUES, Statement, render
from npu_upgrade.code.uses import defines, free_names, reads
from npu_upgrade.threeway.blocks import enclosing_block, whole_block
from npu_upgrade.threeway.carried import carry_arguments
from npu_upgrade.threeway.duplicates import drop_asserts, drop_duplicates
from npu_upgrade.threeway.nearest_base import add_ported
from npu_upgrade.threeway.parted import fields_set, parted, with_resets
from npu_upgrade.threeway.pieces import Conflict, Flag, MergedMethod, Piece, contest, resolved, syntax_error
from npu_upgrade.threeway.renaming import follow_renames
from npu_upgrade.threeway.shifts import headers, parents
from npu_upgrade.threeway.statements import Context, Place, Restrictions, ThreeWay
from npu_upgrade.threeway.trees import parse_statement

_MAX_ROUNDS = 40
_LEAVES_OUT = ("held", "replaced")
_LEFT_OUT = "upstream's new text reads a name whose definition ours had dropped, and is left out"
_SET_BACK = "upstream sets {} back here, which is set above again; ours had cut out both, and both are taken"
_AS_ANSWERED = "; where a conflict is answered without what sets it, take this out"
_NOWHERE = (
    "upstream's new text would stand behind what always leaves, for its block is elsewhere, and is left out"
)


def merge_method(
    base: Sequence[Statement],
    ours: Sequence[Statement],
    theirs: Sequence[Statement],
    context: Context | None = None,
) -> MergedMethod:
    """Merge one method (or class body), each version given as its statements."""
    base, ours = follow_renames(base, ours, theirs)
    sides = (add_ported(base, ours, theirs), ours, list(theirs))
    run = _Runner(sides, context or Context())
    merged = run(Restrictions())
    for _ in range(_MAX_ROUNDS):
        restrictions = run.repair(merged)
        if restrictions is None:
            pieces, twice = drop_duplicates(merged.pieces, base, ours, theirs)
            pieces = run.contest_readers(run.kept_together(drop_asserts(pieces, ours, theirs)))
            pieces = carry_arguments(base, ours, theirs, pieces, run.fits)
            flags = (*merged.flags, *run.left_out(merged), *twice)
            flags += (*run.unbound(pieces), *run.misplaced(pieces))
            have = {one.key for one in resolved(pieces, "ours")}
            taken = {flag for flag, new in merged.passed_over.items() if new <= have}
            left = [flag for flag in flags if flag not in taken]
            grown, put = with_resets(base, ours, theirs, pieces)
            if put:
                whole = merge_method(base, grown, theirs, context)
                reason = _SET_BACK.format(" and ".join(fields_set(put)))
                reason += _AS_ANSWERED if whole.conflicts else ""
                flag = Flag("rewritten", reason, "", "", render(put))
                return replace(whole, flags=(*whole.flags, flag))
            halves = parted(base, ours, theirs, pieces)
            return MergedMethod(tuple(pieces), _with_halves(left, halves), merged.automatic)
        merged = run(restrictions)
    whole = Conflict(*map(tuple, sides), "the versions do not combine statement by statement")
    return MergedMethod((whole,))


class _Runner:
    def __init__(self, sides: tuple[list[Statement], ...], context: Context) -> None:
        self.sides = sides
        self.context = context
        self.known_unbound = free_names(sides[1]) | free_names(sides[2])
        self.known = {statement.key for side in sides[:2] for statement in side}  # all else is new
        self.never_run: frozenset[int] = frozenset()

    def __call__(self, restrictions: Restrictions) -> ThreeWay:
        base, ours, _ = self.sides
        theirs = [self.sides[2][number] for number in self._taken(restrictions)]
        return ThreeWay(base, ours, theirs, context=self.context, restrictions=restrictions).run()

    def _taken(self, restrictions: Restrictions) -> list[int]:
        """The numbers of upstream's statements that take part."""
        return [number for number in range(len(self.sides[2])) if number not in restrictions.left_out]

    def repair(self, merged: ThreeWay) -> Restrictions | None:
        """What to forbid so that the next run is nearer to a good result; None when it is one."""
        broken = syntax_error(merged.pieces)
        if broken is not None and self.context.vain and any(flag.kind == "vain" for flag in merged.flags):
            self.context = replace(self.context, vain=None)
            return merged.restrictions
        if broken is not None:
            return self._refuse_overlaps(merged) or self._contest_block(merged, broken)
        limits = self._restore_definitions(merged) or self._keep_calls(merged)
        return limits or self._contest_renamed(merged) or self._leave_out_unreachable(merged)

    def _refuse_overlaps(self, merged: ThreeWay) -> Restrictions | None:
        """Refuse as few combined overlaps as it takes; None when that is not enough."""
        limits = merged.restrictions
        fresh = sorted(merged.overlaps - limits.refused)
        everything = replace(limits, refused=limits.refused | set(fresh))
        if not fresh or syntax_error(self(everything).pieces) is not None:
            return None
        kept = everything
        for place in fresh:
            fewer = replace(kept, refused=kept.refused - {place})
            if syntax_error(self(fewer).pieces) is None:
                kept = fewer
        return kept

    def _contest_block(self, merged: ThreeWay, broken: int) -> Restrictions:
        """Leave the block around a syntax error to a person; wider when that did not help."""
        limits = merged.restrictions
        end = max(merged.origins[broken][1], 1)
        place = enclosing_block(merged.base, end - 1, end)
        while any(a <= place[0] and place[1] <= b for a, b in limits.contested):
            place = enclosing_block(merged.base, *place)
            if place == (0, len(merged.base)):
                break
        return replace(limits, contested=limits.contested | {place})

    def fits(self, key: str) -> bool:
        """Whether the calls of a statement fit what they call."""
        return self.context.misfit is None or not any(map(self.context.misfit, _calls(key)))

    def unbound(self, pieces: Sequence[Piece]) -> Iterator[Flag]:
        """A flag for each name that is read outside of conflicts and has no value with one answer to them."""
        sides = [resolved(pieces, side) for side in ("ours", "theirs")]
        lost = set().union(*map(free_names, sides)) - self.known_unbound
        disputed = [piece for piece in pieces if isinstance(piece, Conflict)]
        lost -= defines(s.key for c in disputed for s in (*c.base, *c.ours, *c.theirs))
        plain = [piece for piece in pieces if isinstance(piece, Statement)]
        for name in sorted(lost & reads(s.key for s in plain)):
            text = next(s.code for s in plain if name in reads([s.key]))
            yield Flag("unbound", f"nothing gives {name} a value any more, and this reads it", "", text, text)

    def contest_readers(self, pieces: Sequence[Piece]) -> list[Piece]:
        """``pieces`` with upstream's new text left to a person where it reads what nothing gives a value."""
        lost = free_names(resolved(pieces, "theirs")) - self.known_unbound
        own = {statement.key for statement in self.sides[1]}
        out = list(pieces)
        place = 0
        while place < len(out):
            piece = out[place]
            if isinstance(piece, Statement) and piece.key not in own and (names := reads([piece.key]) & lost):
                told = ", ".join(sorted(names))
                reason = f"nothing gives {told} a value here, and upstream's new text reads it"
                contest(out, place, place + 1, reason)
            place += 1
        return out

    def misplaced(self, pieces: Sequence[Piece]) -> Iterator[Flag]:
        """A flag where upstream's new statements stand outside of the block that upstream has them in."""
        theirs = self.sides[2]
        blocks: dict[str, set[str]] = {}
        for statement, header in zip(theirs, parents(theirs), strict=True):
            blocks.setdefault(statement.key, set()).update([] if header is None else [theirs[header].key])
        merged = resolved(pieces, "theirs")
        here, above = {statement.key for statement in merged}, parents(merged)
        inside = False
        for number, statement in enumerate(merged):
            new = statement.key not in self.known and statement.key in blocks
            block = blocks[statement.key] if new and not inside else set()
            inside = new
            if block and block <= here and not block & {merged[one].key for one in headers(above, number)}:
                where = " or ".join(sorted(block))
                reason = f"upstream has this in the block of `{where}`, which is elsewhere here"
                yield Flag("placed", reason, "", statement.code, statement.code)

    def _restore_definitions(self, merged: ThreeWay) -> Restrictions | None:
        """Bring back what defines a name that is still read; where that fails, ask a person."""
        limits = merged.restrictions
        lost = free_names(resolved(merged.pieces, "ours")) - self.known_unbound
        if self.context.takes_new:  # what theirs of a conflict defines may be read: the answer is looked at
            lost &= free_names(resolved(merged.pieces, "theirs"))
        if not lost:
            return None
        if not lost <= limits.wanted:
            return replace(limits, wanted=limits.wanted | lost)
        fresh = {place for place, names in merged.dropped.items() if names & lost} - limits.contested
        if fresh:
            return replace(limits, contested=limits.contested | fresh)
        if unreadable := self._unreadable(merged, lost & free_names(resolved(merged.pieces, "theirs"))):
            return replace(limits, left_out=limits.left_out | unreadable)
        readers = self._readers(merged, lost)
        changed = {(start, end) for start, end in readers if start < end} - limits.held
        # What a conflict's other side defines is not gone: who answers that conflict decides on its readers.
        asked = self._readers(merged, lost - free_names(resolved(merged.pieces, "theirs"))) & changed
        if asked - limits.contested:
            return replace(limits, contested=limits.contested | asked, held=frozenset())
        if changed:
            return replace(limits, held=limits.held | changed)
        fresh = {(start, max(end, start + 1)) for start, end in readers} - limits.contested
        return replace(limits, contested=limits.contested | fresh) if fresh else None

    def _unreadable(self, merged: ThreeWay, lost: set[str]) -> set[int]:
        """Upstream's new statements that read a name that is lost, by their numbers, with their blocks.

        Those with what stands for a statement of base among them are not: that is changed, and not new.
        """
        taken = self._taken(merged.restrictions)
        changed = {taken[number] for number in merged.places(merged.theirs, merged.mate_theirs).values()}
        own = {statement.key for statement in self.sides[1]}
        here = {piece.key for piece in merged.pieces if isinstance(piece, Statement)} - own
        theirs = self.sides[2]
        todo = [one for one in taken if theirs[one].key in here and reads([theirs[one].key]) & lost]
        found: set[int] = set()
        for number in todo:
            if number not in found:
                left = [one for one in taken if one not in found]
                block = {left[at] for at in whole_block([theirs[one] for one in left], left.index(number))}
                found |= block if not changed & block else set()
        return found

    def _leave_out_unreachable(self, merged: ThreeWay) -> Restrictions | None:
        """Leave out what is new of upstream's and came to stand behind a statement that always leaves.

        Not what stands there in upstream's own text.
        """
        keys: set[str] = set()
        pairs = itertools.pairwise(self.sides[2])
        upstreams = {after.key for before, after in pairs if _never_runs(after, [before])}
        for number, (before, piece) in enumerate(itertools.pairwise(merged.pieces), 1):
            if not isinstance(before, Statement) or not isinstance(piece, Statement):
                continue
            if piece.key not in self.known | upstreams and _never_runs(piece, [before]):
                for one in merged.pieces[number:]:
                    if not isinstance(one, Statement) or one.indent < piece.indent or one.key in self.known:
                        break
                    keys.add(one.key)
        fresh = {n for n in self._taken(merged.restrictions) if self.sides[2][n].key in keys}
        self.never_run |= fresh
        limits = merged.restrictions
        return replace(limits, left_out=limits.left_out | fresh) if fresh else None

    def kept_together(self, pieces: Iterable[Piece]) -> list[Piece]:
        """``pieces`` with what follows a conflict in it where that would never run with ours.

        Where theirs comes in as a whole, with all that follows at once and belongs to it: other conflicts,
        and what is new and reads a name that nothing gives a value with ours.
        """
        whole = self.context.takes_new
        out: list[Piece] = []
        depth: int | None = None  # of what never runs with ours
        for piece in pieces:
            last = out[-1] if out else None
            if isinstance(last, Conflict) and isinstance(piece, Conflict) and whole:
                sides = (getattr(last, side) + getattr(piece, side) for side in ("base", "ours", "theirs"))
                out[-1] = Conflict(*sides, last.reason)
            elif isinstance(last, Conflict) and isinstance(piece, Statement) and piece.key not in self.known:
                before = resolved(out, "ours")
                if depth is None or piece.indent < depth:
                    depth = piece.indent if _never_runs(piece, before) else None
                belongs = depth is not None or (whole and self._unbinds(piece, before))
                out[-1:] = [replace(last, theirs=(*last.theirs, piece))] if belongs else [last, piece]
            else:
                depth = None
                out.append(piece)
        return out

    def _unbinds(self, statement: Statement, before: Sequence[Statement]) -> bool:
        """Whether a statement reads a name that nothing gives a value where these stand before it."""
        return bool(free_names([*before, statement]) - free_names(before) - self.known_unbound)

    def left_out(self, merged: ThreeWay) -> Iterator[Flag]:
        """A flag for each run of upstream's new statements that take no part."""
        theirs, numbers = self.sides[2], merged.restrictions.left_out
        for first in sorted(number for number in numbers if number - 1 not in numbers):
            last = next(number for number in range(first, len(theirs) + 1) if number not in numbers)
            reason = _NOWHERE if first in self.never_run else _LEFT_OUT
            yield Flag("held", reason, "", "", render(theirs[first:last]))

    def _keep_calls(self, merged: ThreeWay) -> Restrictions | None:
        """Keep omni's version where upstream's call no longer fits omni's own function."""
        limits, misfit = merged.restrictions, self.context.misfit
        if misfit is None:
            return None
        own = {statement.key for statement in self.sides[1]}
        known = {misfit(call) for key in own for call in _calls(key)} | {""}
        fresh = {
            origin
            for piece, origin in zip(merged.pieces, merged.origins, strict=True)
            if isinstance(piece, Statement)
            and piece.key not in own
            and origin[0] < origin[1]
            and not known.issuperset(map(misfit, _calls(piece.key)))
        }
        return replace(limits, unfit=limits.unfit | fresh) if fresh - limits.unfit else None

    def _contest_renamed(self, merged: ThreeWay) -> Restrictions | None:
        """Ask also about a combined statement that binds another name than a conflict's side reads."""
        limits, (_, *texts) = merged.restrictions, self.sides
        conflicts = [piece for piece in merged.pieces if isinstance(piece, Conflict)]
        needed = [reads(s.key for c in conflicts for s in getattr(c, side)) for side in ("ours", "theirs")]
        fresh = set()
        for piece, (start, end) in zip(merged.pieces, merged.origins, strict=True):
            mates = (merged.mate_ours, merged.mate_theirs)
            if not isinstance(piece, Statement) or end - start != 1 or any(start not in one for one in mates):
                continue
            keys = [text[one[start]].key for text, one in zip(texts, mates, strict=True)]
            lost = [defines([key]) - defines([piece.key]) for key in keys]
            if piece.key not in keys and any(a & b for a, b in zip(lost, needed, strict=True)):
                fresh.add((start, end))
        return replace(limits, contested=limits.contested | fresh) if fresh - limits.contested else None

    def _readers(self, merged: ThreeWay, lost: set[str]) -> set[Place]:
        """Where upstream's text came in that reads a name whose definition omni had dropped."""
        own = {statement.key for statement in self.sides[1]}
        return {
            origin
            for piece, origin in zip(merged.pieces, merged.origins, strict=True)
            if isinstance(piece, Statement) and piece.key not in own and reads([piece.key]) & lost
        }


def _never_runs(statement: Statement, before: Sequence[Statement]) -> bool:
    """Whether a statement stands behind one of its block that always leaves."""
    last = before[-1] if before else None
    follows = last is not None and last.indent == statement.indent and not CONTINUES.match(statement.key)
    return follows and LEAVES.match(last.key) is not None


def _with_halves(flags: Sequence[Flag], halves: Iterable[Flag]) -> tuple[Flag, ...]:
    """The flags and those of halves; what a flag shows as left out is told with it, and asked once."""
    found = list(flags)
    for half in halves:
        lines = _lines(half.theirs)
        shown = (n for n, one in enumerate(found) if one.kind in _LEAVES_OUT and lines <= _lines(one.theirs))
        if (number := next(shown, None)) is None:
            found.append(half)
        else:
            found[number] = replace(found[number], reason=f"{found[number].reason}; {half.reason}")
    return tuple(found)


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.split("\n")}


def _calls(key: str) -> Iterator[ast.Call]:
    """The calls in one statement."""
    tree = parse_statement(key)
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree else iter(())


__all__ = ["Context", "Place", "merge_method"]
