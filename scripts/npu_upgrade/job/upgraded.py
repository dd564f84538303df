"""The upgrade that stands in a workspace's checkout: what of it is served, and what it stands on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.evidence.chain import OfJob, trusted
from npu_upgrade.evidence.pack import Origin
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.job.changes import base_of, top_folders
from npu_upgrade.job.job import Job, open_job
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.sources.checkout import open_checkout

PACKED = "commit"  # in a job's folder on a machine that has the files of a commit and no git


@dataclass(frozen=True)
class Upgraded:
    """A job that was applied to a checkout, its plan, and the checkout's top folder."""

    job: Job
    plan: Plan
    root: Path

    @property
    def packages(self) -> dict[str, Path]:
        """Each package that the upgrade changes, and the folder that it has to be imported from below."""
        tops = top_folders(self.plan.files)
        return {name: self.root for name in tops if (self.root / name / "__init__.py").is_file()}

    @property
    def of_job(self) -> OfJob:
        """What marks a record as one about the files as they are now."""
        return self.job.of(self.plan.subject(self.root).tree)

    @property
    def commit(self) -> str:
        """The commit that it stands on: HEAD, or the parent of its own delivery there."""
        packed = self.job.folder / PACKED
        if packed.is_file():
            return packed.read_text("utf-8").strip()
        return base_of(open_checkout(self.root), self.job.marker)

    @property
    def origin(self) -> Origin:
        """What evidence of it is bound to when it travels."""
        chain = [record.id for record in trusted(self.job.store.folder).records]
        return Origin(self.job.id, self.commit, self.plan.subject(self.root).files, chain)


def upgraded_in(workspace: Path) -> Upgraded | None:
    """The current upgrade of a workspace; None without one, and for one without a checkout."""
    if not (workspace / WORKSPACE_DIR / "current").is_file():
        return None
    try:
        job = open_job(workspace)
        return Upgraded(job, load_plan(job), Path(job.repo)) if job.repo else None
    except UpgradeError:  # one of another version, or whose plan is gone: its own commands say so
        return None
