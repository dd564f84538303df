"""The map of what the bundle covers: every item names a place that is there, and the test that proves it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from documented import COMMANDS, INLINE, LINK, ROOT, leads_somewhere

PAGE = ROOT / "docs" / "source" / "coverage.md"
HEAD = "| item | where | test | runs |"
TARGETS = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
RUNS = {  # the longest that fits
    "tests/unit": "unit",
    "tests/replay": "releases",
    "tests/incidents": "releases",
    "tests/incidents/test_emulated": "emulated",
    "tests/emulator": "emulated",
    "tests/serve": "engine",
    "tests/runners": "unit",
    "tests/runners/test_hooks": "releases",
    "tests/runners/test_on_vllm": "engine",
    "tests/runners/test_installed": "engine",
    "tests/runners/inside": "engine",
    "tests/install": "install",
}
MOST_WITHOUT = 0.1


class Row(NamedTuple):
    section: str
    item: str
    where: str
    tests: list[str]
    runs: str
    test_cell: str


def rows(text: str) -> list[Row]:
    """The rows of the tables below the sections."""
    found, section = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif section and line.startswith("| ") and line != HEAD:
            item, where, test, runs = re.fullmatch(r"\| (.+?) \| (.+) \| (.+) \| (.+) \|", line).groups()
            tests = re.findall(r"`(tests/[^`\s]+::\w+)`", test)
            found.append(Row(section, item, where, tests, runs, test))
    return found


def places(where: str) -> list[tuple[str, bool]]:
    """Each link, command, make target and file that a cell names, with whether it is there."""
    found = [(link, leads_somewhere(PAGE, link)) for link in LINK.findall(where)]
    for code in INLINE.findall(where):
        words = code.split()
        if words[0] in COMMANDS:
            found.append((code, words[1] in COMMANDS[words[0]]))
        elif words[0] == "make":
            found.append((code, words[1] in TARGETS))
        elif "/" in words[0]:
            found.append((code, (ROOT / words[0]).exists()))
    return found


@cache
def functions(path: Path) -> set[str]:
    """The tests at the top level of a file."""
    if not path.is_file():
        return set()
    body = ast.parse(path.read_text()).body
    return {one.name for one in body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")}


def where_it_runs(test: str) -> str:
    return RUNS[max((folder for folder in RUNS if test.startswith(folder)), key=len)]


def wrong(row: Row) -> list[str]:
    """What the last two cells of a row say that is not so."""
    if row.runs == "hardware":
        return (
            [] if not row.tests and "validate-npu" in row.test_cell else ["hardware is `make validate-npu`"]
        )
    if row.runs == "-":
        said = row.test_cell.startswith("none: ") and not row.tests
        return [] if said else ["a row without a test says none: and why"]
    gone = [
        f"there is no {one}"
        for one in row.tests
        if one.partition("::")[2] not in functions(ROOT / one.partition("::")[0])
    ]
    there = list(dict.fromkeys(map(where_it_runs, row.tests)))
    odd = [] if ", ".join(there) == row.runs else [f"runs {row.runs}, but its tests run {', '.join(there)}"]
    return (gone or odd) if row.tests else ["it names no test"]


@pytest.mark.parametrize("row", rows(PAGE.read_text()), ids=lambda row: row.item[:40])
def test_an_item_has_a_place_and_a_test(row: Row) -> None:
    named = places(row.where)
    assert named, f"{row.item}: no link, command or file"
    assert [place for place, there in named if not there] == []
    assert wrong(row) == []


def test_few_items_have_no_test() -> None:
    found = [row for row in rows(PAGE.read_text()) if row.runs != "hardware"]
    without = [row.item for row in found if not row.tests]
    assert len(without) <= MOST_WITHOUT * len(found), without


def test_each_section_has_items() -> None:
    text = PAGE.read_text()
    sections = {row.section for row in rows(text)}
    assert sections == set(re.findall(r"^## (.+)$", text, re.MULTILINE))
    assert sections
    assert text.count(HEAD) == len(sections)


def test_a_place_that_is_gone_is_found() -> None:
    assert places("[x](../../references/none.md)") == [("../../references/none.md", False)]
    assert places("[x](../../references/audit.md#no-such)") == [("../../references/audit.md#no-such", False)]
    assert places("`upgrade.py none`, `make none`, `scripts/none.py`") == [
        ("upgrade.py none", False),
        ("make none", False),
        ("scripts/none.py", False),
    ]
    assert places("`upgrade.py merge --mark` and `load_model`") == [("upgrade.py merge --mark", True)]


HERE = f"tests/unit/{Path(__file__).name}::test_few_items_have_no_test"


@pytest.mark.parametrize(
    ("test", "runs", "why"),
    [
        (f"`{HERE}`", "unit", ""),
        (f"`{HERE}`", "engine", "runs engine, but its tests run unit"),
        (f"`{HERE}ever`", "unit", "there is no"),
        ("`tests/unit/test_none.py::test_x`", "unit", "there is no"),
        ("seen by hand", "unit", "it names no test"),
        ("none: a person reads it", "-", ""),
        ("", "-", "says none: and why"),
        (f"`{HERE}`", "hardware", "hardware is"),
        ("`make validate-npu`", "hardware", ""),
    ],
)
def test_a_wrong_cell_is_found(test: str, runs: str, why: str) -> None:
    (row,) = rows(f"## S\n| item | `make test` | {test or ' '} | {runs} |")
    found = wrong(row)
    assert (why in found[0]) if why else (found == []), found
