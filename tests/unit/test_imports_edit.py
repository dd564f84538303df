from __future__ import annotations

import ast

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.import_edit import Edit, edit_imports, import_lines
from npu_upgrade.code.import_statement import with_name, without_name
from npu_upgrade.code.module import split_lines
from npu_upgrade.code.names import Import


def name(text: str) -> Import:
    module, _, rest = text.partition(":")
    original, _, alias = rest.partition(" as ")
    return Import(module, original or None, alias or None)


@pytest.mark.parametrize(
    ("before", "item", "after"),
    [
        ("from m import a, c\n", "m:b", "from m import a, b, c\n"),
        ("from m import a, c  # why\n", "m:d", "from m import a, c, d  # why\n"),
        ("from m import A_B, Cd, ef\n", "m:Bc", "from m import A_B, Bc, Cd, ef\n"),
        ("from m import B, a, c\n", "m:b", "from m import B, a, b, c\n"),
        ("from m import a, B, c\n", "m:b", "from m import a, B, b, c\n"),
        ("from m import c, a, b\n", "m:B", "from m import c, a, b, B\n"),
        ("from m import a\n", "m:b as x", "from m import a, b as x\n"),
        (
            "from m import (\n    a,  # first\n    c,\n)\n",
            "m:b",
            "from m import (\n    a,  # first\n    b,\n    c,\n)\n",
        ),
        ("from m import (\n    a,\n    b\n)\n", "m:c", "from m import (\n    a,\n    b,\n    c,\n)\n"),
        (
            "from m import (\n    a,\n    # of c\n    c,\n)\n",
            "m:b",
            "from m import (\n    a,\n    b,\n    # of c\n    c,\n)\n",
        ),
        ("from m import (a, c)\n", "m:b", "from m import (a, b, c)\n"),
        ("    from m import a\r\n", "m:b", "    from m import a, b\r\n"),
        ("from m import é, b\n", "m:c", "from m import é, b, c\n"),
    ],
)
def test_adds_a_name(before: str, item: str, after: str) -> None:
    assert with_name(before, name(item)) == after


def test_a_line_that_grows_too_long_gets_one_name_per_line() -> None:
    names = [f"name_number_{i}" for i in range(7)]
    line = f"from module import {', '.join(names)}  # why\n"
    result = with_name(line, name("module:name_number_9"))
    expected = "".join(f"    {item},\n" for item in [*names, "name_number_9"])
    assert result == f"from module import (  # why\n{expected})\n"


@pytest.mark.parametrize(
    ("before", "item", "after"),
    [
        ("from m import a, b, c\n", "m:b", "from m import a, c\n"),
        ("from m import a, b, c  # why\n", "m:c", "from m import a, b  # why\n"),
        ("from m import a, b\n", "m:a", "from m import b\n"),
        ("from m import a\n", "m:a", ""),
        ("from m import a as x, a\n", "m:a as x", "from m import a\n"),
        ("import a, b.c\n", "b.c:", "import a\n"),
        ("from m import (a, b)\n", "m:b", "from m import (a)\n"),
        (
            "from m import (\n    a,\n    b,  # of b\n    c,  # of c\n)\n",
            "m:b",
            "from m import (\n    a,\n    c,  # of c\n)\n",
        ),
        ("from m import (\n    a,\n    b\n)\n", "m:b", "from m import (\n    a,\n)\n"),
        ("from m import (a,\n               b)\n", "m:b", "from m import (a)\n"),
        (
            "from m import (a,  # of a\n               b)\n",
            "m:a",
            "from m import (# of a\n               b)\n",
        ),
        ("from m import a, \\\n    b\n", "m:a", "from m import b\n"),
        ("from m import a, \\\n    b\n", "m:b", "from m import a\n"),
    ],
)
def test_takes_a_name_out(before: str, item: str, after: str) -> None:
    assert without_name(before, name(item)) == after


FILE = """# header

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from vllm.b import b

# of what follows
from vllm_ascend.ops import op
from vllm_ascend.utils import util

from vllm_omni.outputs import Out

if TYPE_CHECKING:
    from vllm.t import T


class A:
    import inner
"""


@pytest.mark.parametrize(
    ("item", "after_line"),
    [
        ("abc:", ""),
        ("time:", "import math"),
        ("collections:X", "import math"),
        ("vllm.a:a", "import torch"),
        ("vllm.c:c", "from vllm.b import b"),
        ("vllm_ascend.ops2:x", "from vllm_ascend.ops import op"),
        ("vllm_ascend.z:x", "from vllm_ascend.utils import util"),
        ("vllm_omni.z:x", "from vllm_omni.outputs import Out"),
    ],
)
def test_puts_a_new_line_at_its_sorted_place(item: str, after_line: str) -> None:
    lines = edit_imports(FILE, Edit(add=[name(item)], package="vllm_omni")).split("\n")
    new = name(item).statement()
    assert [line for line in lines if line != new] == FILE.split("\n")
    assert lines[lines.index(new) - 1] == after_line


def test_comments_stay_with_the_line_below_them() -> None:
    result = edit_imports(FILE, Edit(add=[name("vllm_ascend.a:x")]))
    assert "from vllm_ascend.a import x\n# of what follows\nfrom vllm_ascend.ops import op\n" in result


def test_new_sections_get_blank_lines() -> None:
    source = "# header\n\nimport torch\n\nX = 1\n"
    added = Edit(add=[name("math:"), name("vllm_omni.a:b")], package="vllm_omni")
    assert edit_imports(source, added) == (
        "# header\n\nimport math\n\nimport torch\n\nfrom vllm_omni.a import b\n\nX = 1\n"
    )
    assert (
        edit_imports('"""Doc."""\nX = 1\n', Edit(add=[name("math:")]))
        == '"""Doc."""\n\nimport math\n\nX = 1\n'
    )
    assert edit_imports("", Edit(add=[name("math:")])) == "import math\n"


