"""Binding of calls to signatures, against Python's own."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.code.signatures import Function, misfit

NAMES = ["a", "b", "c", "d", "e", "f"]


@st.composite
def signatures(draw: st.DrawFn) -> str:
    """A parameter list with all five kinds of parameters, in Python."""
    names = draw(st.permutations(NAMES))
    counts = [draw(st.integers(0, 2)) for _ in range(3)]
    only, plain, named = (names[sum(counts[:i]) : sum(counts[: i + 1])] for i in range(3))
    places = [*only, *plain]
    first = draw(st.integers(0, len(places)))
    places = [name if number < first else f"{name}=0" for number, name in enumerate(places)]
    parts = places[: len(only)] + (["/"] if only else []) + places[len(only) :]
    star = draw(st.sampled_from(["", "*rest"])) or ("*" if named else "")
    parts += [star] if star else []
    parts += [draw(st.sampled_from([name, f"{name}=0"])) for name in named]
    return ", ".join(parts + draw(st.sampled_from([[], ["**more"]])))


@st.composite
def calls(draw: st.DrawFn) -> str:
    places = ["1"] * draw(st.integers(0, 5))
    named = draw(st.lists(st.sampled_from([*NAMES, "x"]), unique=True, max_size=4))
    return ", ".join(places + [f"{name}=1" for name in named])


def bind(signature: str, call: str) -> bool:
    """Whether Python binds the call (``inspect.Signature.bind`` refuses some that it does not)."""
    made: dict[str, Any] = {}
    exec(f"def f({signature}): pass", made)
    try:
        eval(f"f({call})", made)
    except TypeError:
        return False
    return True


def function(signature: str) -> Function:
    node = ast.parse(f"def f({signature}): pass").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def parsed(call: str) -> ast.Call:
    node = ast.parse(f"f({call})", mode="eval").body
    assert isinstance(node, ast.Call)
    return node


@given(signatures(), calls())
def test_a_call_fits_when_python_binds_it(signature: str, call: str) -> None:
    reason = misfit(parsed(call), function(signature), bound=False)
    assert (reason == "") == bind(signature, call), reason


@given(signatures(), calls())
def test_a_bound_call_leaves_the_first_parameter_to_the_object(signature: str, call: str) -> None:
    bound = f"self, {signature}"
    given_self = "1, " + call if call else "1"
    reason = misfit(parsed(call), function(bound), bound=True)
    assert (reason == "") == bind(bound, given_self), reason


@given(signatures(), calls(), st.sampled_from(["*xs", "**ys"]))
def test_starred_arguments_only_excuse_what_they_may_give(signature: str, call: str, star: str) -> None:
    starred = f"{call}, {star}" if call else star
    if star == "*xs" and "=" in call:
        starred = f"*xs, {call}"
    if bind(signature, call):
        assert misfit(parsed(starred), function(signature), bound=False) == ""


def test_an_unknown_keyword_is_seen_beside_starred_arguments() -> None:
    assert misfit(parsed("*xs, gone=1"), function("a, b"), bound=False) == "has no parameter gone"


def test_a_parameter_by_place_and_by_name_is_given_twice() -> None:
    assert misfit(parsed("1, a=2"), function("a, b=0"), bound=False) == "gets a twice"


@st.composite
def unpacking_calls(draw: st.DrawFn) -> str:
    """A call some of whose keywords come from dict displays, ``dict(...)`` and conditional ones."""
    parts = ["1"] * draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.sampled_from([*NAMES, "x"]), unique=True, max_size=2))
        display = "{" + ", ".join(f"'{name}': 1" for name in names) + "}"
        made = "dict(" + ", ".join(f"{name}=1" for name in names) + ")"
        always = f"{display} if 1 else {made}"
        parts.append("**" + draw(st.sampled_from([display, made, f"({always})", "{**" + display + "}"])))
    return ", ".join(parts)


@given(signatures(), unpacking_calls())
def test_unpacked_displays_are_keywords_as_python_binds_them(signature: str, call: str) -> None:
    reason = misfit(parsed(call), function(signature), bound=False)
    assert (reason == "") == bind(signature, call), reason


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("1, **({'x': 2} if c else {})", "has no parameter x"),
        ("**({'a': 1} if c else {'x': 1})", "has no parameter x"),
        ("**({'a': 1} if c else {})", ""),  # another condition may give it in the other case
        ("1, **({'x': 2} if vllm_version_is('1.0') else {})", ""),
        ("1, **({'x': 2} if 'x' in signature(f).parameters else {})", ""),
        ("**{**more, 'x': 1}", "has no parameter x"),
        ("**{key: 1}", ""),
    ],
)
def test_conditional_and_computed_keywords(call: str, reason: str) -> None:
    assert misfit(parsed(call), function("a, b=0"), bound=False) == reason
