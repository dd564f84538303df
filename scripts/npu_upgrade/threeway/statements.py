"""The three-way walk: pair the statements of three versions, decide, emit.

Edits of the two sides that do not overlap both apply. Where they overlap, statements are
paired by similarity and merged one by one; what cannot be decided becomes a conflict,
and what was decided on thin evidence carries a flag. Upstream's part comes first where
both sides add at one place, unless the names that are assigned and read say otherwise.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from npu_upgrade.code.flow import LEAVES
from npu_upgrade.code.sequences import Change, changes, longest_common
from npu_upgrade.code.statements import CONTINUES, END, Comment, Statement, render
from npu_upgrade.code.uses import defines, reads, rebinds
from npu_upgrade.threeway.align import align, align_similar, weight
from npu_upgrade.threeway.blocks import Span, block_starts, split_at_blocks
from npu_upgrade.threeway.comments import (
    lost_inline,
    merge_comments,
    own_comments,
    shift_comments,
    with_inline,
)
from npu_upgrade.threeway.commute import commute
from npu_upgrade.threeway.expressions import merge_statement, with_our_calls
from npu_upgrade.threeway.layout import as_lines
from npu_upgrade.threeway.pieces import Conflict, Flag, Piece
from npu_upgrade.threeway.renaming import are_alike
from npu_upgrade.threeway.shifts import agreed_depth, inherited_shifts, parents
from npu_upgrade.threeway.trees import parse_statement

Place = tuple[int, int]
"""A half-open range of base statements."""

_HELD = "upstream's new text reads a name whose definition ours had dropped; ours stays"
_UNFIT = "upstream changed the arguments of a call, and our own function takes other ones; ours stays"
_NAME = re.compile(r"[A-Za-z_]\w*")
_HEAD = re.compile(r"(?:async )?def (\w+)\(")
_CONSTANT = re.compile(r"[A-Za-z_]\w*(?:: [^=]+)? = (?:None|True|False|\d+|\[\]|\{\}|'[^']*')")
_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True)
class Context:
    """What the merge may know of the trees around the method.

    ``exists`` tells whether a name of base is anywhere in the trees merged into (None: not known);
    ``omni_names`` are the names that the runner file imports from omni itself; ``misfit`` tells why a
    call does not fit what it calls, where that is omni's own, ``never`` whether a condition cannot
    hold at the target, ``vain`` why ours of a conflict cannot run there. With ``takes_new`` what is new of
    theirs comes in also where ours had replaced or dropped what stands around it, or is asked about.
    """

    exists: Callable[[str], bool] | None = None
    omni_names: frozenset[str] = frozenset()
    misfit: Callable[[ast.Call], str] | None = None
    never: Callable[[ast.expr], bool] | None = None
    vain: Callable[[Conflict], str] | None = None
    takes_new: bool = False


@dataclass(frozen=True)
class Restrictions:
    """What the guards ask of the next run.

    ``refused`` overlaps are not combined, ``contested`` ranges are left to a person, and
    upstream's definitions of ``wanted`` names come in where omni's version stays. Ranges
    that are ``held`` stay as omni has them, and those that are ``unfit``: what they call does not take
    what upstream passes. Upstream's new statements that are ``left_out``, by their numbers, take no part.
    """

    refused: frozenset[Place] = frozenset()
    contested: frozenset[Place] = frozenset()
    wanted: frozenset[str] = frozenset()
    held: frozenset[Place] = frozenset()
    unfit: frozenset[Place] = frozenset()
    left_out: frozenset[int] = frozenset()

    def stays(self, place: Place) -> tuple[str, str] | None:
        """The kind and the reason of the flag where ours stays."""
        if place in self.held:
            return "held", _HELD
        return ("callee", _UNFIT) if place in self.unfit else None


@dataclass
class ThreeWay:
    """One run over one method; the results are in ``pieces``, ``flags`` and ``automatic``.

    ``origins`` holds the base range each piece stands for; ``overlaps`` the ranges that were
    combined by similarity; ``dropped`` the names assigned only in text that a decision
    left out, by the range it left them out at; ``passed_over`` what of upstream's is new where
    ours stays, by the flag that says so.
    """

    base: list[Statement]
    ours: list[Statement]
    theirs: list[Statement]
    context: Context
    restrictions: Restrictions
    pieces: list[Piece] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    origins: list[Place] = field(default_factory=list)
    overlaps: set[Place] = field(default_factory=set)
    dropped: dict[Place, set[str]] = field(default_factory=dict)
    passed_over: dict[Flag, set[str]] = field(default_factory=dict)
    automatic: int = 0
    _at: Place = (0, 0)
    _orphans: list[Comment] = field(default_factory=list)

    def run(self) -> ThreeWay:
        self._pair()
        places = self.places(self.ours, self.mate_ours), self.places(self.theirs, self.mate_theirs)
        self.base = agreed_depth(self.base, self.ours, self.theirs, *places)
        self.shift_ours = self._shifts(self.ours, self.mate_ours, self.mate_theirs, self.theirs)
        self.shift_theirs = self._shifts(self.theirs, self.mate_theirs, self.mate_ours, self.ours)
        place = 0
        for span, sides in self._clusters():
            self._emit_commons(place, span.b0)
            place, self._at = span.b1, (span.b0, span.b1)
            if told := self.restrictions.stays(self._at):
                self._keep_ours(span, *told)
            elif len(sides) == 2:
                self._decide(span)
            elif 0 in sides:
                self._take_ours(span)
            else:
                self._take_theirs(span)
        self._emit_commons(place, len(self.base))
        if self._orphans:
            self._emit(Statement(END, 0, ()))
        return self

    # -- pairing --

    def _pair(self) -> None:
        self.mate_ours = dict(align(self.base, self.ours))
        self.mate_theirs = dict(align(self.base, self.theirs))
        for start, end in self.restrictions.contested:
            self._unpair(start, end)
        for span, sides in self._clusters():
            if len(sides) == 2 and not self._is_contested(span):
                self._pair_similar(span)

    def _unpair(self, start: int, end: int) -> None:
        for number in range(start, end):
            self.mate_ours.pop(number, None)
            self.mate_theirs.pop(number, None)

    def _clusters(self) -> list[tuple[Span, set[int]]]:
        """The places where a side differs from base, with the sides that do."""
        mine = changes(sorted(self.mate_ours.items()), len(self.base), len(self.ours))
        other = changes(sorted(self.mate_theirs.items()), len(self.base), len(self.theirs))
        found: list[tuple[Span, set[int]]] = []
        for cluster in _group(mine, other, self._depth):
            start, end = min(e.a0 for e, _ in cluster), max(e.a1 for e, _ in cluster)
            ours = _side_range(start, end, [e for e, s in cluster if s == 0], self.mate_ours)
            theirs = _side_range(start, end, [e for e, s in cluster if s == 1], self.mate_theirs)
            sides = {side for _, side in cluster}
            sides |= {0} if self._rewords(start, end, self.mate_ours, self.ours) else set()
            sides |= {1} if self._rewords(start, end, self.mate_theirs, self.theirs) else set()
            found.append((Span(start, end, *ours, *theirs), sides))
        return found

    def _rewords(self, start: int, end: int, mates: dict[int, int], side: list[Statement]) -> bool:
        """Whether one side has changed the words of a statement of ``base[start:end]``."""
        return any(i in mates and side[mates[i]].key != self.base[i].key for i in range(start, end))

    def _depth(self, edit: Change, side: int) -> int:
        """The column at which the text of an edit begins."""
        new = self.theirs if side else self.ours
        return new[edit.b0].indent if edit.b0 < edit.b1 else self.base[edit.a0].indent

    def _pair_similar(self, span: Span) -> None:
        """Pair changed statements inside a place that both sides changed."""
        base, ours, theirs = self._run(span)
        if not base or _keys(ours) == _keys(theirs):
            return
        self._unpair(span.b0, span.b1)
        place = (span.b0, span.b1)
        self.overlaps.add(place)
        if place not in self.restrictions.refused:
            self.mate_ours |= _mates(base, ours, span.b0, span.o0)
            self.mate_theirs |= _mates(base, theirs, span.b0, span.t0)
            return
        # Its combination does not parse: go on block by block, or leave it to a person.
        for part in split_at_blocks(span, self.base, self.ours, self.theirs):
            self._pair_similar(part)

    def _shifts(
        self, side: list[Statement], own: dict, other: dict, other_side: list[Statement]
    ) -> list[int]:
        moved = {i: other_side[j].indent - self.base[i].indent for i, j in other.items()}
        # What replaces statements goes where the other side moved those.
        known = {j: moved[i] for i, j in self.places(side, own).items() if i in moved}
        return inherited_shifts(side, known)

    def places(self, side: list[Statement], mates: dict[int, int]) -> dict[int, int]:
        """The statement of a side that base's is there, or that stands in its place; by their numbers."""
        found = dict(mates)
        for edit in changes(sorted(mates.items()), len(self.base), len(side)):
            old, new = self.base[edit.a0 : edit.a1], side[edit.b0 : edit.b1]
            same = [s.indent for s in old] == [s.indent for s in new]
            pairs = [(n, n) for n in range(len(new))] if same else align_similar(old, new)
            found |= {edit.a0 + i: edit.b0 + j for i, j in pairs}
        return found

    def _is_contested(self, span: Span) -> bool:
        return any(a < span.b1 and span.b0 < b for a, b in self.restrictions.contested)

    # -- deciding --

    def _decide(self, span: Span) -> None:
        """Both sides changed this place; keep what is certain, flag what is likely."""
        base, ours, theirs = self._run(span)
        kept_ours = [i for i in range(span.b0, span.b1) if i in self.mate_ours]
        kept_theirs = [i for i in range(span.b0, span.b1) if i in self.mate_theirs]
        if _keys(ours) == _keys(theirs):
            self._take_ours(span)
        elif self._is_contested(span):
            self._split_tail(span, kept_ours)
        elif not theirs and not kept_ours:
            self._take_ours(span)
        elif not base:
            self._insert_both(span)
        elif self._only_dropped(kept_ours, span):
            self._flag(
                "rewritten",
                "upstream rewrote what ours had cut down; upstream's version is taken",
                base,
                ours,
                theirs,
            )
            self._take_theirs(span)
        elif not kept_ours and (kept_theirs or not ours):
            reason = "ours had replaced or dropped what upstream changed; ours stays"
            if not (self.context.takes_new and self._take_new(span)):
                self._keep_ours(span, "replaced", reason)
        elif self._only_inserted(kept_ours, span):
            self._insert_into_replaced(span, kept_ours)
        elif not self._take_with_our_calls(span):
            self._split_tail(span, kept_ours)

    def _take_with_our_calls(self, span: Span) -> bool:
        """Take upstream's text where all that ours has of its own there are calls in the place of others."""
        base, ours, theirs = self._run(span)
        keys = with_our_calls(_keys(base), _keys(ours), _keys(theirs))
        if keys is None:
            return False
        reason = "ours calls something else here, and so does upstream's new text now"
        self._flag("combined", reason, base, ours, theirs)
        self._hand_on(zip(range(span.b0, span.b1), range(span.o0, span.o1), strict=True))
        self._emit_theirs(span, keys)
        return True

    def _keep_ours(self, span: Span, kind: str, reason: str) -> None:
        base, ours, theirs = self._run(span)
        self._flag(kind, reason, base, ours, theirs)
        new = set(_keys(theirs)) - set(_keys(base))
        if new:
            self.passed_over[self.flags[-1]] = new
        self.automatic += max(1, len(new))
        self._drop(defines(_keys(theirs)) - defines(_keys(ours)))
        for number in range(span.t0, span.t1):
            statement = self.theirs[number]
            if not statement.is_header and defines([statement.key]) & self.restrictions.wanted:
                self._emit(statement.shifted(self.shift_theirs[number]))
                self.automatic += 1
        self._take_ours(span)

    def _take_new(self, span: Span) -> bool:
        """Put whole new blocks of upstream's beside what ours has in place of what stands around them.

        Upstream's first statements come before ours. A person is asked where a block is new in part only.
        Tells whether there was anything new.
        """
        base, ours, theirs = self._run(span)
        known = {*_keys(self.base), *_keys(self.ours)}
        starts = [*block_starts(self.theirs, span.t0, span.t1), span.t1]
        blocks = list(itertools.pairwise(starts))
        new = [[self.theirs[n].key not in known for n in range(*block)] for block in blocks]
        if not any(map(any, new)):
            return False
        changed = any(base[i].key != theirs[j].key for i, j in align_similar(base, theirs))
        if changed or any(any(one) and not all(one) for one in new):
            self._conflict(span, "theirs changed what ours had replaced or dropped")
            return True
        if ours or not all(map(all, new)):
            reason = "theirs has this beside what ours had replaced or dropped; check its place"
            self._flag("inserted", reason, base, ours, theirs)
        old = next((number for number, one in enumerate(new) if not all(one)), 0)
        for number, (start, end) in enumerate(blocks):
            if number == old:
                self._take_ours(span)
            if all(new[number]):
                self._take_theirs(Span(span.b0, span.b0, span.o0, span.o0, start, end))
        return True

    def _only_dropped(self, kept_ours: list[int], span: Span) -> bool:
        """Whether ours only left out statements here that upstream has dropped too."""
        unchanged = all(self.ours[self.mate_ours[i]].key == self.base[i].key for i in kept_ours)
        nothing_new = len(kept_ours) == span.o1 - span.o0 > 0
        left_out = [i for i in range(span.b0, span.b1) if i not in self.mate_ours]
        return unchanged and nothing_new and not any(i in self.mate_theirs for i in left_out)

    def _only_inserted(self, kept_ours: list[int], span: Span) -> bool:
        """Whether ours has all base statements of the place unchanged, and more."""
        unchanged = all(self.ours[self.mate_ours[i]].key == self.base[i].key for i in kept_ours)
        return unchanged and len(kept_ours) == span.b1 - span.b0

    def _insert_into_replaced(self, span: Span, kept_ours: list[int]) -> None:
        """Upstream replaced statements between which omni had inserted its own."""
        base, ours, theirs = self._run(span)
        mates = {self.mate_ours[i] for i in kept_ours}
        own = [o for o in range(span.o0, span.o1) if o not in mates]
        inserted = [self.ours[o] for o in own]
        if not theirs:
            self._keep_comments(span)
            self._take_numbers(own)
            return
        reason = "upstream replaced what stood around this code of ours; check its place"
        self._flag("inserted", reason, base, ours, theirs)
        first = _feeds(inserted, theirs) or (
            not _feeds(theirs, inserted) and 2 * (own[0] - span.o0) <= span.o1 - span.o0
        )
        # With its header gone, the code moves to the block that upstream put there.
        homeless = parents(self.ours)[own[0]] in mates
        shift = theirs[0].indent - inserted[0].indent if homeless else None
        if self._wraps_what_follows(span):
            first, shift = False, self.shift_ours[span.o1]
        if first:
            self._take_numbers(own, shift)
        self._take_theirs(span)
        if not first:
            self._take_numbers(own, shift)

    def _wraps_what_follows(self, span: Span) -> bool:
        """Whether upstream opened a block here that what follows moved into.

        Omni code of this place then goes inside with it.
        """
        opens = span.t0 < span.t1 and self.theirs[span.t1 - 1].is_header
        return opens and span.o1 < len(self.ours) and self.shift_ours[span.o1] > 0

    def _split_tail(self, span: Span, kept_ours: list[int]) -> None:
        """Leave out of the conflict what upstream added to the block before, and what omni
        only added behind the changed statements."""
        span = self._take_leading(span)
        base, ours, theirs = self._run(span)
        similar = _mates(base, ours, span.b0, span.o0).values()
        last = max([self.mate_ours[i] for i in kept_ours] + list(similar), default=span.o1 - 1)
        cut = _tail_start(self.ours, span.o0, last + 1, span.o1)
        head = replace(span, o1=cut)
        what = "upstream dropped what ours " + (
            "still reads" if _keys(base) == _keys(ours) else "had changed"
        )
        gone = self._gone(base, self.ours[span.o0 : cut])
        if not theirs and self._never_runs(self.ours[span.o0 : cut]):
            reason = "upstream dropped what ours runs with another version of upstream only; it goes"
            self._flag("dropped", reason, base, ours, theirs)
            self._drop(defines(_keys(ours)))
        elif not theirs and gone == []:
            self._keep_ours(head, "dropped", f"{what}; all it uses still exists, so it stays")
        elif not theirs:
            self._conflict(head, f"{what}; gone with it: {', '.join(gone)}" if gone else what)
        else:
            self._conflict(head, "both sides replaced these statements differently")
        self._take_numbers(range(cut, span.o1))

    def _never_runs(self, statements: Sequence[Statement]) -> bool:
        """Whether the statements are one block whose condition cannot hold at the target."""
        if not statements or self.context.never is None:
            return False
        head, *block = statements
        tree = parse_statement(head.key)
        return (
            isinstance(tree, ast.If)
            and not head.key.startswith("elif")
            and all(one.indent > head.indent for one in block)
            and self.context.never(tree.test)
        )

    def _take_leading(self, span: Span) -> Span:
        """Emit upstream's first statements where they still belong to the block before."""
        top = min(s.indent for s in self.base[span.b0 : span.b1])
        if self.base[span.b0].indent > top:  # what they stand for is in that block too
            return span
        known = {s.key for s in self.base[span.b0 : span.b1] if weight(s.key) > 2}
        cut = span.t0
        while cut < span.t1 and self.theirs[cut].indent > top and self.theirs[cut].key not in known:
            cut += 1
        if cut == span.t0 or (cut < span.t1 and self.theirs[cut].indent > top):
            return span
        self._take_theirs(Span(span.b0, span.b0, span.o0, span.o0, span.t0, cut))
        return replace(span, t0=cut)

    def _gone(self, base: Sequence[Statement], ours: Sequence[Statement]) -> list[str] | None:
        """The names of base's that ours reads and that are nowhere any more; None when that is not known."""
        if self.context.exists is None:
            return None
        names = [{n for s in side for n in _NAME.findall(_TEXT.sub("", s.key))} for side in (base, ours)]
        local = defines(s.key for s in (*self.base, *self.ours)) | set(keyword.kwlist)
        shared = (names[0] & names[1]) - local
        return sorted(name for name in shared if not self.context.exists(name))

    def _insert_both(self, span: Span) -> None:
        """Both sides added statements at one place: common ones once, upstream's first."""
        _, ours, theirs = self._run(span)
        ends = ours[-1], theirs[-1]
        if (
            ends[0].key != ends[1].key
            and ends[0].indent == ends[1].indent
            and all(LEAVES.match(end.key) for end in ends)
        ):
            self._conflict(span, "both sides added another end here")
            return
        if self._wraps_what_follows(span):
            reason = "upstream wrapped what follows this code of ours; check which side it belongs to"
            self._flag("both-added", reason, [], ours, theirs)
            self._take_theirs(span)
            self._take_numbers(range(span.o0, span.o1), self.shift_ours[span.o1])
            return
        if lead := _deeper(ours, theirs):
            self._take_numbers(range(span.o0, span.o0 + lead))
            self._insert_rest(replace(span, o0=span.o0 + lead))
            return
        if lead := _deeper(theirs, ours):
            self._take_theirs(replace(span, o1=span.o0, t1=span.t0 + lead))
            self._insert_rest(replace(span, t0=span.t0 + lead))
            return
        ours_first = _feeds(ours, theirs) and not _feeds(theirs, ours)
        i = j = 0
        for x, y in [*longest_common(_keys(ours), _keys(theirs)), (len(ours), len(theirs))]:
            later = self.theirs[span.t0 + y :]
            if i < x and are_alike(ours[i:x], theirs[j:y], later):
                j = y  # ours says the same in its own words
            elif i < x and j < y and not commute(ours[i:x], theirs[j:y]):
                reason = "both sides added statements at this place; check their order"
                self._flag("both-added", reason, [], ours[i:x], theirs[j:y])
            part = Span(span.b0, span.b0, span.o0 + i, span.o0 + x, span.t0 + j, span.t0 + y)
            if ours_first:
                self._take_ours(part)
            self._take_theirs(part)
            if not ours_first:
                self._take_ours(part)
            self._take_numbers(range(part.o1, min(part.o1 + 1, span.o1)))
            i, j = x + 1, y + 1

    def _insert_rest(self, span: Span) -> None:
        if span.o0 < span.o1 and span.t0 < span.t1:
            self._insert_both(span)
        else:
            self._take_theirs(span)
            self._take_ours(span)

    # -- emitting --

    def _emit_commons(self, start: int, end: int) -> None:
        for number in range(start, end):
            self._at = (number, number + 1)
            self._emit_common(number, self.mate_ours[number], self.mate_theirs[number])

    def _emit_common(self, i: int, o: int, t: int) -> None:
        base, ours, theirs = self.base[i], self.ours[o], self.theirs[t]
        if told := self.restrictions.stays((i, i + 1)):
            self._flag(*told, [base], [ours], [theirs])
            theirs = replace(theirs, key=base.key, lines=base.lines)
        merged = merge_statement(base.key, ours.key, theirs.key, self.context.omni_names)
        if merged is None:
            span = Span(i, i + 1, o, o + 1, t, t + 1)
            self._conflict(span, "both sides changed the same part of this statement")
            return
        key = merged.text
        self._drop(defines([ours.key]) - defines([key]))
        self.automatic += key != ours.key
        if merged.callee_kept:
            reason = f"upstream changed the arguments of the call that ours replaced by {merged.callee_kept}"
            self._flag("callee", reason, [base], [ours], [theirs])
        elif merged.dropped:
            reason = f"upstream changed what ours had dropped from this statement: {merged.dropped}"
            self._flag("combined", reason, [base], [ours], [theirs])
        elif merged.near and key not in (ours.key, theirs.key):
            reason = "both sides changed this statement; the changes were combined"
            self._flag("combined", reason, [base], [ours], [theirs])
        indent = max(0, ours.indent + theirs.indent - base.indent)
        comments = merge_comments(
            base.comments,
            shift_comments(ours.comments, indent - ours.indent),
            shift_comments(theirs.comments, indent - theirs.indent),
        )
        blanks = ours.blanks if ours.blanks != base.blanks else theirs.blanks
        lines = _lines(key, indent, base, ours, theirs)
        comments += lost_inline(base, ours, lines, indent)
        self._emit(Statement(key, indent, lines, blanks, comments))

    def _take_ours(self, span: Span) -> None:
        self._take_numbers(range(span.o0, span.o1))

    def _take_numbers(self, numbers: Iterable[int], shift: int | None = None) -> None:
        for number in numbers:
            self._emit(self.ours[number].shifted(self.shift_ours[number] if shift is None else shift))

    def _drop(self, names: set[str]) -> None:
        """Note that the text left out of the present place defines ``names``."""
        self.dropped.setdefault(self._at, set()).update(names)

    def _take_theirs(self, span: Span) -> None:
        """Upstream's text for this place; comments that ours had added there survive."""
        self._keep_comments(span)
        self._emit_theirs(span, _keys(self.theirs[span.t0 : span.t1]))

    def _emit_theirs(self, span: Span, keys: Sequence[str]) -> None:
        """Upstream's statements, written anew where they have another key."""
        _, ours, theirs = self._run(span)
        self._drop(defines(_keys(ours)) - defines(keys))
        for number, (one, key) in enumerate(zip(theirs, keys, strict=True), span.t0):
            statement = one.shifted(self.shift_theirs[number])
            if key != one.key:
                sides = (one.code, *(mine.code for mine in ours))
                statement = replace(statement, key=key, lines=as_lines(key, statement.indent, sides))
            self._emit(statement)
        self.automatic += max(span.b1 - span.b0, span.t1 - span.t0)

    def _keep_comments(self, span: Span) -> None:
        """Hand the comments that ours had added to base statements on to what comes next."""
        self._hand_on((i, self.mate_ours[i]) for i in range(span.b0, span.b1) if i in self.mate_ours)

    def _hand_on(self, pairs: Iterable[tuple[int, int]]) -> None:
        """The same of statements of base and those of ours in their places, by their numbers."""
        for i, o in pairs:
            kept = own_comments(self.base[i].comments, self.ours[o].comments)
            kept += lost_inline(self.base[i], self.ours[o], (), self.ours[o].indent)
            self._orphans += shift_comments(kept, self.shift_ours[o])

    def _emit(self, statement: Statement) -> None:
        if self._orphans:
            statement = replace(statement, comments=(*self._orphans, *statement.comments))
            self._orphans = []
        self._add(statement)

    def _conflict(self, span: Span, reason: str) -> None:
        span, tail = self._trim(span)
        ours = tuple(self.ours[n].shifted(self.shift_ours[n]) for n in range(span.o0, span.o1))
        theirs = tuple(self.theirs[n].shifted(self.shift_theirs[n]) for n in range(span.t0, span.t1))
        conflict = Conflict(tuple(self.base[span.b0 : span.b1]), ours, theirs, reason)
        vain = self.context.vain(conflict) if self.context.vain else ""
        if vain:
            self.flags.append(Flag("vain", vain, *conflict.texts()))
            for statement in theirs:
                self._emit(statement)
        else:
            self._add(conflict)
        for statement in tail:
            self._emit(statement)

    def _trim(self, span: Span) -> tuple[Span, list[Statement]]:
        """Emit what a conflict begins with and nobody has to decide; take off what all three end it with."""
        while True:
            if (same := self._agreed(span.b0, span.o0, span.t0, span)) is not None:
                self._emit(same)
            elif self._begins_alike(span):
                self._emit_common(span.b0, span.o0, span.t0)
            elif self._only_prepares(span):
                self._take_theirs(Span(span.b0, span.b0, span.o0, span.o0, span.t0, span.t0 + 1))
                span = replace(span, t0=span.t0 + 1)
                continue
            else:
                break
            span = replace(span, b0=span.b0 + 1, o0=span.o0 + 1, t0=span.t0 + 1)
        tail: list[Statement] = []
        while (same := self._agreed(span.b1 - 1, span.o1 - 1, span.t1 - 1, span)) is not None:
            tail.insert(0, same)
            span = replace(span, b1=span.b1 - 1, o1=span.o1 - 1, t1=span.t1 - 1)
        return span, tail

    def _begins_alike(self, span: Span) -> bool:
        """Whether all three begin one function here, whose heads combine."""
        if not (span.b0 < span.b1 and span.o0 < span.o1 and span.t0 < span.t1):
            return False
        heads = [self.base[span.b0], self.ours[span.o0], self.theirs[span.t0]]
        names = {match[1] if (match := _HEAD.match(head.key)) else None for head in heads}
        asked = (span.b0, span.b0 + 1) in self.restrictions.contested
        base, ours, theirs = _keys(heads)
        one = len(names) == 1 and None not in names and not asked
        return one and merge_statement(base, ours, theirs) is not None

    def _only_prepares(self, span: Span) -> bool:
        """Whether theirs begins with a constant in a name that is new to both others."""
        if not (span.o0 < span.o1 and span.t0 < span.t1):
            return False
        first = self.theirs[span.t0].shifted(self.shift_theirs[span.t0])
        level = self.ours[span.o0].indent + self.shift_ours[span.o0]
        if first.indent != level or not _CONSTANT.fullmatch(first.key):
            return False
        known = _keys([*self.base, *self.ours])
        return not defines([first.key]) & (reads(known) | defines(known))

    def _agreed(self, b: int, o: int, t: int, span: Span) -> Statement | None:
        """The statement that stands at these places on both sides as in base."""
        if not (span.b0 <= b < span.b1 and span.o0 <= o < span.o1 and span.t0 <= t < span.t1):
            return None
        ours, theirs = self.ours[o].shifted(self.shift_ours[o]), self.theirs[t].shifted(self.shift_theirs[t])
        if not self.base[b].key == ours.key == theirs.key or ours.indent != theirs.indent:
            return None
        return replace(ours, comments=merge_comments(self.base[b].comments, ours.comments, theirs.comments))

    def _add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.origins.append(self._at)

    def _flag(self, kind: str, reason: str, *sides: list[Statement]) -> None:
        self.flags.append(Flag(kind, reason, *(render(side) for side in sides)))

    def _run(self, span: Span) -> tuple[list[Statement], list[Statement], list[Statement]]:
        return self.base[span.b0 : span.b1], self.ours[span.o0 : span.o1], self.theirs[span.t0 : span.t1]


