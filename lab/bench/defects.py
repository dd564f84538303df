"""The seeded defects of the dry run: what each recipe says, and the edited files it gives.

A defect is a recorded edit of a released triple (see :mod:`bench.edits`) with the runs of the dry run that
should show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.edits import Edit
from bench.incidents import FOLDER, Trees
from npu_upgrade.gates.emulation.catalogue import TIERS, scenarios
from npu_upgrade.ground.errors import BadInput

DEFECTS = FOLDER / "emulated"
_PACKAGES = {"omni": "vllm_omni", "ascend": "vllm_ascend", "vllm": "vllm"}


@dataclass(frozen=True)
class Defect:
    """One recipe. ``runs`` are (tier, scenario), of which only ``probes`` are run, or all without any.

    ``executed`` says whether they are expected to reach the edited lines.
    """

    id: str
    incident: str
    kind: str
    specs: dict[str, str]
    edits: tuple[Edit, ...]
    runs: tuple[tuple[str, Any], ...]
    probes: tuple[str, ...]
    executed: bool
    note: str

    @property
    def paths(self) -> list[str]:
        """The edited files, by their path in the tree."""
        return list(dict.fromkeys(edit["path"] for edit in self.edits))

    @property
    def late(self) -> bool:
        """Whether all edited modules are imported only when an engine starts, vllm-ascend's runner before."""
        return all(path.startswith("vllm_omni/platforms/npu/worker") for path in self.paths)


def load_defects(folder: Path = DEFECTS) -> list[Defect]:
    """All recipes, in the order of their files."""
    return [read_defect(yaml.safe_load(path.read_text("utf-8"))) for path in sorted(folder.glob("*.yaml"))]


def read_defect(data: dict[str, Any]) -> Defect:
    """One recipe's data as a defect; KeyError for what is missing, BadInput for a run that does not exist."""
    runs = tuple(_run(text) for text in data["runs"])
    for name in data.get("probes", ()):
        if not any(probe.name == name for _, one in runs for probe in one.probes):
            raise BadInput(
                f"no probe {name}", expected="one of the scenario's", try_="see upgrade.py emulate --list"
            )
    return Defect(
        id=data["id"],
        incident=data["incident"],
        kind=data["class"],
        specs=data["triple"],
        edits=tuple(data["edits"]),
        runs=runs,
        probes=tuple(data.get("probes", ())),
        executed=data.get("executed", True),
        note=data["note"],
    )


def _run(text: str) -> tuple[str, Any]:
    tier, _, name = text.partition(" ")
    found = [one for one in scenarios() if one.name == name and tier in one.tiers and tier in TIERS]
    if not found:
        raise BadInput(f"no run {text}", expected="TIER SCENARIO of the catalogue", try_="eager plain")
    return tier, found[0]


def texts(trees: Trees, defect: Defect) -> dict[str, tuple[str, str]]:
    """Path -> text before and after the edits; :class:`BadInput` names an edit that does not fit."""
    found = {}
    for part in dict.fromkeys(edit["in"] for edit in defect.edits):
        before = trees.tree(defect.specs, part)
        after = trees.tree(defect.specs, part, defect.edits)
        own = [path for path in defect.paths if path.startswith(_PACKAGES[part] + "/")]
        found |= {path: (before.read(path), after.read(path)) for path in own}
    return found


def write_shadow(edited: dict[str, tuple[str, str]], folder: Path) -> dict[str, str]:
    """Write the edited files below ``folder``; package -> the folder of its edited files."""
    for path, (_, after) in edited.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(after, encoding="utf-8")
    return {name: str(folder / name) for name in _PACKAGES.values() if (folder / name).is_dir()}


def chosen(defects: Sequence[Defect], names: Sequence[str]) -> list[Defect]:
    """The named defects, or all; :class:`BadInput` for a name that does not exist."""
    unknown = set(names) - {defect.id for defect in defects}
    if unknown:
        raise BadInput(
            f"no defect {', '.join(sorted(unknown))}",
            expected=f"names of files in {DEFECTS}",
            try_="leave --case away",
        )
    return [defect for defect in defects if defect.id in names or not names]
