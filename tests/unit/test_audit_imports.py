"""The check for imports, module attributes and dotted paths that the trees do not have."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from audit_kit import NPU, findings, make_world, seen
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from npu_upgrade.audit.world import World
from npu_upgrade.code.definitions import lazy_names
from npu_upgrade.program.live import live_statements
from npu_upgrade.program.version_guards import evaluate, without_dead

FILE = f"{NPU}/tools.py"
PLACE = FILE.removesuffix(".py").replace("/", ".")
VLLM = {
    "vllm/__init__.py": "",
    "vllm/shapes.py": "class Circle:\n    RADIUS = 1\n\n\ndef area(shape):\n    return 1\n",
    "vllm/modes.py": "import enum\n\n\nclass Mode(enum.Enum):\n    FAST = 1\n",
    "vllm/new/rounds.py": "class Square:\n    pass\n",
    "vllm/settings.py": """
        from typing import Any

        variables: dict[str, Any] = {"VLLM_SPEED": lambda: 1, "VLLM_DEPTH": lambda: 2}


        def __getattr__(name):
            if name in variables:
                return variables[name]()
            raise AttributeError(name)
    """,
}


def kinds(tmp_path: Path, text: str, **more: str) -> list[tuple[str, str, str]]:
    files = VLLM | {FILE: text} | {path.replace("__", "/") + ".py": body for path, body in more.items()}
    return seen(make_world(tmp_path, files), "imports")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("from vllm.shapes import area as Circle\n", True),  # the module has a Circle
        ("from vllm.shapes import area as Square\n", False),
        ("from vllm.shapes import Circle as Circle\n", False),
        ("from vllm.shapes import Circle as Mode\n", False),
    ],
)
def test_something_under_the_name_of_another_thing_of_its_module(
    tmp_path: Path, text: str, told: bool
) -> None:
    found = [subject for kind, _, subject in kinds(tmp_path, text) if kind == "under-anothers-name"]
    assert found == ["vllm.shapes.area as Circle"] * told


def test_a_moved_class_is_found_with_its_new_place(tmp_path: Path) -> None:
    world = make_world(tmp_path, VLLM | {FILE: "from vllm.shapes import Circle, Square\n"})
    (found,) = findings(world, "imports")
    assert (found.kind, found.subject, found.here.line) == ("missing-import", "vllm.shapes.Square", 1)
    assert found.todo == "take Square from vllm.new.rounds"


def test_a_module_that_is_gone(tmp_path: Path) -> None:
    text = "import vllm.old.rounds\nfrom vllm.old.rounds import Square\n"
    assert kinds(tmp_path, text) == [
        ("missing-import", "", "vllm.old.rounds"),
        ("missing-import", "", "vllm.old.rounds.Square"),
    ]


def test_a_renamed_function_is_named(tmp_path: Path) -> None:
    world = make_world(tmp_path, VLLM | {FILE: "from vllm.shapes import areas\n"})
    assert "vllm.shapes has area" in findings(world, "imports")[0].todo


def test_where_to_look_for_what_replaced_a_name(tmp_path: Path) -> None:
    user = {"vllm/uses.py": "from vllm.shapes import Line\n\nlong = Line\n"}
    shapes = VLLM["vllm/shapes.py"]
    before = make_world(tmp_path / "old", VLLM | user | {"vllm/shapes.py": f"{shapes}\n\nclass Line: ...\n"})
    files = VLLM | {
        FILE: "from vllm.shapes import Line\n",
        "vllm/patch/patch_shapes.py": "",
        "vllm/other.py": "",
    }
    (found,) = findings(World(make_world(tmp_path / "new", files).triple, before), "imports")
    assert found.todo.endswith(
        "; the old vllm used it in vllm/uses.py:3, vllm/uses.py:1; new there: vllm/patch/patch_shapes.py"
    )
    assert "the old vllm" not in found.what


def test_what_a_module_has_in_place_of_a_class_is_named(tmp_path: Path) -> None:
    shapes = VLLM["vllm/shapes.py"]
    before = make_world(tmp_path / "old", VLLM | {"vllm/shapes.py": f"{shapes}\n\nclass Line: ...\n"})
    now = f"{shapes}\n\nclass Runner: ...\n\nclass _Part: ...\n\ndef draw(): ...\n"
    files = VLLM | {
        FILE: "from vllm.shapes import Line\n",
        "vllm/patch/patch_shapes.py": "",
        "vllm/shapes.py": now,
    }
    (found,) = findings(World(make_world(tmp_path / "new", files).triple, before), "imports")
    assert found.todo.endswith("; new in vllm.shapes: Runner")


def test_imports_inside_functions_and_for_type_checkers_are_lesser_kinds(tmp_path: Path) -> None:
    text = """
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from vllm.shapes import Line

        class Runner:
            def load(self):
                from vllm.shapes import Point
    """
    assert kinds(tmp_path, text) == [
        ("missing-type", "", "vllm.shapes.Line"),
        ("missing-import-late", "Runner.load", "vllm.shapes.Point"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from vllm.shapes import Line\nexcept ImportError:\n    Line = None\n",
        "try:\n    from vllm.shapes import Line\nexcept Exception:\n    Line = None\n",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    from vllm.shapes import Line\n",
        "import vllm.shapes\nif hasattr(vllm.shapes, 'Line'):\n    from vllm.shapes import Line\n",
        "from torch.shapes import Line\n",
        "try:\n    from vllm.shapes import Circle\nexcept ImportError:\n    from vllm.old import Circle\n",
    ],
)
def test_what_is_provided_for_is_no_finding(tmp_path: Path, text: str) -> None:
    assert kinds(tmp_path, text) == []


def test_a_fallback_that_does_not_work_either_is_one(tmp_path: Path) -> None:
    text = "try:\n    from vllm.shapes import Line\nexcept ImportError:\n    from vllm.old import Line\n"
    assert kinds(tmp_path, text) == [("missing-import", "", "vllm.old.Line")]


def test_attributes_of_modules_and_classes(tmp_path: Path) -> None:
    text = """
        import vllm.settings as settings
        from vllm import shapes
        from vllm.modes import Mode

        def run(other):
            shapes.area(shapes.Circle.RADIUS)
            settings.VLLM_SPEED
            Mode.FAST, Mode.SLOW
            settings.VLLM_WIDTH
            shapes.volume(other)
            shapes.__name__
    """
    assert kinds(tmp_path, text) == [
        ("missing-attribute", "run", "vllm.modes.Mode.SLOW"),
        ("missing-attribute", "run", "vllm.settings.VLLM_WIDTH"),
        ("missing-attribute", "run", "vllm.shapes.volume"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "from vllm import shapes\n\ndef run(shapes):\n    shapes.volume\n",
        "from vllm import shapes\n\ndef run():\n    if hasattr(shapes, 'volume'):\n        shapes.volume\n",
        "from vllm import shapes\n\ntry:\n    shapes.volume\nexcept AttributeError:\n    pass\n",
    ],
)
def test_attributes_that_are_asked_for_hidden_or_set(tmp_path: Path, text: str) -> None:
    assert kinds(tmp_path, text) == []


def test_a_class_whose_bases_are_unknown_may_have_anything(tmp_path: Path) -> None:
    net = "import torch\n\n\nclass Net(torch.nn.Module):\n    pass\n\n\nclass Plain:\n    pass\n"
    text = "from vllm.net import Net, Plain\n\nNet.depth, Plain.depth\n"
    assert kinds(tmp_path, text, vllm__net=net) == [("missing-attribute", "", "vllm.net.Plain.depth")]


@pytest.mark.parametrize(
    ("base", "name"),
    [("NamedTuple", "_fields"), ("NamedTuple", "_make"), ("str", "maketrans"), ("int", "from_bytes")],
)
def test_a_class_has_what_its_base_brings(tmp_path: Path, base: str, name: str) -> None:
    text = f"from vllm.pairs import Pair\n\nprint(Pair.{name}, Pair.gone)\n"
    pairs = f"from typing import NamedTuple\n\n\nclass Pair({base}):\n    left: int\n"
    assert kinds(tmp_path, text, vllm__pairs=pairs) == [("missing-attribute", "", "vllm.pairs.Pair.gone")]


def test_a_helper_that_a_class_of_the_file_is_asked_for_by_its_name(tmp_path: Path) -> None:
    text = """
        from vllm.shapes import Circle

        class Ring(Circle):
            width = 1

            @staticmethod
            def _half(value):
                return Ring._third(Ring._half(value)) + Ring.RADIUS + Ring.width

            def run(self, other):
                Ring.seen = other
                return Ring.seen, Ring._abc_impl, Ring.__name__
    """
    assert kinds(tmp_path, text) == [("missing-attribute", "Ring._half", f"{PLACE}.Ring._third")]


def test_a_class_counts_more_than_an_assignment_of_its_name(tmp_path: Path) -> None:
    stub = {"vllm/a/stub.py": "Square = object\n", FILE: "from vllm.shapes import Square\n"}
    (found,) = findings(make_world(tmp_path, VLLM | stub), "imports")
    assert found.todo == "take Square from vllm.new.rounds"


def test_what_a_patch_puts_in_is_there(tmp_path: Path) -> None:
    text = "from vllm import shapes\nfrom vllm.shapes import volume\n\nshapes.volume\n"
    patch = "import vllm.shapes\n\nvllm.shapes.volume = lambda shape: 1\n"
    assert len(kinds(tmp_path / "without", text)) == 2
    assert kinds(tmp_path / "with", text, vllm_ascend__patch__shapes=patch) == []


def test_dotted_paths_in_strings(tmp_path: Path) -> None:
    text = """
        import logging

        log = logging.getLogger("vllm.shapes.Log")

        def worker():
            return "vllm.shapes.Square"

        def good():
            return "vllm.shapes.Circle", "vllm.new.rounds:Square", f"vllm.old.{worker}"

        def test(name):
            return name == "vllm.shapes.Thing"
    """
    assert kinds(tmp_path, text) == [("missing-path", "worker", "vllm.shapes.Square")]


def test_what_is_made_when_the_package_is_built_is_no_finding(tmp_path: Path) -> None:
    build = {"vllm/../setup.py": "extension('vllm.kernels_C')\n", FILE: "import vllm.kernels_C\n"}
    assert seen(make_world(tmp_path, VLLM | build), "imports") == []


def test_branches_for_another_vllm_do_not_count() -> None:
    text = """
