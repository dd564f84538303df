"""``plan.json``, which merge and plan leave in a job's output folder, as far as others read it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from npu_upgrade.evidence.subject import Subject, check_path, subject_of
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.kept import written
from npu_upgrade.job.changes import base_of, changed_since, edited
from npu_upgrade.job.job import Job
from npu_upgrade.lineage.project import KNOWN
from npu_upgrade.sources.checkout import open_checkout

SCHEMA = "npu-upgrade/plan/1"


class _Planned(Struct):
    path: str
    sha256_merged: str | None
    sha256_now: str | None = None


class Plan(Struct):
    """``versions``: omni, ascend, base -> identity (base may be None).

    ``methods`` and ``items`` as written there. ``runners``: the path and the class of each runner, by its
    kind. ``further`` are the files that the merge did not write: what was edited beside them on the NPU side
    since, and what a person included. ``after_gpu`` are the methods in which somebody wrote statements that
    the GPU side has.
    """

    schema: str
    versions: dict[str, dict[str, Any] | None]
    planned: list[_Planned] = field(name="files")
    conflicts_open: int
    methods: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    runners: dict[str, dict[str, str]] = {}
    further: dict[str, bool] = {}
    after_gpu: list[str] = []

    @property
    def files(self) -> dict[str, bool]:
        """Repo-relative path -> whether the upgrade keeps it; False: it deletes it."""
        return {one.path: one.sha256_merged is not None for one in self.planned} | self.further

    @property
    def hashes(self) -> dict[str, str]:
        """The content of each file when it was last checked, else when it was merged."""
        return {one.path: one.sha256_now or one.sha256_merged or "" for one in self.planned}

    def subject(self, root: Path) -> Subject:
        """What evidence about this upgrade is bound to: all files of the plan as they are below ``root``."""
        return subject_of(root, self.files)

    def items_in(self, state: str) -> list[dict[str, Any]]:
        return [item for item in self.items if item.get("state") == state]


def plan_path(job: Job) -> Path:
    """Where the plan of a job is."""
    return Path(job.out or job.folder) / "plan.json"


def load_plan(job: Job, repo: Path | None = None) -> Plan:
    """The plan of a job; raises :class:`BadInput` when merge has not written one that can be read.

    ``repo`` is the checkout with its files, where that is not the job's own.
    """
    path = plan_path(job)
    plan = written(path, Plan, schema=SCHEMA, try_="run upgrade.py merge again")
    if plan is None:
        raise BadInput(
            f"job {job.id} has no plan: {path} is missing",
            expected="plan.json, which merge writes",
            try_="upgrade.py next",
        )
    for one in plan.planned:
        check_path(one.path)
    root = repo or (Path(job.repo) if job.repo else None)
    further = _further(job, root, plan.files) if root else []
    plan.further = {name: (root / name).exists() for name in further if root}
    return plan


def _further(job: Job, repo: Path, files: Collection[str]) -> list[str]:
    """What belongs to the upgrade beyond the merged files.

    It is the edits in their folders and of the side's other files, and those that an answer speaks of, an
    audit asked for, or a person included.
    """
    try:
        checkout = open_checkout(repo)
        folders = {str(Path(path).parent) for path in files} - {"."}
        base = base_of(checkout, job.marker)
        project = next((one for one in KNOWN if one.name == job.project and one.device), None)
        there = edited(checkout, base, {*folders, project.package} if project else folders)
        beside = {
            path
            for path in there
            if (project and project.holds(path)) or any(map(Path(path).is_relative_to, folders))
        }
        answered = {entry.path for entry in job.journal.answers() if entry.path and entry.how != "waive"}
        audits = (one.data for one in job.ledger().records if one.gate == "audit")
        wanted = answered.union(job.included, *(data.get("failing_in", ()) for data in audits))
        beside |= {*changed_since(checkout, base, wanted - beside - set(files))}
    except UpgradeError:  # whoever commits there is told why git cannot
        return []
    return sorted(beside - set(files))
