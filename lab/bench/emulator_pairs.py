"""The pairs of releases the emulated dry run is measured on, one pair's runs, and the defects known of them.

A run that fails with a known defect of a released pair is expected to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.incidents import FOLDER, read_recipe
from bench.shared import Run
from npu_upgrade.audit.triples import open_project, open_triple
from npu_upgrade.gates.emulation import dry_run
from npu_upgrade.gates.emulation.catalogue import TIERS, chosen
from npu_upgrade.gates.emulation.outcome import FAIL, INCONCLUSIVE, Outcome

KNOWN = FOLDER / "known_defects.yaml"


@dataclass(frozen=True)
class Pair:
    """A vllm-omni on a vllm-ascend, or a vllm-ascend alone; the vllm is the one that belongs with it."""

    omni: str | None
    ascend: str

    @property
    def name(self) -> str:
        return self.omni or self.ascend

    def __str__(self) -> str:
        ascend = f"vllm-ascend {self.ascend}"
        return f"vllm-omni {self.omni} on {ascend}" if self.omni else ascend


MATCHED = [
    Pair(omni, ascend)
    for omni, ascend in (
        ("0.22.0", "0.22.1rc1"),
        ("0.24.0", "0.24.0rc1"),
        ("0.26.0", "0.26.0rc1"),
        ("0.28.0", "0.28.0rc1"),
        ("0.30.0", "0.30.0rc2"),
    )
]
ALONE = [
    Pair(None, ascend)
    for ascend in (
        "0.18.0", "0.20.2rc1", "0.22.1rc1", "0.23.0.post1", "0.24.0rc1", "0.25.1rc1", "0.26.0rc1",
        "0.27.1rc1", "0.28.0rc1", "0.29.0rc1", "0.30.0rc2",
    )
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One outcome of one pair."""

    pair: Pair
    outcome: Outcome

    @property
    def label(self) -> str:
        return f"{self.pair}, {self.outcome.name}"


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
            and outcome.state == FAIL
            and re.search(self.says, outcome.why) is not None
        )


def load_known() -> list[Known]:
    """The recorded defects."""
    return read_recipe(KNOWN, list[Known])


def play_pair(pair: Pair, names: Sequence[str], out: Path, run: Run) -> list[Row]:
    """All runs of a pair in all tiers."""
    outcomes = run.result(f"pair {pair}", list(names), list[Outcome], _play, pair, names, out, good=_clear)
    return [Row(pair, outcome) for outcome in outcomes]


def _play(pair: Pair, names: Sequence[str], out: Path) -> list[Outcome]:
    omni = open_project(f"pypi:vllm-omni=={pair.omni}", "vllm-omni") if pair.omni else None
    triple = open_triple(omni, f"pypi:vllm-ascend=={pair.ascend}", None)
    played = dry_run.run(triple, chosen(names, TIERS, omni=omni is not None), out)
    return [replace(outcome, lines={}) for outcome in played.outcomes]


def _clear(outcomes: list[Outcome]) -> bool:
    return all(outcome.state != INCONCLUSIVE for outcome in outcomes)
