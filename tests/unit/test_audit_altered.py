"""The check for a statement that is otherwise at one place than in the old pair, and nowhere else so."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import make_world, seen
from test_audit_lost import CRANE, OLD

from npu_upgrade.audit.one_place import Otherwise, otherwise


def since(folder: Path, *changes: tuple[str, str], more: tuple[dict, dict] = ({}, {})) -> list[str]:
    """What is told of the changed file; ``more`` files stand beside it, then and now."""
    new = OLD
    for before, now in changes:
        assert before in new
        new = new.replace(before, now)
    old = make_world(folder / "old", {CRANE: OLD} | more[0])
    world = make_world(folder / "new", {CRANE: new} | more[1], old=old)
    return [subject.partition(": ")[0] for _, _, subject in seen(world, "altered")]


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("if fast:", "if not fast:", "fast in lift"),
        ("load is not None and self.rope", "self.rope", "load is not None in lift"),
        ("load is not None and self.rope", "load is not None or self.rope", "and in lift"),
        ("load is not None and", "load is None and", "is not in lift"),
        ("load, tight=True", "load", "tight=True in lift"),
        ("load, tight=True", "load, tight=False", "True in lift"),
        ("self.done = 0", "self.done = 1", "0 in __init__"),
        ("        self.rope = rope", "        self.done = rope", "self.rope in __init__"),
        ("return self.rope.pull(load)", "return load", "self.rope.pull() in pull"),
        ("    loud = False", "    loud = True", "False in Crane"),
        ("run(1)\n", "run(2)\n", "1 in vllm_omni.platforms.npu.crane"),
    ],
)
def test_what_is_otherwise_at_one_place(tmp_path: Path, before: str, now: str, told: str) -> None:
    assert since(tmp_path, (before, now)) == [told]


def test_another_change_of_the_function_hides_it_not(tmp_path: Path) -> None:
    more = ("        return load\n\n\ndef", "        self.done = load\n        return load\n\n\ndef")
    assert since(tmp_path, ("load, tight=True", "load"), more) == ["tight=True in lift"]


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [("fast, tight=None", "fast")],  # what it takes by itself
        [("load, tight=True", "load, loose=False")],  # a new name
        [("        if fast:\n", "        if fast and load:\n")],  # more than there was
        [("if load is not None and self.rope:", "if fast and self.done:")],  # written anew
        [("print(os.name)", "print(os.path)")],  # a text for people
    ],
)
def test_what_was_written_on_purpose_is_silent(tmp_path: Path, changes: list[tuple[str, str]]) -> None:
    assert since(tmp_path, *changes) == []


def test_the_same_change_at_two_places_is_one_of_purpose(tmp_path: Path) -> None:
    other = "vllm_omni/platforms/npu/hoist.py"
    hoist = "def hoist(rope, load):\n    rope.roll(load, tight=True)\n"
    text = hoist.replace("rope.roll(load, tight=True)", "self.rope.roll(load, tight=True)")
    more = ({other: text}, {other: text.replace(", tight=True", "")})
    assert since(tmp_path, ("load, tight=True", "load"), more=more) == []


@pytest.mark.parametrize("followed", [True, False])
def test_what_upstream_has_so_too_is_silent(tmp_path: Path, followed: bool) -> None:
    other = "vllm_ascend/worker/crane.py"
    new = OLD.replace("load, tight=True", "load")
    more = ({other: OLD}, {other: new if followed else OLD})
    told = since(tmp_path, ("load, tight=True", "load"), more=more)
    assert told == ([] if followed else ["tight=True in lift"])


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ("x = f(a, b)", "x = f(b, a)", Otherwise("a, b", "b, a")),
        ("d = {1: a, 2: b}", "d = {1: a}", Otherwise("2", "")),
        ("a, _, b = f()", "a, b = f()", Otherwise("_", "")),
        ("elif a == 1:", "elif a != 1:", Otherwise("==", "!=")),
        ("except KeyError:", "except ValueError:", Otherwise("KeyError", "ValueError", "ValueError")),
        ("x = self.a[1:]", "x = self.a[2:]", Otherwise("1", "2")),
        ("if a and b:", "if b:", Otherwise("a", "")),
        ("mask = a | ~b", "mask = a | b", Otherwise("~b", "b")),
        ("f(a, mode='full')", "f(a, mode='part')", Otherwise("'full'", "'part'")),
        ("x = f(a)", "x = g(b)", None),
        ("x = torch.npu.f()", "x = cls.f()", None),  # of another object: written anew
        ("logger.info('a', b)", "logger.info('a', c)", None),
        ("raise ValueError('no a')", "raise ValueError('no b')", None),
        ("x = 'a b'", "x = 'a c'", None),
        ("x = f(a)", "x = (", None),
    ],
)
def test_the_one_place(before: str, now: str, found: Otherwise | None) -> None:
    assert otherwise(before, now) == found


def test_parameters_in_another_order(tmp_path: Path) -> None:
    """Who gives them by place gives each in the other's."""
    moved = ("def lift(self, load, fast=False)", "def lift(self, fast=False, load=0)")
    assert since(tmp_path / "a", moved) == ["fast, load of lift"]
    more = ("def lift(self, load, fast=False)", "def lift(self, load, slow=1, fast=False)")
    assert since(tmp_path / "b", more) == []


def test_a_keyword_that_says_what_its_callee_takes_by_itself_may_go(tmp_path: Path) -> None:
    tight = ("def roll(self, load, tight=False)", "def roll(self, load, tight=True)")
    old = OLD.replace(*tight)
    new = old.replace("load, tight=True)\n", "load)\n")
    world = make_world(tmp_path / "new", {CRANE: new}, old=make_world(tmp_path / "old", {CRANE: old}))
    assert seen(world, "altered") == []


def test_an_operand_that_a_condition_around_asks_for_may_go(tmp_path: Path) -> None:
    inner = "        if load is not None and self.rope:\n            self.pull(load)\n"
    deeper = "        if self.rope:\n" + inner.replace("        ", "            ", 1).replace(
        "\n            self", "\n                self"
    )
    old = OLD.replace(inner, deeper)
    new = old.replace("load is not None and self.rope", "load is not None")
    world = make_world(tmp_path / "new", {CRANE: new}, old=make_world(tmp_path / "old", {CRANE: old}))
    assert new != old
    assert seen(world, "altered") == []
