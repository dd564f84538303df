"""The gates of a finished upgrade: what its evidence says about exactly the files that were committed."""

from __future__ import annotations

from graders.score import Score
from graders.task import Task
from graders.workspace import Workspace
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import sha256
from npu_upgrade.job.job import Job, open_job

NEEDED = ("plan", "audit")
MAY_BE_MISSING = ("emulate",)


def passed(workspace: Workspace, task: Task) -> Score:
    """Plan and audit PASS for the committed files, no gate FAILs, the emulated run made or left out."""
    try:
        job = open_job(workspace.root)
        records = job.records()
    except UpgradeError as error:
        return Score("gates", 0.0, f"no evidence: {error.what}")
    standing = {record.gate: record for record in _of_head(workspace, job, records)}
    if not standing:
        return Score("gates", 0.0, "no gate judged the files that were committed")
    points = [1.0 if _verdict(standing, gate) == "PASS" else 0.0 for gate in NEEDED]
    points += [_emulated(job, standing)]
    said = ", ".join(f"{gate} {_verdict(standing, gate)}" for gate in (*NEEDED, *MAY_BE_MISSING))
    failed = any(record.verdict == "FAIL" for record in standing.values())
    return Score("gates", 0.0 if failed else sum(points) / len(points), said)


def verdicts(workspace: Workspace) -> dict[str, str]:
    """Gate -> its verdict about exactly the committed files."""
    try:
        job = open_job(workspace.root)
        return {record.gate: record.verdict for record in _of_head(workspace, job, job.records())}
    except UpgradeError:
        return {}


def _emulated(job: Job, standing: dict[str, Record]) -> float:
    verdict = _verdict(standing, "emulate")
    if verdict in ("PASS", "BLOCKED", "INCONCLUSIVE"):
        return 1.0
    return 0.5 if "emulate" in job.skipped else 0.0


def _verdict(standing: dict[str, Record], gate: str) -> str:
    return standing[gate].verdict if gate in standing else "missing"


def _of_head(workspace: Workspace, job: Job, records: list[Record]) -> list[Record]:
    """The newest record of each gate of the most files that are those of HEAD.

    An earlier state of the job may have had fewer of them, all as they are: its verdicts are of a part.
    """
    subjects = dict[str, int]()
    for record in records:
        if record.run is None:  # a run judged whole packages
            files = {path: sha256(workspace.after(path)) for path in record.subject.files}
            if record.tree == Subject(files).tree:
                subjects[record.tree] = len(files)
    most = max(subjects, key=lambda tree: subjects[tree], default=None)
    return list(job.store.standing(records, most)) if most else []
