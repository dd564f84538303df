"""The units of a module: one for each definition, also where several have one name."""

from __future__ import annotations

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.code import module
from npu_upgrade.code.module import comments_below, parse_module, replace_units, split_lines
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.job.answer_checks import _odd_markers
from npu_upgrade.job.answer_edits import class_for, with_methods

PROPERTY = """class A:
    def before(self):
        pass

    @property
    def x(self):
        return self._x

    @x.setter  # why
    def x(self, value):
        self._x = value

    @x.deleter
    def x(self):
        del self._x

    def after(self):
        pass
"""
OVERLOADS = """@overload
def f(a: int) -> int: ...


@overload
def f(a: str) -> str: ...


def f(a):
    return a
"""


def definitions(text: str) -> list[str]:
    return [ast.unparse(n) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]


def test_the_definitions_of_one_name_are_units_of_their_own() -> None:
    assert list(parse_module(PROPERTY).units) == ["A.before", "A.x", "A.x@setter", "A.x@deleter", "A.after"]
    assert list(parse_module(OVERLOADS).units) == ["f@1", "f@2", "f"]
    assert "return self._x" in parse_module(PROPERTY).units["A.x"].source


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_is_not_replaced_stays_byte_for_byte(end: str) -> None:
    source = PROPERTY.replace("\n", end)
    text = replace_units(parse_module(source), {"A.x@setter": "    def x(self, value):\n        pass"})
    assert text == source.replace(
        f"    @x.setter  # why{end}    def x(self, value):{end}        self._x = value",
        f"    def x(self, value):{end}        pass",
    )


def test_a_lone_carriage_return_ends_a_line_too() -> None:
    source = "x = 1\r# why\rdef f():\r    return 1\rdef g():\n    return 2\n"
    assert parse_module(source).units["f"].source == "def f():\r    return 1"
    assert replace_units(parse_module(source), {"f": "def f(): pass"}) == (
        "x = 1\r# why\rdef f(): pass\rdef g():\n    return 2\n"
    )


@given(st.text(alphabet="ab\r\n\x0c\u2028 "))
def test_no_text_is_lost_between_lines(text: str) -> None:
    assert "".join(split_lines(text)) == text


GETTER = "@property\ndef y(self):\n    return 1\n"
SETTER = "@y.setter\ndef y(self, value):\n    pass\n"
DELETER = "@y.deleter\ndef y(self):\n    pass\n"


@pytest.mark.parametrize("has", ["", GETTER, GETTER + SETTER, GETTER + DELETER])
@pytest.mark.parametrize("given", [GETTER + SETTER, GETTER + "\n" + SETTER + "\n" + DELETER, SETTER, DELETER])
def test_an_answer_keeps_all_definitions_of_a_property(has: str, given: str) -> None:
    inside = "".join(f"    {line}\n" for line in ("def other(self):\n    pass\n" + has).splitlines())
    before = f"class A:\n{inside}\n    def last(self):\n        pass\n"
    text, names = with_methods(before, "A", given)
    for one in definitions(before) + definitions(given):
        assert definitions(text).count(one) == 1
    assert set(names) <= set(parse_module(text).units)
    if "@property" in text:
        assert definitions(text).index(definitions(GETTER)[0]) < definitions(text).index(
            definitions(given)[-1]
        )


def test_overloads_are_put_before_what_they_are_of() -> None:
    text, _ = with_methods("def f(a):\n    return 1\n\n\ndef g():\n    pass\n", "", OVERLOADS)
    assert list(parse_module(text).units) == ["f@1", "f@2", "f", "g"]
    assert "return a" in parse_module(text).units["f"].source


def test_a_definition_on_a_condition_is_not_overruled_in_silence() -> None:
    before = (
        "class A:\n    if NEW:\n        def f(self): return 1\n    else:\n        def f(self): return 2\n"
    )
    with pytest.raises(BadInput, match="defines f on a condition"):
        with_methods(before, "A", "def f(self):\n    return 3\n")