def _lines(key: str, indent: int, base: Statement, ours: Statement, theirs: Statement) -> tuple[str, ...]:
    """The layout of a merged statement: the side's that has it; ours' where only layout differs."""
    if key == ours.key:
        return ours.lines
    lines = theirs.lines if key == theirs.key else as_lines(key, indent, (ours.code, theirs.code))
    return with_inline(lines, base, ours, theirs)


def _keys(statements: Iterable[Statement]) -> list[str]:
    return [statement.key for statement in statements]


def _mates(base: list[Statement], side: list[Statement], b0: int, s0: int) -> dict[int, int]:
    return {b0 + i: s0 + j for i, j in align_similar(base, side)}


def _group(
    mine: list[Change], other: list[Change], depth: Callable[[Change, int], int]
) -> list[list[tuple[Change, int]]]:
    """Edits of both sides, grouped where they overlap or insert at one place."""
    edits = [(e, 0) for e in mine] + [(e, 1) for e in other]
    edits.sort(key=lambda item: (item[0].a0, item[0].a1, -item[1]))
    groups: list[list[tuple[Change, int]]] = []
    for edit, side in edits:
        if groups and any(s != side and _meet((edit, side), (e, s), depth) for e, s in groups[-1]):
            groups[-1].append((edit, side))
        else:
            groups.append([(edit, side)])
    return groups


