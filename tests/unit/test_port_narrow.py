"""A conflict of a whole method shows what the GPU side changed, where the NPU side would have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.port.narrow import less_made_twice, narrowed, with_definitions, with_same_steps
from npu_upgrade.threeway.pieces import Conflict, Piece, render_pieces, resolved

HEAD = "def step(self, batch):"
TAIL = "return done"


def statements(*lines: str) -> tuple[Statement, ...]:
    return tuple(
        one for one in split_statements("\n".join(f"    {line}" for line in lines)) if one.key != END
    )


def around(conflict: Conflict) -> list[Piece]:
    return [*split_statements(HEAD + "\n    pass")[:1], conflict, *statements(TAIL)]


def narrow(base: tuple[str, ...], ours: tuple[str, ...], theirs: tuple[str, ...]) -> list[Piece]:
    return narrowed(around(Conflict(*(statements(*side) for side in (base, ours, theirs)), "-")))


def conflicts(pieces: list[Piece]) -> list[Conflict]:
    return [one for one in pieces if isinstance(one, Conflict)]


def keys(side: tuple[Statement, ...]) -> list[str]:
    return [one.key for one in side]


OLD = ("rows = self.rows(batch)", "built = self.build(rows)", "sent = self.send(built)", "self.log(sent)")
OWN = tuple(f"self.own_{number}(batch)" for number in range(20))


def test_what_the_gpu_side_left_alone_is_not_in_the_conflict() -> None:
    new = (*OLD[:2], "self.mark(built)", *OLD[2:])
    pieces = narrow(OLD, OWN, new)
    (one,) = conflicts(pieces)
    assert (keys(one.base), keys(one.ours), keys(one.theirs)) == ([], [], ["self.mark(built)"])
    assert keys(tuple(resolved(pieces, "ours"))) == [HEAD, *OWN, TAIL]


def test_the_change_stands_where_the_npu_side_has_its_like() -> None:
    own = (*OWN[:8], "sent = self.send(batch, early=True)", *OWN[8:])
    new = tuple(line.replace("send(built)", "send(built, again)") for line in OLD)
    (one,) = conflicts(narrow(OLD, own, new))
    assert keys(one.ours) == ["sent = self.send(batch, early=True)"]
    assert keys(one.theirs) == ["sent = self.send(built, again)"]


def test_blocks_stay_whole() -> None:
    loop = ("for row in rows:", "    self.take(row)", "    self.give(row)")
    new = (*OLD[:2], *loop[:2], "    self.check(row)", loop[2], *OLD[2:])
    pieces = narrow((*OLD[:2], *loop, *OLD[2:]), OWN, new)
    (one,) = conflicts(pieces)
    assert keys(one.theirs) == ["for row in rows:", "self.take(row)", "self.check(row)", "self.give(row)"]
    compile(render_pieces(resolved(pieces, "theirs"), ("", "", "")), "-", "exec")


def test_two_changes_are_two_conflicts_with_ours_between_them() -> None:
    own = ("rows = self.rows(batch, 3)", *OWN, "sent = self.send(batch, early=True)")
    new = ("rows = self.rows(batch, 2)", OLD[1], "sent = self.send(built, again)", OLD[3])
    found = narrow(("rows = self.rows(batch, 1)", *OLD[1:]), own, new)
    assert len(conflicts(found)) == 2
    assert [one for one in keys(tuple(resolved(found, "theirs"))) if "own_" in one] == list(OWN)


UNPACKED = "logits, rows = self.state"


@pytest.mark.parametrize(
    ("new", "ours", "result"),
    [
        ("logits, rows, step = self.state", "logits, batch = self.state", "logits, batch, step = self.state"),
        (  # one name a line stays so, with its notes
            "logits, rows, step = self.state",
            "(\n    logits,\n    batch,  # ours\n) = self.state",
            "(\n    logits,\n    batch,  # ours\n    step,\n) = self.state",
        ),
        ("step, logits, rows = self.state", "logits, batch = self.state", None),  # not behind the others
        ("logits, rows, step = self.state", "logits, batch = self.other", None),
    ],
)
def test_a_name_more_in_an_unpacking_comes_into_that_of_ours(new: str, ours: str, result: str | None) -> None:
    own = (*OWN, *ours.split("\n"))
    pieces = narrow((*OLD, UNPACKED), own, (*OLD, new))
    assert bool(conflicts(pieces)) == (result is None)
    if result:
        text = render_pieces(resolved(pieces, "ours"), ("", "", ""))
        assert "\n".join(f"    {line}" for line in result.split("\n")) in text


def test_what_gets_no_smaller_stays() -> None:
    conflict = Conflict(statements("self.a()"), statements("self.b()"), statements("self.c()"), "-")
    assert narrowed(around(conflict)) == around(conflict)


def test_before_a_branch_a_conflict_stays_whole() -> None:
    """The branch would be one of the GPU side's block, and no longer of ours."""
    sides = [
        statements("if batch:", "    self.a()"),
        statements("if self.own:", *(f"    {one}" for one in OWN)),
        statements("if batch and self.late:", "    self.a()"),
    ]
    branch = split_statements("    if batch:\n        pass\n    else:\n        self.rest()")[2:4]
    pieces = [*around(Conflict(*sides, "-"))[:2], *branch]
    assert narrowed(pieces) == pieces
    assert narrowed(pieces[:2]) != pieces[:2]


NEW = ("meta = self.rows(batch)", "self.mark(meta)", "out = sample(logits, meta)")


