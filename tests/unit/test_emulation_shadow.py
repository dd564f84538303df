"""Modules taken from other files than the installed ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sources_kit import write_tree

EMULATOR = Path(__file__).resolve().parents[2] / "emulator"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    files = {
        "site/pack/__init__.py": "",
        "site/pack/one.py": "said = 'installed one'",
        "site/pack/deep/__init__.py": "said = 'installed deep'",
        "site/pack/deep/two.py": "said = 'installed two'",
        "edited/pack/one.py": "said = 'edited one'",
        "edited/pack/deep/__init__.py": "said = 'edited deep'",
    }
    return write_tree(tmp_path, files)


def said(site: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code.replace("FOLDER", repr(str(site / "edited" / "pack")))],
        env={**os.environ, "PYTHONPATH": f"{EMULATOR}{os.pathsep}{site / 'site'}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


SHADOW = "from npu_emulator.dry_run.shadow import shadow; shadow({'pack': FOLDER}); "


def test_an_edited_module_comes_from_its_folder_and_the_others_are_the_installed_ones(site):
    assert said(site, SHADOW + "from pack import one; print(one.said)") == "edited one"
    assert said(site, SHADOW + "from pack.deep import two; print(two.said)") == "installed two"


def test_an_edited_package_keeps_its_installed_modules(site):
    code = "import pack.deep; from pack.deep import two; print(pack.deep.said, two.said)"
    assert said(site, SHADOW + code) == "edited deep installed two"


def test_a_module_that_was_imported_before_cannot_be_shadowed(site):
    assert "EmulatorFault: pack.one was imported before" in said(site, "import pack.one; " + SHADOW)


def test_without_packages_nothing_changes(site):
    code = "from npu_emulator.dry_run.shadow import shadow; shadow({}); from pack import one; print(one.said)"
    assert said(site, code) == "installed one"
