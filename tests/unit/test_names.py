from __future__ import annotations

import pytest

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import (
    Import,
    all_imports,
    exported,
    imports_of,
    names_of,
    undefined_names,
)

FUTURE = "from __future__ import annotations\n"


@pytest.mark.parametrize(
    ("source", "undefined"),
    [
        ("x = y\n", {"y"}),
        ("def f(a):\n    return a + b\n", {"b"}),
        ("def f():\n    print(len(__file__))\n", set()),
        ("def f():\n    x = 1\n    return [x for x in range(x)]\n", set()),
        ("def f():\n    global made\n    made = 1\ndef g():\n    return made\n", set()),
        ("class A:\n    b = 1\n    def f(self):\n        return b\n", {"b"}),
        ("try:\n    import a\nexcept ImportError:\n    a = None\nprint(a)\n", set()),
        ("match v:\n    case {'k': found}:\n        print(found)\n", {"v"}),
        ("print(f'{x!r:{width}} {\"y\"}')\n", {"x", "width"}),
    ],
)
def test_reads_names_by_scope(source: str, undefined: set[str]) -> None:
    assert undefined_names(source) == undefined


@pytest.mark.parametrize(
    ("source", "read", "run_time"),
    [
        ("def f(a: X) -> Y: ...\n", {"X", "Y"}, {"X", "Y"}),
        (FUTURE + "def f(a: X) -> Y: ...\n", {"X", "Y"}, set()),
        ("def f(a: 'X') -> 'list[Y]': ...\n", {"X", "Y", "list"}, set()),
        ("def f(a: list['X | None']): ...\n", {"list", "X"}, {"list"}),
        ("def f():\n    a: X = g()\n", {"X", "g"}, {"g"}),
        ("class A:\n    a: X = g()\n", {"X", "g"}, {"X", "g"}),
        (FUTURE + "class A:\n    a: X = g()\n", {"X", "g"}, {"g"}),
        ("a = cast('X', b)\n", {"cast", "X", "b"}, {"cast", "b"}),
        ("a: Literal['x']\n", {"Literal"}, {"Literal"}),
        ("a: 'not a type'\n", {"a"}, set()),
    ],
)
def test_tells_annotations_from_what_runs(source: str, read: set[str], run_time: set[str]) -> None:
    names = names_of(source)
    assert names.read - {"a"} == read - {"a"}
    assert names.run_time - {"a"} == run_time


def test_lists_local_names() -> None:
    assert names_of("import a\ndef f(p):\n    q = 1\n    for r in p: pass\n").local == {"p", "q", "r"}


def test_imports_with_guards_but_not_those_in_functions() -> None:
    source = (
        "import a.b\nimport a\nfrom .c import d as e\n"
        "if TYPE_CHECKING:\n    from t import T\nif not TYPE_CHECKING:\n    import r\n"
        "try:\n    import u\nexcept ImportError:\n    import v\n"
        "def f():\n    import inner\n"
    )
    found = imports_of(source)
    assert set(found) == {"a", "e", "T", "r", "u", "v"}
    assert found["a"] == Import("a", None)
    assert found["e"] == Import(".c", "d", "e")
    assert found["T"].typing_only
    assert not found["r"].typing_only
    assert len(all_imports(source)) == 7


def test_what_is_read_is_told_from_shadows_and_exports() -> None:
    source = (
        FUTURE + "import a, b, c, d, e\n__all__ = ['b']\n__all__ += ['e']\n"
        "def f(x: c):\n    a = 1\n    return a\n"
    )
    assert names_of(source).read == {"c"}
    assert exported(source) == {"b", "e"}


def test_names_that_a_module_defines_itself() -> None:
    source = (
        "import a\nfrom b import c\nd: int = 1\ne: int\nf, (g, *h) = x\ndef i(j): k = 1\nclass L: m = 1\n"
        "try:\n    import n\nexcept E as o:\n    n = None\nfor p in q: r = 1\nwith s as t: pass\n"
        "match u:\n    case [v]: pass\nif (w := [y for y in z]): pass\n"
    )
    assert parse_module(source).top_level_names() == set("dfghiLnoprtvw")