def _meet(edit: tuple[Change, int], earlier: tuple[Change, int], depth: Callable[[Change, int], int]) -> bool:
    """Whether two edits are one place: they overlap, or the later one still belongs before the earlier."""
    same_start = edit[0].a0 == earlier[0].a0 == earlier[0].a1
    return _overlap(edit[0], earlier[0]) or (same_start and depth(*edit) > depth(*earlier))


def _overlap(a: Change, b: Change) -> bool:
    if a.a0 == a.a1 == b.a0 == b.a1:
        return True
    return max(a.a0, b.a0) < min(a.a1, b.a1) or b.a0 < a.a0 == a.a1 < b.a1 or a.a0 < b.a0 == b.a1 < a.a1


def _side_range(start: int, end: int, edits: list[Change], mates: dict[int, int]) -> tuple[int, int]:
    """What one side has for ``base[start:end]``, which its edits cover in part."""
    if not edits:
        return (mates[start], mates[end - 1] + 1) if start < end else (0, 0)
    low = edits[0].b0 if edits[0].a0 <= start else mates[start]
    high = edits[-1].b1 if edits[-1].a1 >= end else mates[end - 1] + 1
    return low, high


def _tail_start(ours: list[Statement], start: int, first: int, end: int) -> int:
    """Where whole blocks begin that use nothing of the statements before them."""
    top = min((statement.indent for statement in ours[start:end]), default=0)
    for number in range(first, end):
        statement = ours[number]
        apart = statement.indent <= top and not CONTINUES.match(statement.key)
        if apart and not _feeds(ours[start:number], ours[number:end]):
            return number
    return end


def _deeper(first: list[Statement], second: list[Statement]) -> int:
    """How many statements ``first`` begins with that still belong to the block before ``second``."""
    keys = _keys(second)
    deeper = (n for n, s in enumerate(first) if s.indent <= second[0].indent or s.key in keys)
    return next(deeper, len(first))


def _feeds(writers: list[Statement], readers: list[Statement]) -> bool:
    """Whether ``readers`` read a name that ``writers`` assign."""
    return bool(rebinds(_keys(writers)) & reads(_keys(readers)))
