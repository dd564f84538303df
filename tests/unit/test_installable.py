"""What the installer would lose, list twice or cut: seen in the tree, without installing anything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from documented import ROOT


@pytest.fixture(scope="module")
def listed() -> list[Path]:
    """The files of this checkout, those not yet added included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no git checkout")
    return [Path(name) for name in done.stdout.split("\0") if name and (ROOT / name).exists()]


def test_one_skill_only(listed: list[Path]) -> None:
    assert [str(path) for path in listed if path.name.lower() == "skill.md"] == ["SKILL.md"]


def test_nothing_that_the_installer_drops(listed: list[Path]) -> None:
    dropped = {"metadata.json", "__pycache__", "__pypackages__", ".git"}
    assert [str(path) for path in listed if dropped & set(path.parts)] == []


def test_no_link_that_would_be_copied_twice(listed: list[Path]) -> None:
    assert [str(path) for path in listed if (ROOT / path).is_symlink()] == []


def test_references_are_flat_and_short(listed: list[Path]) -> None:
    references = [path for path in listed if path.parts[0] == "references"]
    assert references
    assert [str(path) for path in references if len(path.parts) != 2] == []
    lines = {str(path): len((ROOT / path).read_text().splitlines()) for path in references}
    assert {name: count for name, count in lines.items() if count >= 500} == {}
