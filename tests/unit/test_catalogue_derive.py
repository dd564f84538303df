"""The blocks of a method, derived from its difference to the text it was copied from."""

from __future__ import annotations

import random

import pytest
from code_gen import three_versions
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_upgrade.code.statements import END, line_numbers, split_statements
from npu_upgrade.lineage.catalogue.block import Block
from npu_upgrade.lineage.catalogue.derive import derive, places
from npu_upgrade.lineage.marker_places import body_start

BASE = """    def run(self, batch):
        self.prepare(batch)
        tokens = self.count(batch)
        if tokens:
            self.record(tokens)
        logits = self.forward(batch, tokens)
        return logits"""
FENCE = "        # ---- Omni-new ----"


def blocks(ours: str, base: str = BASE, start: int = 0) -> list[Block]:
    return derive("Runner.run", start, split_statements(ours), split_statements(base))


def brief(ours: str) -> list[tuple[str, int, int, str]]:
    return [(b.kind, b.first, b.last, b.marker) for b in blocks(ours)]


def changed(old: str, new: str) -> str:
    assert old in BASE
    return BASE.replace(old, new)


def test_a_plain_copy_has_none() -> None:
    assert blocks(BASE) == []


def test_layout_is_no_difference() -> None:
    assert (
        blocks(
            changed(
                "self.forward(batch, tokens)",
                "self.forward(\n            batch,\n            tokens,\n        )",
            )
        )
        == []
    )


def test_added_code_outside_markers() -> None:
    ours = changed("        if tokens:", "        self.talk(batch)\n        if tokens:")
    assert brief(ours) == [("added", 4, 4, "outside")]
    assert blocks(ours)[0].unmarked == 1


def test_added_code_inside_markers() -> None:
    ours = changed("        if tokens:", f"{FENCE}\n        self.talk(batch)\n{FENCE}\n        if tokens:")
    assert brief(ours) == [("added", 5, 5, "inside")]
    assert blocks(ours)[0].unmarked == 0


def test_partly_marked_code() -> None:
    new = f"        self.talk(batch)\n{FENCE}\n        self.listen(batch)\n{FENCE}\n        if tokens:"
    found = brief(changed("        if tokens:", new))
    assert [(kind, marker) for kind, _, _, marker in found] == [("added", "outside"), ("added", "inside")]


def test_a_marked_body_under_a_changed_header() -> None:
    base = "    def run(self):\n        with first():\n            a(1)\n        return b(2)"
    inner = f"    {FENCE}\n            talk(7, 8)\n    {FENCE}"
    ours = f"    def run(self):\n        with second(), third():\n{inner}\n        return b(2)"
    found = [block for block in blocks(ours, base) if block.kind != "deletion"]
    assert [block.marker for block in found] == ["outside", "inside"]


def test_changed_code_says_what_it_stands_for() -> None:
    found = blocks(changed("self.forward(batch, tokens)", "self.forward(batch, tokens, self.talker)"))
    assert [(b.kind, b.replaces, b.marker) for b in found] == [("changed", 1, "outside")]


def test_a_deletion_is_listed_and_no_marker_can_say_it() -> None:
    ours = changed("        if tokens:\n            self.record(tokens)\n", "")
    found = blocks(ours)
    assert [(b.kind, b.first, b.replaces, b.marker) for b in found] == [("deletion", 4, 2, "inexpressible")]
    assert "`self.record`" in found[0].made_of


def test_a_replacement_drops_what_it_does_not_resemble() -> None:
    new = "        self.talker.begin(batch)\n"
    found = blocks(changed("        if tokens:\n            self.record(tokens)\n", new))
    assert [(b.kind, b.replaces) for b in found] == [("added", 0), ("deletion", 2)]


def test_a_signature() -> None:
    found = blocks(changed("(self, batch)", "(self, batch, talker=None)"))
    assert [(b.kind, b.made_of) for b in found] == [("signature", "adds `talker`")]


def test_lines_are_those_of_the_file() -> None:
    ours = changed(
        "        if tokens:",
        "\n        # why\n        self.talk(\n            batch,\n        )\n        if tokens:",
    )
    found = blocks(ours, start=100)
    assert [(b.first, b.last, b.lines) for b in found] == [(106, 108, 3)]


def test_the_id_is_of_the_content_alone() -> None:
    one = blocks(changed("        if tokens:", "        self.talk(batch)\n        if tokens:"))[0]
    moved = blocks(changed("        return", "        self.talk( batch )\n        return"), start=50)[0]
    other = blocks(changed("        if tokens:", "        self.talk(tokens)\n        if tokens:"))[0]
    assert one.id == moved.id != other.id


def test_another_method_has_other_ids() -> None:
    ours = split_statements(changed("        if tokens:", "        self.talk(batch)\n        if tokens:"))
    ids = {derive(name, 0, ours, split_statements(BASE))[0].id for name in ("A.run", "B.run", "A.walk")}
    assert len(ids) == 2


@settings(max_examples=examples(60))
@given(st.integers(min_value=0, max_value=10**6))
def test_every_difference_is_in_exactly_one_place(seed: int) -> None:
    base, ours, _ = three_versions(random.Random(seed))
    sides = [split_statements(text) for text in (ours, base)]
    found = places(*sides)
    mine = [number for place in found for number in place.ours]
    assert len(mine) == len(set(mine))
    body = range(body_start(sides[0]), len(sides[0]))
    same = len([n for n in body if sides[0][n].key != END]) - len(mine)
    dropped = sum(len(place.replaced) if place.ours else len(place.keys) for place in found)
    theirs = [s for s in sides[1][body_start(sides[1]) :] if s.key != END]
    assert same + dropped == len(theirs)


@pytest.mark.parametrize("start", [0, 7])
def test_positions(start: int) -> None:
    source = "    # a\n\n    x = 1\n    # b\n    y = (\n        2\n    )\n"
    found = line_numbers(split_statements(source), start)
    assert found[:2] == [(start + 3, start + 3), (start + 5, start + 7)]
