"""What the reference tells of the checks is what there is."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from npu_upgrade.audit import checks
from npu_upgrade.audit.run import check_names

REFERENCE = Path(__file__).parents[2] / "references" / "audit.md"


def test_the_reference_lists_every_check_in_its_own_words() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", REFERENCE.read_text(), re.MULTILINE))
    modules = {
        name: importlib.import_module(f"{checks.__name__}.{name.replace('-', '_')}") for name in check_names()
    }
    assert rows == {name: module.ABOUT for name, module in modules.items()}
