from __future__ import annotations

from pathlib import Path

import pytest
from sources_kit import write_tree

from npu_upgrade.code.definitions import absolute
from npu_upgrade.code.names import Import
from npu_upgrade.program.places import definitions, importers, imports_binding, works
from npu_upgrade.program.program import Program
from npu_upgrade.sources.tree import open_source, overlay

FILES = {
    "pkg/__init__.py": "from .a import f\nfrom . import _native\nfrom ._made import stamp\n",
    "pkg/a.py": (
        "import json as j\nlogger = make(__name__)\nX: TypeAlias = int\nY, Z = 1, 2\n"
        "def f(): ...\nclass C:\n    inner = 1\n"
        "try:\n    import t\nexcept ImportError:\n    def u(): ...\n"
        "if Y:\n    V = 1\nfor W in range(2): ...\n"
    ),
    "pkg/star.py": "from .a import *\n",
    "pkg/far.py": "from elsewhere import *\n",
    "pkg/lazy.py": "def __getattr__(name): ...\n",
    "pkg/bad.py": "def (\n",
    "pkg/space/mod.py": "from pkg.a import f\nfrom json import dumps\n",
    "pkg/sub/__init__.py": "from ..a import C as D\nfrom json import dumps\n",
    "other/x.py": "from pkg.a import C\nclass C: ...\n",
}


@pytest.fixture
def trees(tmp_path: Path) -> Program:
    return Program({"pkg": open_source(f"dir:{write_tree(tmp_path, FILES)}")})


@pytest.mark.parametrize("module", ["pkg", "pkg.a", "pkg.sub", "pkg.space", "pkg.space.mod"])
def test_has_modules_and_packages(trees: Program, module: str) -> None:
    assert works(trees, Import(module, None))
    other = module == "pkg"  # what lies outside the trees may work
    assert works(trees, Import(module + "x", None)) is other
    assert works(trees, Import(module + "x", "f")) is other


@pytest.mark.parametrize("name", ["j", "logger", "X", "Y", "Z", "f", "C", "t", "u", "V", "W"])
def test_has_names_bound_at_the_top_level(trees: Program, name: str) -> None:
    assert works(trees, Import("pkg.a", name))
    assert works(trees, Import("pkg.star", name))


@pytest.mark.parametrize(
    ("module", "name"), [("pkg.a", "inner"), ("pkg.star", "no"), ("pkg.sub", "C"), ("pkg", "u")]
)
def test_lacks_other_names(trees: Program, module: str, name: str) -> None:
    assert not works(trees, Import(module, name))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("pkg", "f"),
        ("pkg", "a"),
        ("pkg", "space"),
        ("pkg.sub", "D"),
        ("pkg.far", "anything"),
        ("pkg.lazy", "anything"),
        ("pkg.bad", "anything"),
        ("pkg", "_native"),
        ("pkg._made", "stamp"),
        ("pkg.a", "*"),
    ],
)
def test_gives_the_benefit_of_the_doubt(trees: Program, module: str, name: str) -> None:
    assert works(trees, Import(module, name))


def test_finds_definitions_and_imports(trees: Program) -> None:
    assert definitions(trees, "pkg", "C") == ["pkg.a"]
    assert definitions(trees, "pkg", "logger") == []
    assert definitions(trees, "pkg", "json") == []
    assert importers(trees, Import("pkg.a", "f")) == ["pkg/__init__.py", "pkg/space/mod.py"]
    assert imports_binding(trees, "pkg", "dumps") == [Import("json", "dumps")] * 2


@pytest.mark.parametrize("line", ["from . import t", "from .\\\n  import t", "from pkg.low import t"])
def test_an_importer_need_not_name_the_package(trees: Program, line: str) -> None:
    texts = {"pkg/low/__init__.py": "t = 1\n", "pkg/low/mod.py": f"{line}\n", "pkg/other.py": "t = 2\n"}
    changed = Program({"pkg": overlay(trees.trees["pkg"], texts)})
    assert importers(changed, Import("pkg.low", "t")) == ["pkg/low/mod.py"]


def test_texts_stand_for_files_of_the_tree(trees: Program) -> None:
    texts = {"pkg/a.py": "def g(): ...\n\ndef h(): ...\n"}
    changed = Program({"pkg": overlay(trees.trees["pkg"], texts)})
    assert works(changed, Import("pkg.a", "g"))
    assert works(changed, Import("pkg.a", "h"))
    assert definitions(changed, "pkg", "C") == []


def test_writes_relative_modules_out() -> None:
    assert absolute(Import(".b", "c"), "p/a.py") == Import("p.b", "c")
    assert absolute(Import("..", "c", "d", True), "p/q/__init__.py") == Import("p", "c", "d", True)
    assert absolute(Import("p", "c"), "p/a.py") == Import("p", "c")
