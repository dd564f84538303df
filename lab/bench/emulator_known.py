"""Known defects of released pairs: an emulated run that fails with one of them is expected to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.emulator_matrix import Pair
from bench.incidents import FOLDER
from npu_upgrade.gates.emulation.outcome import Outcome

FILE = FOLDER / "known_defects.yaml"


@dataclass(frozen=True)
class Known:
    """``says`` is a pattern of the failure's text; ``scenario`` and ``tier`` may be left out: any.

    ``fixed_by`` names the recorded upgrade (see the file of upgrades) whose fix makes this run pass.
    """

    ascend: str
    says: str
    incident: str
    omni: str | None = None
    scenario: str | None = None
    tier: str | None = None
    fixed_by: str | None = None

    def explains(self, pair: Pair, outcome: Outcome) -> bool:
        """Whether this defect is what failed there."""
        return (
            (self.omni, self.ascend) == (pair.omni, pair.ascend)
            and self.scenario in (None, outcome.scenario)
            and self.tier in (None, outcome.tier)
            and outcome.state == "FAIL"
            and re.search(self.says, outcome.why) is not None
        )


def load_known(file: Path = FILE) -> list[Known]:
    """The recorded defects."""
    return [Known(**entry) for entry in yaml.safe_load(file.read_text(encoding="utf-8"))]
