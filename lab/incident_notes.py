#!/usr/bin/env python3
"""Write the incidents that the product shows beside a method: scripts/npu_upgrade/job/incidents.yaml.

The recipes re-create reported incidents; each is told of the methods that it edits, or, where it stands in a
release, of the method that its finding names. After a change of the recipes run
``PYTHONPATH=scripts:lab python lab/incident_notes.py`` with the interpreter of the tools.
"""

from __future__ import annotations

import re

import yaml

from bench.emulator_defects import Defect, load_defects
from bench.incidents import Case, load_cases
from npu_upgrade.job.notes import FILE

REPORTED = re.compile(r"#\d|\d\.\d")  # an issue or a release; the others were made up for measuring
OF_METHODS = {"parity-overrides", "stale-copies"}  # checks whose subject is a method
HEAD = "# Written by lab/incident_notes.py from lab/recipes.\n"


def text() -> str:
    """The content of the file."""
    recipes = [*(case for case in load_cases() if case.group != "negative"), *load_defects()]
    entries = [
        {
            "case": one.id,
            "incident": one.incident,
            "method": method,
            "note": _note(one),
            "found_by": _found_by(one),
        }
        for one in recipes
        if REPORTED.search(one.incident)
        for method in _methods(one)
    ]
    return HEAD + yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=110)


def _note(one: Case | Defect) -> str:
    """What went wrong, without how the recipe came about."""
    unreleased = "The commit that had it is not released; the same defect is re-created here: "
    said = one.note.removeprefix(unreleased)
    return said[:1].upper() + said[1:]


def _methods(one: Case | Defect) -> list[str]:
    edited = [edit["at"] for edit in one.edits if "." in edit.get("at", "")]
    if not one.edits and isinstance(one, Case) and one.expect and OF_METHODS & set(one.expect.checks):
        edited = [f"{one.expect.owner}.{one.expect.subject}"]
    return [at for at in dict.fromkeys(edited) if re.fullmatch(r"\w+\.\w+", at)]


def _found_by(one: Case | Defect) -> str:
    if isinstance(one, Defect):
        return f"emulate: {', '.join(one.named)}"
    return f"audit: {', '.join(one.expect.checks)}" if one.expect else "emulate"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