if vllm_version_is("1.2.0"):
    import a
elif not vllm_version_is("1.3.0") or ready:
    import b
else:
    import c
"""

    def imported(version: str) -> set[str]:
        live = live_statements(without_dead(ast.parse(text), Version(version)), lambda node: True)
        return {node.names[0].name for one in live if isinstance(node := one.node, ast.Import)}

    assert imported("1.2.0") == {"a"}
    assert imported("1.3.0+empty") == {"b", "c"}
    assert imported("1.4.0") == {"b"}


def test_a_name_for_a_condition_on_the_version_is_one_too() -> None:
    text = """
SUPPORTED = not vllm_version_is("1.2.0")
TWICE = vllm_version_is("1.2.0")
TWICE = True
if SUPPORTED:
    import a
if TWICE and ready:
    import b
def late():
    if SUPPORTED and ready:
        import c
"""

    def imported(version: str) -> set[str]:
        live = live_statements(without_dead(ast.parse(text), Version(version)), lambda node: True)
        return {node.names[0].name for one in live if isinstance(node := one.node, ast.Import)}

    assert imported("1.2.0") == {"b"}
    assert imported("1.3.0") == {"a", "b", "c"}


@given(
    st.recursive(
        st.sampled_from(["vllm_version_is('1.0')", "vllm_version_is('2.0')"]),
        lambda inner: (
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
            | inner.map(lambda one: f"(not {one})")
        ),
    )
)
def test_conditions_come_to_what_python_makes_of_them(text: str) -> None:
    expected = eval(text, {"vllm_version_is": lambda version: version == "1.0"})
    assert evaluate(ast.parse(text, mode="eval").body, Version("1.0")) is expected


def test_the_names_a_module_makes_are_unknown_when_they_are_not_written_down() -> None:
    module = ast.parse("table = build()\ndef __getattr__(name):\n    return table[name] or 'c'\n")
    getter = module.body[1]
    assert isinstance(getter, ast.FunctionDef)
    assert lazy_names(getter, {"table": module.body[0]}) is None
    assert lazy_names(getter, {"table": ast.parse("table = {'a': 1, 'b': 2}").body[0]}) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (
            "if name in table: return 1\n  try: return getattr(other, name)\n  except AttributeError: raise",
            None,
        ),
        ("import other\n  return getattr(other, name)", None),
        ("if name in table: return getattr(other, name)\n  raise AttributeError(name)", {"a"}),
        ("if name not in table: raise AttributeError(name)\n  return getattr(other, name)", {"a"}),
        ("return getattr(load(table[name]), name)", {"a"}),
        ("other = load(table[name])\n  return getattr(other, name)", {"a"}),
    ],
)
def test_the_names_that_a_module_asks_another_one_for(body: str, names: set[str] | None) -> None:
    module = ast.parse(f"table = {{'a': 1}}\ndef __getattr__(name):\n  {body}\n")
    getter = module.body[1]
    assert isinstance(getter, ast.FunctionDef)
    assert lazy_names(getter, {"table": module.body[0]}) == names


def test_what_the_worker_files_import_has_to_import_too(tmp_path: Path) -> None:
    helper = "from vllm.shapes import Line\n\ndef help():\n    from vllm.shapes import Point\n"
    files = VLLM | {FILE: "from vllm_ascend.helper import help\n", "vllm_ascend/helper.py": helper}
    (found,) = findings(make_world(tmp_path, files), "imports")
    assert (found.here.path, found.subject) == ("vllm_ascend/helper.py", "vllm.shapes.Line")


def test_a_patch_of_something_that_is_gone(tmp_path: Path) -> None:
    patch = """
        import vllm.shapes
        from vllm.shapes import Circle

        vllm.shapes.area = len
        vllm.shapes.volume = len
        Circle.RADIUS = 2
        setattr(Circle, "WIDTH", 3)
    """
    gone = [("dead-patch", "", "vllm.shapes.volume"), ("dead-patch", "", "vllm.shapes.Circle.WIDTH")]
    assert kinds(tmp_path / "now", patch) == gone
    without = make_world(tmp_path / "old", VLLM)
    assert seen(make_world(tmp_path / "a", VLLM | {FILE: patch}, old=without), "imports") == []
    had = VLLM | {"vllm/shapes.py": VLLM["vllm/shapes.py"] + "\n\ndef volume():\n    pass\n"}
    with_it = make_world(tmp_path / "with", had)
    assert seen(make_world(tmp_path / "b", VLLM | {FILE: patch}, old=with_it), "imports") == gone[:1]


def test_a_path_to_a_method(tmp_path: Path) -> None:
    text = "PATHS = ['vllm.shapes.Circle.RADIUS', 'vllm.shapes.Circle.grow']\n"
    assert kinds(tmp_path, text) == [("missing-path", "", "vllm.shapes.Circle.grow")]


def test_the_packages_around_the_worker_files_have_to_import_too(tmp_path: Path) -> None:
    files = VLLM | {
        "vllm_omni/platforms/__init__.py": "from vllm.shapes import Line\nfrom vllm_omni.start import run\n",
        "vllm_omni/start.py": "import vllm.gone\n\ndef run():\n    import vllm.gone\n",
        "vllm_omni/elsewhere.py": "import vllm.gone\n",
    }
    found = findings(make_world(tmp_path, files), "imports")
    assert [(one.here.path, one.subject) for one in found] == [
        ("vllm_omni/platforms/__init__.py", "vllm.shapes.Line"),
        ("vllm_omni/start.py", "vllm.gone"),
    ]


MOVED = """
    def square():
        try:
            from vllm.shapes import Square
        except ImportError:
            {handler}
        return Square
