"""What a statement reads and binds, header lines included."""

from __future__ import annotations

import sys

import pytest

from npu_upgrade.code.statements import canonical, split_statements
from npu_upgrade.code.uses import free_names, uses


@pytest.mark.parametrize(
    ("line", "reads", "defines"),
    [
        ("x = y", "y", "x"),
        ("x: T = y", "T y", "x"),
        ("x: T", "T", ""),
        ("x += y", "x y", ""),
        ("x[i] += y", "x i y", ""),
        ("a, *b = c", "c", "a b"),
        ("del x, y[i]", "x y i", ""),
        ("global x, y", "", "x y"),
        ("import a.b, c as d", "", "a d"),
        ("from a import b as c", "", "c"),
        ("if (n := f(x)) > 1:", "f x", "n"),
        ("if x: y = z", "x z", "y"),
        ("elif x:", "x", ""),
        ("elif(x): y = 1", "x", "y"),
        ("else: x = y", "y", "x"),
        ("else:", "", ""),
        ("finally: x = y", "y", "x"),
        ("try: x = y", "y", "x"),
        ("while x:", "x", ""),
        ("for a, b in c:", "c", "a b"),
        ("async for a in b:", "b", "a"),
        ("with a(b) as c, d as (e, f):", "a b d", "c e f"),
        ("except (A, B) as e:", "A B", "e"),
        ("except* A as e:", "A", "e"),
        ("match x.y:", "x", ""),
        ("match(x):", "x", ""),
        ("match = x", "x", "match"),
        ("case [a, *b] if c:", "c", "a b"),
        ("case {K.k: v, **rest}: x = v", "K v", "v rest x"),
        ("case A(x=B.c, y=d) as e:", "A B", "d e"),
        ("case _:", "", ""),
        ("@a.b(c)", "a c", ""),
        ("def f(a, *b, c=d, **e) -> T:", "d T", "f"),
        ("def f(a): return a + b", "b", "f"),
        ("class A(B, metaclass=M):", "B M", "A"),
        ("[x for x in y if x > z]", "y z", ""),
        ("[x for x in x]", "x", ""),
        ("{k: w for k, v in y for w in v}", "y", ""),
        ("any((last := x) for x in y)", "any y", "last"),
        ("f = lambda a, b=c: a + b + d", "c d", "f"),
        ("x = f'{y!r:{z}}'", "y z", "x"),
        ("return await x", "x", ""),
        ("x = = y", "", ""),
    ],
)
def test_names_of_one_line(line: str, reads: str, defines: str) -> None:
    found = uses(canonical(line))
    assert (found.reads, found.defines) == (set(reads.split()), set(defines.split()))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are new in Python 3.12")
@pytest.mark.parametrize(
    ("line", "reads", "defines"),
    [
        ("def f[T: B](a: T) -> list[T]:", "B list", "f"),
        ("type A[T] = dict[T, x]", "dict x", "A"),
        ("class A[T](B[T]):", "B", "A T"),
    ],
)
def test_type_parameters(line: str, reads: str, defines: str) -> None:
    found = uses(canonical(line))
    assert (found.reads - {"T"}, found.defines) == (set(reads.split()), set(defines.split()))


@pytest.mark.parametrize(
    ("source", "free"),
    [
        ("def f(a):\n    return a + b\n", {"b"}),
        ("def f(a):\n    def g(b):\n        c = b\n    return c\n", {"c"}),
        ("def f(a):\n    def g(b):\n        return a + b\n    return b\n", {"b"}),
        ("def f():\n    def g():\n        nonlocal x\n        x = 1\n    return x\n", {"x"}),
        ("def f():\n    x = 0\n    def g():\n        nonlocal x\n        x += 1\n    return x\n", set()),
        ("def f():\n    global x\n    x += 1\n", set()),
        ("def f():\n    x += 1\n", {"x"}),
        ("def f(m):\n    match m:\n        case [a]:\n            return a, b\n", {"b"}),
        ("def f():\n    return len([x for x in y]) + x\n", {"x", "y"}),
        ("@deco\ndef f():\n    pass\n", {"deco"}),
    ],
)
def test_names_that_a_function_takes_from_outside(source: str, free: set[str]) -> None:
    assert free_names(split_statements(source)) == free