def test_typing_imports_have_their_block() -> None:
    typed = Import("vllm.u", "U", typing_only=True)
    assert "    from vllm.t import T\n    from vllm.u import U\n" in edit_imports(FILE, Edit(add=[typed]))
    bare = "import torch\n\n\nclass A:\n    pass\n"
    made = edit_imports(bare, Edit(add=[typed]))
    assert made == "import torch\n\nif TYPE_CHECKING:\n    from vllm.u import U\n\n\nclass A:\n    pass\n"
    assert edit_imports(made, Edit(drop=[typed])) == bare


def test_a_block_that_holds_more_than_imports_stays() -> None:
    source = "if TYPE_CHECKING:\n    import a\nelse:\n    a = None\n"
    dropped = edit_imports(source, Edit(drop=[Import("a", None, typing_only=True)]))
    assert dropped == "if TYPE_CHECKING:\n    pass\nelse:\n    a = None\n"


def test_dropping_the_last_import_of_a_block_leaves_no_double_blank() -> None:
    source = "# header\n\nimport math\n\nimport torch\n\n\nclass A: ...\n"
    assert edit_imports(source, Edit(drop=[name("math:")])) == "# header\n\nimport torch\n\n\nclass A: ...\n"
    assert edit_imports(source, Edit(drop=[name("torch:")])) == "# header\n\nimport math\n\n\nclass A: ...\n"


def test_a_moved_import_keeps_its_comment() -> None:
    source = "from vllm_ascend.a import x  # noqa: E402\nfrom vllm_ascend.b import y\n"
    moved = edit_imports(source, Edit(move=[(name("vllm_ascend.a:x"), name("vllm_ascend.b:x"))]))
    assert moved == "from vllm_ascend.b import y\nfrom vllm_ascend.b import x  # noqa: E402\n"


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import a\n",
        "try:\n    import a\nexcept ImportError:\n    pass\n",
        "import a; b = 1\n",
        "if TYPE_CHECKING: import a\n",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import a\n",
        "<<<<<<< ours\nimport a\n=======\n>>>>>>> theirs\n",
    ],
)
def test_leaves_other_imports_alone(source: str) -> None:
    drops = [Import("a", None, typing_only=typing) for typing in (False, True)]
    assert import_lines(source) == ()
    assert edit_imports(source, Edit(drop=drops)) == source


def test_a_string_is_no_comment() -> None:
    source = 'X = """\n# text"""\nimport torch\n'
    assert (
        edit_imports(source, Edit(add=[name("math:")])) == 'X = """\n# text"""\nimport math\n\nimport torch\n'
    )


MODULES = ["math", "copy", "torch", "vllm.a", "vllm.b", "vllm_ascend.u", "vllm_omni.o"]
IMPORTS = st.builds(
    Import,
    st.sampled_from(MODULES),
    st.sampled_from([None, "alpha", "Beta", "GAMMA", "delta_1", "delta_10"]),
    st.sampled_from([None, None, "other"]),
    st.booleans(),
)
OTHER = [
    "",
    "# comment",
    "X = 1",
    "def f():\n    import inner\n    return 1",
    "class A:\n    pass",
    "try:\n    import maybe\nexcept ImportError:\n    maybe = None",
    "<<<<<<< ours\nY = 1\n||||||| base\nY = 0\n=======\nimport y as Y\n>>>>>>> theirs",
    "if X:\n    Z = 1",
]
STATEMENTS = st.sampled_from(
    [
        "import math",
        "import math, copy  # both",
        "import torch",
        "from vllm.a import alpha",
        "from vllm.a import (\n    alpha,  # of alpha\n    Beta,\n)",
        "from vllm.b import (Beta, GAMMA,\n    alpha)",
        "from vllm_ascend.u import alpha, \\\n    delta_1",
        "if TYPE_CHECKING:\n    from vllm.a import alpha",
        "from vllm_omni.o import alpha as other",
    ]
)
FILES = st.lists(STATEMENTS | st.sampled_from(OTHER), max_size=12).map(lambda parts: "\n".join(parts))


def rest(text: str) -> list[str]:
    """The lines of a file that belong to no import statement, blank lines apart."""
    rows = {row for line in import_lines(text) for row in range(line.start, line.end)}
    lines = [line for row, line in enumerate(split_lines(text)) if row not in rows]
    guards = {"if TYPE_CHECKING:", "pass", ""}
    return [line.rstrip("\r\n") for line in lines if line.strip() not in guards]


@given(FILES, st.lists(IMPORTS, max_size=5), st.sampled_from(["\n", "\r\n"]), st.booleans())
@settings(max_examples=examples(400))
def test_an_edit_changes_nothing_but_imports(text: str, items: list[Import], eol: str, end: bool) -> None:
    text = (text + "\n" * end).replace("\n", eol)
    have = [item for line in import_lines(text) for item in line.imports]
    edit = Edit(add=items[:3], drop=[*have[::2], *items[3:]], package="vllm_omni")
    result = edit_imports(text, edit)
    for answer in answers(result):
        ast.parse(answer.text)
    assert rest(result) == rest(text)
    assert edit_imports(result, Edit(add=items[:3], package="vllm_omni")) == result
    left = {item for line in import_lines(result) if line.head for item in line.imports}
    assert set(items[:3]) <= left
    if eol == "\r\n" and len(rest(text)) > 1:
        assert result.count("\n") == result.count("\r\n")