"""


def test_a_caught_import_of_what_moved_is_off_without_a_word(tmp_path: Path) -> None:
    world = make_world(tmp_path, VLLM | {FILE: MOVED.format(handler="return False")})
    (found,) = findings(world, "imports")
    assert (found.kind, found.owner, found.subject) == ("missing-optional", "square", "vllm.shapes.Square")
    assert found.todo == "take Square from vllm.new.rounds"


@pytest.mark.parametrize(
    "text",
    [
        MOVED.format(handler="from vllm.new.rounds import Square"),
        MOVED.format(handler="return None").replace("Square", "NowhereAtAll"),
        MOVED.format(handler="return None").replace("vllm.shapes", "other.shapes"),
        MOVED.format(handler="return None").replace("ImportError", "KeyError").replace("Square", "Circle"),
    ],
)
def test_an_import_that_is_provided_for_is_none_of_the_audits_business(tmp_path: Path, text: str) -> None:
    assert kinds(tmp_path, text) == []


@pytest.mark.parametrize(("name", "found"), [("turn", 0), ("turned", 1)])
def test_what_others_take_from_the_npu_side_is_there(tmp_path: Path, name: str, found: int) -> None:
    user = (
        f"def run(x):\n    from vllm_omni.platforms.npu.quant.rotation import {name}\n    return {name}(x)\n"
    )
    files = {
        "vllm_omni/platforms/npu/quant/__init__.py": "",
        "vllm_omni/platforms/npu/quant/rotation.py": "def turn(x):\n    return x\n",
        "vllm_omni/diffusion/attention.py": user + "from vllm_omni.gone import thing\n",
    }
    told = [kind for kind, *_ in seen(make_world(tmp_path, files), "imports")]
    assert told == ["missing-import-late"] * found
