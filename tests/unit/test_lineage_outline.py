"""The fast scan of a module against the parser."""

from __future__ import annotations

import ast
import textwrap

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_upgrade.code import outline as outline_module
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.outline import outline

NAMES = st.sampled_from(["run", "load", "step", "state", "Runner", "_sample"])
STATEMENTS = st.sampled_from(
    [
        "x = 1",
        "return (\n    1,\n)",
        "y = [\n  2,\n]  # end",
        'text = """\nlong\n    def inner(self):\n        pass\n"""',
        'text = """one"""',
        "'''\n@odd\nclass Text:\n    def said(self): ...\n'''",
        "if x:\n    pass\n# low\nelse:\n    pass",
        "def nested(a, b):\n    # deep\n    return a\n",
        "class Nested:\n    def method(self):\n        pass",
        "z = 1 + \\\n    2",
        "for i in x:\n\n    continue\n\n",
        'f"""{1}\n"""',
        "pass  ",
        "x = ')'",
    ]
)
DECORATORS = st.lists(
    st.sampled_from(["@property", "@wraps(\n    f,\n)", "@other.setter  # why", "@a\n# between"]), max_size=2
)
COMMENTS = st.sampled_from(["", "# at this depth", "\n\n# two\n# lines", "\n", '# a """ in a comment'])
HEADS = st.sampled_from(
    [
        "def {}(self):",
        "async def {}(\n    self,\n    a=(1, 2),\n) -> int:",
        "def {}(self): return 1\n",
        "def {}(\nself):",
    ]
)


@st.composite
def functions(draw: st.DrawFn) -> str:
    head = draw(HEADS).format(draw(NAMES))
    body = (
        ""
        if head.endswith("\n")
        else textwrap.indent("\n".join(draw(st.lists(STATEMENTS, min_size=1))), "    ")
    )
    parts = [*draw(DECORATORS), head.rstrip("\n"), body, draw(COMMENTS)]
    return "\n".join(part for part in parts if part)


@st.composite
def classes(draw: st.DrawFn) -> str:
    indent = draw(st.sampled_from(["    ", "    ", "    ", "  "]))
    body = draw(st.lists(st.one_of(functions(), functions(), STATEMENTS, COMMENTS), min_size=1, max_size=5))
    head = draw(
        st.sampled_from(["class {}:", "class {}(\n    Base,\n    Other\n):", "@dataclass\nclass {}(Base):"])
    )
    text = textwrap.indent("\n".join([*body, "pass"]), indent)
    return head.format(draw(NAMES)) + "\n" + text


MODULES = st.lists(st.one_of(functions(), classes(), classes(), STATEMENTS, COMMENTS), max_size=4).map(
    "\n".join
)


def expected(source: str) -> dict[str, str]:
    return {name: unit.source for name, unit in parse_module(source).units.items()}


@settings(max_examples=examples(400))
@given(MODULES)
def test_it_finds_what_the_parser_finds(source: str) -> None:
    try:
        ast.parse(source)
    except SyntaxError:
        assert outline(source) == {}
    else:
        assert outline(source) == expected(source)


SOURCE = '''import torch


# a comment
@final
class Runner(
    Base,
):
    """What it is."""

    limit = 3

    @property
    # why
    def size(self):
        return 1
# low

        # after a gap
    # at the depth of the method
    @size.setter
    def size(self, value): self._size = value

    def text(
        self,
    ):
        return 1  # last
    # not of text

    async def later(self):
        def inner():
            pass
        return inner


class State(NamedTuple):
    a: int
    b: int


def helper():
    return [
    1,
]
'''


def test_an_ordinary_module_is_not_parsed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = expected(SOURCE)
    monkeypatch.setattr(outline_module, "parse_module", lambda source: pytest.fail("parsed"))
    assert outline(SOURCE) == wanted
    methods = ["Runner.size", "Runner.size@setter", "Runner.text", "Runner.later"]
    assert list(wanted) == [*methods, "State", "helper"]


def test_a_method_in_a_long_string_is_text() -> None:
    real = "    def real(self):\n        pass\n"
    source = f'class A:\n    doc = """\n    def said(self):\n        pass\n    """\n\n{real}'
    assert list(outline(source)) == ["A.real"]


def test_windows_line_ends_and_no_last_line_end() -> None:
    source = "class A:\r\n    def f(self):\r\n        return 1\r\n\r\n    def g(self):\r\n        return 2"
    assert outline(source) == expected(source)


def test_what_is_not_python_has_no_units() -> None:
    assert outline("class A:\n    def f(self:\n        pass\n") == {}
    assert outline("<<<<<<< ours\n") == {}


def test_texts_once_checked_are_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known: set[str] = set()
    first = outline(SOURCE, known)
    monkeypatch.setattr(outline_module, "_is_unit", lambda text: pytest.fail("checked again"))
    assert outline(SOURCE, known) == first
