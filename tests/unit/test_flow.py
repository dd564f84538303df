"""The paths through a function: names without a value, and the conditions on the way."""

from __future__ import annotations

import textwrap

import pytest

from npu_upgrade.code.flow import guards_of, may_be_unbound
from npu_upgrade.code.statements import split_statements


def unbound(body: str) -> set[str]:
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return may_be_unbound(split_statements(f"def f(a, b):\n{lines}\n"))


@pytest.mark.parametrize(
    "body",
    [
        "if a:\n    x = 1\nuse(x)",
        "use(x)\nx = 1",
        "for x in a:\n    pass\nuse(x)",
        "try:\n    x = a()\nexcept ValueError:\n    pass\nuse(x)",
        "with a:\n    if b:\n        x = 1\n    use(x)",
        "match a:\n    case 1:\n        x = 1\nuse(x)",
        "if a:\n    x = 1\na = b\nif a:\n    use(x)",
        "while a:\n    if b:\n        break\n    x = 1\nuse(x)",
        "x = 1\nif a:\n    y = x\nreturn y",
    ],
)
def test_a_name_that_a_path_leaves_without_a_value(body: str) -> None:
    assert unbound(body) in ({"x"}, {"y"})


@pytest.mark.parametrize(
    "body",
    [
        "if a:\n    x = 1\nelse:\n    x = 2\nuse(x)",
        "if not a:\n    return\nelse:\n    x = 1\nuse(x)",
        "if a:\n    x = 1\nif a and b:\n    use(x)",
        "if a is None:\n    return b\nif a is not None:\n    x = 1\nuse(x)",
        "if a is not None:\n    x = 1\nif a is None:\n    return\nuse(x)",
        "try:\n    x = a()\nexcept ValueError:\n    raise\nuse(x)",
        "try:\n    pass\nfinally:\n    x = 1\nuse(x)",
        "while True:\n    x = 1\n    if a:\n        break\nuse(x)",
        "match a:\n    case 1:\n        x = 1\n    case _:\n        x = 2\nuse(x)",
        "def g():\n    return x\nx = 1\ng()",
        "use([x for x in a])",
        "global x\nuse(x)\nx = 1",
        "use(outside)",
    ],
)
def test_a_name_that_every_path_gives_a_value(body: str) -> None:
    assert unbound(body) == set()


def test_the_guards_of_a_statement() -> None:
    source = "if a and b:\n    one()\nelif c is None:\n    return\nfor i in d:\n    two()\nthree()\n"
    statements = split_statements(source)
    found = {s.key: guards for s, guards in zip(statements, guards_of(statements), strict=True)}
    assert {"a", "b", "a and b"} == found["one()"].above
    assert {"not (a and b)", "c is None"} <= found["return"].above
    assert found["two()"].above == {"for"}
    assert found["three()"].above == set()
    assert "c is not None" in found["three()"].passed