def beside(*ours: str, theirs: tuple[str, ...] = (), behind: tuple[str, ...] = ()) -> list[Piece]:
    head = split_statements(HEAD + "\n    pass")[:1]
    conflict = Conflict((), (), statements(*NEW), "-")
    pieces = [
        *head,
        *statements(*ours),
        conflict,
        *(statements(*behind) if behind else ()),
        *statements(TAIL),
    ]
    return with_same_steps(pieces, statements(*NEW, *theirs))


def test_a_step_that_stands_beside_a_conflict_and_that_theirs_does_is_in_it() -> None:
    """With the answer theirs it would run twice."""
    pieces = beside("out = sample(logits, self.rows(batch))", "self.log()")
    (one,) = conflicts(pieces)
    assert keys(one.ours) == ["out = sample(logits, self.rows(batch))", "self.log()"]
    assert keys(one.theirs) == ["self.log()", *NEW]
    assert keys(tuple(resolved(pieces, "theirs"))) == [HEAD, "self.log()", *NEW, TAIL]
    pieces = beside(behind=("self.log()", "out = sample(logits, self.rows(batch))"))
    assert keys(tuple(resolved(pieces, "theirs"))) == [HEAD, *NEW, "self.log()", TAIL]
    assert keys(tuple(resolved(pieces, "ours"))) == [
        HEAD,
        "self.log()",
        "out = sample(logits, self.rows(batch))",
        TAIL,
    ]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (("out = draw(logits)",), ()),  # another step
        (("other = sample(logits)",), ()),  # for another name
        (("out = sample(logits)",), ("out = sample(logits)",)),  # which the GPU side has there, too
        (("if logits:", "    out = sample(logits)"), ()),  # in another block
        (("out = sample(logits)", *OWN[:6]), ()),  # far from it
        (("out = sample(logits)", "self.log(out)"), ()),  # and what is between them needs it
    ],
)
def test_what_is_no_step_of_theirs_stays_beside_a_conflict(
    ours: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    (one,) = conflicts(beside(*ours, theirs=theirs))
    assert keys(one.ours) == []


def test_what_theirs_reads_and_the_gpu_side_had_before_comes_with_it() -> None:
    """Else the answer theirs would read a name without a value."""
    whole = statements("meta = self.rows(batch)", "self.mark(meta)", "out = sample(logits, meta)", TAIL)
    ours = statements("out = sample(logits, self.rows(batch))", TAIL)
    head = split_statements(HEAD + "\n    pass")[:1]
    conflict = Conflict((), ours[:1], whole[1:3], "-")
    (one,) = conflicts(with_definitions([*head, conflict, ours[1]], [*head, *ours], [*head, *whole]))
    assert keys(one.theirs) == list(NEW)
    has = statements("meta = self.own_rows()", "out = sample(logits, meta)", TAIL)
    pieces = [*head, has[0], replace(conflict, ours=has[1:2]), has[2]]
    (one,) = conflicts(with_definitions(pieces, [*head, *has], [*head, *whole]))
    assert keys(one.theirs) == list(NEW[1:]), "the NPU side has its own"
    pieces = [*head, *statements("rows = self.rows(batch)"), replace(conflict, ours=()), ours[1]]
    (one,) = conflicts(with_definitions(pieces, [*head, *ours[1:]], [*head, *whole]))
    assert keys(one.theirs) == list(NEW[1:]), "the NPU side makes this call under another name"
    branch = statements("if batch:", "    self.log()", "else:", "    self.mark(meta)", TAIL)
    pieces = [*head, *branch[:2], Conflict((), (), branch[2:4], "-"), branch[4]]
    (one,) = conflicts(with_definitions(pieces, [*head, *ours[1:]], [*head, whole[0], *branch]))
    assert keys(one.theirs) == ["else:", "self.mark(meta)"], "a branch has no place before it"
    looped = statements("for meta in self.rows(batch):", "    self.mark(meta)", TAIL)
    pieces = [*head, Conflict((), (), looped[1:2], "-"), looped[2]]
    (one,) = conflicts(with_definitions(pieces, [*head, TAIL_OF[0]], [*head, *looped]))
    assert keys(one.theirs) == ["self.mark(meta)"], "what gives it is no statement to put there"


TAIL_OF = statements(TAIL)


COLLECT = ('with timed("collect"):', "    parts = self.collect()")


def test_a_call_that_the_npu_side_makes_is_not_made_twice_for_nothing() -> None:
    """It may be one that all ranks make together."""
    head = split_statements(HEAD + "\n    pass")[:1]
    ours = statements("out = self.build()", "out.parts = self.collect()", TAIL)
    brought = statements(*COLLECT)
    pieces, gone = less_made_twice([*head, ours[0], *brought, *ours[1:]], [*head, *ours])
    assert (keys(tuple(resolved(pieces, "ours"))), gone) == ([HEAD, *keys(ours)], ["self.collect()"])


@pytest.mark.parametrize(
    ("ours", "brought"),
    [
        (("out.parts = self.collect()", "self.log(parts)"), COLLECT),  # it is read
        (("self.log(out)",), COLLECT),  # the NPU side makes no such call
        (("out.parts = self.collect()", *COLLECT), COLLECT),  # nothing was brought
        (("out.parts = self.collect()",), ("self.parts = self.collect()",)),  # the object has it after
    ],
)
def test_a_call_that_is_for_something_stays(ours: tuple[str, ...], brought: tuple[str, ...]) -> None:
    head = split_statements(HEAD + "\n    pass")[:1]
    own = statements(*ours, TAIL)
    before = [*head, *statements(*brought), *own]
    assert less_made_twice(before, [*head, *own]) == (before, [])
