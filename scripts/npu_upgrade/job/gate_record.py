"""A served run as evidence of the upgrade job whose runners it served."""

from __future__ import annotations

from pathlib import Path

from npu_upgrade.evidence import ledger
from npu_upgrade.evidence.chain import Record
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.job import find_workspace, open_job
from npu_upgrade.job.plan_file import load_plan
from npu_upgrade.sources.installed import Installed


def into_job(workspace: Path | None, line: Record, installed: Installed) -> str | None:
    """Add the run to the ledger of the current job, when the served vllm_omni is that job's checkout.

    Returns the job's id, or None when the run says nothing about a job.
    """
    here = workspace or find_workspace(Path.cwd())
    if not (here / WORKSPACE_DIR / "current").is_file():
        return None
    try:
        job = open_job(here)
        plan = load_plan(job)
    except UpgradeError:  # another kind of job, or one whose plan is gone: its own commands say so
        return None
    served = installed.folder("vllm_omni")
    if not job.repo or served is None or not served.resolve().is_relative_to(Path(job.repo).resolve()):
        return None
    ledger.record(
        job,
        gate="serve",
        label=line.label,
        verdict=Verdict(line.verdict),
        subject=plan.subject(Path(job.repo)),
        pins=line.pins,
        command=line.command,
        started=line.started,
        seconds=line.seconds,
        summary=line.summary,
        environment=line.environment,
        data={"run": line.data["run"]},
    )
    return job.id