def test_an_answer_to_what_another_file_calls_goes_to_the_class_that_has_the_method() -> None:
    large = "class Large:\n    def f(self): ...\n\n    def g(self): ...\n"
    text = f"class Small:\n    def run(self): ...\n\n\n{large}"
    assert class_for(text, "Worker", "    def run(self, more):\n        pass\n") == "Small"
    assert class_for(text, "Worker", "def absent(self): ...") == "Large"
    assert class_for(text, "Small", "def f(self): ...") == "Small"
    assert class_for("x = 1\n", "Worker", "def f(): ...") == ""
    assert class_for("<<<<<<< ours\n", "Worker", "def f(): ...") == "Worker"


def test_a_class_line_in_an_answer_adds_the_bases_that_are_lacking() -> None:
    before = 'class A(Base):\n    """Text."""\n\n    def f(self):\n        return 1\n'
    given = "class A(Base, Mixin):\n    @cached\n    def f(self):\n        return 2\n"
    text, names = with_methods(before, "A", given)
    assert text.startswith(
        'class A(Base, Mixin):\n    """Text."""\n\n    @cached\n    def f(self):\n        return 2'
    )
    assert names == ["A.f"]
    assert with_methods(before, "A", "class A(Base, Mixin): ...")[0] == before.replace("Base", "Base, Mixin")
    assert (
        with_methods("class A:\n    x = 1\n", "A", "class A(Mixin): pass")[0]
        == "class A(Mixin):\n    x = 1\n"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("class B(Base):\n    def f(self): pass\n", "is in A"),
        ("class A(Mixin):\n    def f(self): pass\n", "takes Base from the bases"),
        ("class A(Base, Mixin):\n    x = 1\n", "not only methods"),
        ("class A(Base, Mixin:\n", "not Python"),
    ],
)
def test_a_class_line_that_cannot_be_taken_is_refused(given: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        with_methods("class A(Base):\n    def f(self):\n        return 1\n", "A", given)


def test_an_answer_that_defines_a_method_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="defines f twice"):
        with_methods(
            "class A:\n    pass\n", "A", "def f(self):\n    return 1\n\ndef f(self):\n    return 2\n"
        )


def test_a_form_feed_ends_no_line() -> None:
    source = "x = 'a\u2028b'\n\x0c\ndef f():\n    return 1\n"
    assert parse_module(source).units["f"].source == "def f():\n    return 1"


def test_only_so_many_characters_of_modules_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_modules", {})
    monkeypatch.setattr(module, "_KEPT", 25)
    first = parse_module("first = 1\n")
    parse_module("second = 2\n")
    assert parse_module("first = 1\n") is first
    parse_module("third = 3\n")
    assert parse_module("first = 1\n") is first
    assert list(module._modules) == ["third = 3\n", "first = 1\n"]
    long = f"x = '{'-' * 40}'\n"
    assert parse_module(long).source == long
    assert list(module._modules) == [long]


CLOSED = """class A:
    def f(self):
        # --- Omni-new ---
        self.x = 1
        # --- Omni-new ---

    # of g
    def g(self):
        pass
"""


@pytest.mark.parametrize("depth", ["", "    "])
@pytest.mark.parametrize("more", ["        # --- Omni-new ---\n", ""])
def test_a_comment_that_closes_a_method_comes_with_it(depth: str, more: str) -> None:
    """It may be the marker of what stands before it."""
    given = f"    def f(self):\n        # --- Omni-new ---\n        self.y = 2\n{more}"
    given = given if depth else textwrap.dedent(given)
    text, _ = with_methods(CLOSED, "A", given)
    assert text == CLOSED.replace("self.x = 1", "self.y = 2"), "once, wherever it is from"
    text, _ = with_methods(CLOSED, "A", given.replace("f(self)", "h(self)"))
    assert text.count("# --- Omni-new ---") == 2 + given.count("# --- Omni-new ---")
    assert with_methods(text, "A", given.replace("f(self)", "h(self)"))[0] == text


def test_what_a_method_is_followed_by_is_not_its_own() -> None:
    lines = split_lines(CLOSED)
    units = parse_module(CLOSED).units
    assert [comments_below(lines, unit) for unit in units.values()] == [5, 9]


def test_markers_pair_where_the_last_one_closes_the_method() -> None:
    plain = "class A:\n    def f(self):\n        self.x = 1\n\n    def g(self):\n        pass\n"
    assert _odd_markers([plain], [CLOSED]) == []
    opened = CLOSED.replace("        # --- Omni-new ---\n\n", "\n")
    assert _odd_markers([plain], [opened]) == ["the Omni-new markers of A.f do not pair any more"]
