"""Conditions on upstream's version that a new one settles."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from packaging.version import Version
from sources_kit import write_tree

from npu_upgrade.job.ask import CORRECTED, _item
from npu_upgrade.merge.guards import Upstream, guard_items, without_settled
from npu_upgrade.sources.tree import open_source


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    write_tree(tmp_path / "was", {"core/__init__.py": "", "core/mill.py": "def grind(): ...\n"})
    write_tree(tmp_path / "now", {"core/__init__.py": "", "core/mill.py": "def crush(): ...\n"})
    was, now = (open_source(f"dir:{tmp_path / name}") for name in ("was", "now"))
    return Upstream("core", was, now, Version("1.3.0"))


def after(text: str, upstream: Upstream) -> str:
    found = without_settled("ship/own.py", text, upstream)
    assert found
    ast.parse(found.text)
    return found.text


OLD, NEW = 'core_version_is("1.2.0")', 'Version(core.__version__) >= Version("1.2.0")'


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (f"if {OLD}:\n    one()\nelse:\n    # why\n    two()\nthree()\n", "# why\ntwo()\nthree()\n"),
        (f"if not {OLD}:\n    one()\n    # last\nelse:\n    two()\n", "one()\n# last\n"),
        (f"def f():\n    if {OLD}:\n        one()\n", "def f():\n    pass\n"),
        (
            f"if {OLD}:\n    one()\nelif x:\n    two()\nelse:\n    three()\n",
            "if x:\n    two()\nelse:\n    three()\n",
        ),
        (
            f"if x:\n    one()\nelif {OLD}:\n    two()\nelse:\n    three()\n",
            "if x:\n    one()\nelse:\n    three()\n",
        ),
        (
            f"if x:\n    one()\nelif {NEW}:\n    two()\nelse:\n    three()\n",
            "if x:\n    one()\nelse:\n    two()\n",
        ),
        (f"if not {OLD} and (\n    x\n):\n    one()\n", "if x:\n    one()\n"),
        (f"if {OLD} or x or y:\n    one()\n", "if x or y:\n    one()\n"),
        (f"y = f(a if {OLD} else b, c)\n", "y = f(b, c)\n"),
        (f"def f():\n    if {NEW}:\n        return 1\n    two()\n", "def f():\n    return 1\n"),
        (f'if {NEW}:\n    x = """a\n    b"""\n', 'x = """a\n    b"""\n'),
        (f"if {OLD}: one()\nelse: two()\n", "two()\n"),
    ],
)
def test_a_settled_condition_goes_with_its_branch(before: str, then: str, upstream: Upstream) -> None:
    assert after(before, upstream) == then


@pytest.mark.parametrize(
    "test",
    [
        'core_version_is("1.3.0")',  # what comes after it is supported too
        'Version(core.__version__) > Version("1.3.0")',
        'Version(core.__version__) >= Version("1.4.0")',
        'other_version_is("1.2.0")',
        "x",
    ],
)
def test_what_is_not_settled_stays(test: str, upstream: Upstream) -> None:
    text = f"if {test}:\n    one()\nelse:\n    core_version_is\n"
    assert after(text, upstream) == text


def test_the_other_branch_is_for_later_versions_where_the_target_lacks_what_it_imports(
    upstream: Upstream,
) -> None:
    text = f"if {OLD}:\n    grind = 1\nelse:\n    from core.mill import melt\n"
    assert after(text, upstream) == text.replace("1.2.0", "1.3.0")
    dropped = f"if {OLD}:\n    from core.mill import grind\nelse:\n    from core.mill import crush\n"
    assert after(dropped, upstream) == "from core.mill import crush\n"


@pytest.mark.parametrize(
    "text",
    [
        f"if {OLD}:\n    grind(slow=1)\nelse:\n    grind(melt=1)\n",
        f"if not {OLD}:\n    given['melt'] = 1\ngrind(**given)\n",
        f"def f(melt=None):\n    return 1 if {OLD} else melt\n",
    ],
)
def test_the_other_branch_is_for_later_versions_where_the_target_has_no_such_parameter(
    text: str, upstream: Upstream
) -> None:
    assert after(text, upstream) == text.replace("1.2.0", "1.3.0")
    assert "1.3.0" not in after(text.replace("melt", "crush"), upstream)
    own = text.replace("else:\n", "else:\n    def melted(): ...\n").replace("**given", "1")
    assert own == text or "1.3.0" not in after(own, upstream)


def test_what_is_left_to_a_person_is_not_accepted_as_an_edit(tmp_path: Path, upstream: Upstream) -> None:
    files = {"ship/__init__.py": "", "ship/a.py": f"print({OLD})\n", "ship/b.py": f"if {OLD}:\n    one()\n"}
    write_tree(tmp_path / "ship", files)
    items = guard_items(open_source(f"dir:{tmp_path}/ship"), {}, upstream)
    asked = {item.path: _item(item.as_json(), tmp_path / "ship") for item in items}
    assert {path: (one.edit, one.how[0]) for path, one in asked.items()} == {
        "ship/a.py": ("", CORRECTED),
        "ship/b.py": ("guard", ("--accept",)),
    }


def test_a_correction_is_as_what_it_corrects_unless_something_tells(
    tmp_path: Path, upstream: Upstream
) -> None:
    text = 'if core_version_is("1.3.0rc1"):\n    one()\nelse:\n    two()\n'
    assert after(text, upstream) == text.replace("1.3.0rc1", "1.3.0")


def test_constants_are_followed_through_imports(upstream: Upstream, tmp_path: Path) -> None:
    files = {
        "ship/__init__.py": "",
        "ship/flags.py": f"import core\n\nLATE = {NEW}\n",
        "ship/own.py": "from ship.flags import LATE\n\nif LATE:\n    one()\nelse:\n    two()\n",
    }
    write_tree(tmp_path / "ship", files)
    items = guard_items(open_source(f"dir:{tmp_path}/ship"), {}, upstream)
    by_path = {item.path: item for item in items}
    assert "+one()" in by_path["ship/own.py"].detail
    assert "line 3: by hand" in by_path["ship/flags.py"].detail
