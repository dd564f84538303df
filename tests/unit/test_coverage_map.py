"""The map of what the bundle covers: every item names a place, and every place is there."""

from __future__ import annotations

import re

import pytest

from documented import COMMANDS, INLINE, LINK, ROOT, leads_somewhere

PAGE = ROOT / "docs" / "source" / "coverage.md"
TARGETS = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def rows(text: str) -> list[tuple[str, str, str]]:
    """Section, item and place of each row."""
    found, section = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| ") and line != "| item | where |":
            item, where = re.fullmatch(r"\| (.+?) \| (.+) \|", line).groups()
            found.append((section, item, where))
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


@pytest.mark.parametrize(("section", "item", "where"), rows(PAGE.read_text()), ids=lambda text: text[:40])
def test_an_item_has_a_place(section: str, item: str, where: str) -> None:
    named = places(where)
    assert named, f"{item}: no link, command or file"
    assert [place for place, there in named if not there] == []


def test_each_section_has_items() -> None:
    text = PAGE.read_text()
    sections = {section for section, _, _ in rows(text)}
    assert sections == set(re.findall(r"^## (.+)$", text, re.MULTILINE))
    assert sections


def test_a_place_that_is_gone_is_found() -> None:
    assert places("[x](../../references/none.md)") == [("../../references/none.md", False)]
    assert places("[x](../../references/audit.md#no-such)") == [("../../references/audit.md#no-such", False)]
    assert places("`upgrade.py none`, `make none`, `scripts/none.py`") == [
        ("upgrade.py none", False),
        ("make none", False),
        ("scripts/none.py", False),
    ]
    assert places("`upgrade.py merge --mark` and `load_model`") == [("upgrade.py merge --mark", True)]
