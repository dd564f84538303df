"""Precision: the findings on matching releases, joined with what a person said of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.incidents import FOLDER, Trees
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import run_checks
from npu_upgrade.audit.triples import old_triple
from npu_upgrade.audit.world import World

# vllm-omni with the vllm-ascend and vllm that belong with it
RELEASES = {
    "0.22.0": ("0.22.1rc1", "0.22.1"),
    "0.26.0": ("0.26.0rc1", "0.26.0"),
    "0.30.0": ("0.30.0rc2", "0.30.0"),
}


@dataclass(frozen=True)
class Reviewed:
    """A finding on a release and the verdict on it; None where nobody has looked."""

    release: str
    finding: Finding
    verdict: bool | None


def reviewed(releases: Sequence[str] = tuple(RELEASES)) -> list[Reviewed]:
    """All findings on the releases, seen beside the release before as the command does, with verdicts."""
    verdicts = load_reviews()
    found = []
    for release in releases:
        triple = Trees().triple(specs_of(release))
        before = old_triple(triple)
        findings = run_checks(World(triple, World(before) if before else None))
        found += [Reviewed(release, item, verdicts.get((release, item.key))) for item in findings]
    return found


def load_reviews(folder: Path = FOLDER / "reviews") -> dict[tuple[str, str], bool]:
    """Release and key -> whether the finding is true."""
    entries = [
        e for path in sorted(folder.glob("*.yaml")) for e in yaml.safe_load(path.read_text("utf-8")) or []
    ]
    return {(str(entry["release"]), entry["key"]): bool(entry["verdict"]) for entry in entries}


def specs_of(release: str) -> dict[str, str]:
    """The matching triple of a vllm-omni release."""
    ascend, vllm = RELEASES[release]
    return {
        "omni": f"pypi:vllm-omni=={release}",
        "ascend": f"pypi:vllm-ascend=={ascend}",
        "vllm": f"pypi:vllm=={vllm}",
    }


def precision(items: Sequence[Reviewed]) -> float:
    """The share of true findings; one that nobody reviewed counts as not true."""
    return sum(item.verdict is True for item in items) / len(items) if items else 0.0
