"""Which code a plan is about, and which runs judged exactly that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.judged import judged

PACKAGES = {"vllm": "vllm", "ascend": "vllm_ascend"}
_DISTRIBUTIONS = {"vllm": "vllm", "vllm_ascend": "vllm-ascend"}


@dataclass(frozen=True)
class PlannedCode:
    """The packages of a plan. ``folders``: package -> where it lies; ``hashes``: its code as it is now.

    ``versions``: package -> the release that was read, where the plan names no folder.
    """

    folders: dict[str, Path] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def objection(self, record: Record) -> str:
        """Why a run is not of this code; empty when it is."""
        ran: dict[str, str] = record.subject["files"]
        for package, folder in self.folders.items():
            if package not in ran and not _is_needless(package, record):
                return f"{package} of {folder} did not run"
            if package in ran and ran[package] != self.hashes[package]:
                return f"it ran another {package} than {folder} holds now"
        for package, version in self.versions.items():
            said = record.pins.get(_DISTRIBUTIONS[package], {}).get("version")
            if package in ran and said and _public(said) != _public(version):
                return f"it ran {package} {said}, the plan is for {version}"
        return ""


def planned_code(plan: dict[str, Any]) -> PlannedCode:
    """The code that ``plan`` names: its trees of vLLM and vllm-ascend, and its plugin."""
    folders, versions = {}, {}
    trees = plan.get("trees")
    for name, package in PACKAGES.items():
        tree = trees.get(name) if isinstance(trees, dict) else None
        if not isinstance(tree, dict):
            continue
        if tree.get("spec"):  # a release or a commit, whose code lies nowhere here
            versions |= {package: str(tree["version"])} if tree.get("version") else {}
        elif (folder := Path(str(tree.get("root"))) / package).is_dir():
            folders[package] = folder
    plugin = trees.get("plugin") if isinstance(trees, dict) else None
    if isinstance(plugin, dict) and (folder := Path(str(plugin["root"]), str(plugin["package"]))).is_dir():
        folders[folder.name] = folder
    return PlannedCode(folders, dict(judged(folders)[0].files), versions)


def divided(records: Sequence[Record], code: PlannedCode) -> tuple[list[Record], list[tuple[Record, str]]]:
    """The runs that count, and the others with the reason.

    What the plan says nothing of has to be the same as in the newest run of the same label.
    """
    objections = [(record, code.objection(record)) for record in records]
    newest = {record.label: record.subject["files"] for record, why in objections if not why}
    counted, others = [], []
    for record, why in objections:
        why = why or _differs(record, newest[record.label])
        if why:
            others.append((record, why))
        else:
            counted.append(record)
    return counted, others


def _differs(record: Record, newest: dict[str, str]) -> str:
    ran = record.subject["files"]
    other = next((name for name in newest if ran.get(name) != newest[name]), None)
    return f"it ran another {other} than the newest {record.label} run" if other else ""


def _is_needless(package: str, record: Record) -> bool:
    """vllm-ascend takes no part on a CPU."""
    return package == "vllm_ascend" and record.label.startswith("CPU")


def _public(version: str) -> str:
    """A version without its local part, as in ``0.30.0+cpu``."""
    return version.partition("+")[0]
