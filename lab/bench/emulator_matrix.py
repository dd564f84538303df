"""The pairs of releases the emulated dry run is measured on, and one pair's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.audit.triples import open_project, open_triple
from npu_upgrade.gates.emulation.catalogue import TIERS, chosen
from npu_upgrade.gates.emulation.dry_run import run, run_kept
from npu_upgrade.gates.emulation.outcome import Outcome


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


def play_pair(pair: Pair, names: Sequence[str], out: Path, *, kept: bool = False) -> list[Row]:
    """All runs of a pair in all tiers; ``kept`` takes outcomes of the same content from the cache."""
    omni = open_project(f"pypi:vllm-omni=={pair.omni}", "vllm-omni") if pair.omni else None
    triple = open_triple(omni, f"pypi:vllm-ascend=={pair.ascend}", None)
    play = run_kept if kept else run
    played = play(triple, chosen(names, TIERS, omni=omni is not None), out)
    return [Row(pair, outcome) for outcome in played.outcomes]
