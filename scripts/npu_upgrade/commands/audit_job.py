"""The audit as a step of a job: the merged runners as they are now, and the evidence about them."""

from __future__ import annotations

import argparse
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade import invocation
from npu_upgrade.commands.job_arguments import named_job
from npu_upgrade.deliver import ledger
from npu_upgrade.deliver.job import Job, naming
from npu_upgrade.deliver.plan_file import Plan, load_plan
from npu_upgrade.deliver.subject import Subject
from npu_upgrade.deliver.surroundings import utc_now
from npu_upgrade.errors import BadInput
from npu_upgrade.files import write_json
from npu_upgrade.sources.overlay import overlay
from npu_upgrade.sources.tree import SourceTree, open_source
from npu_upgrade.verdict import Result, Verdict

GATE = "audit"


@dataclass(frozen=True)
class AuditJob:
    """One audit of a job's files; ``omni`` is the tree with the merged runners in it."""

    job: Job
    plan: Plan
    root: Path
    omni: SourceTree
    subject: Subject
    started: str
    begun: float

    @property
    def ascend_spec(self) -> str:
        return self.job.inputs["ascend"]["spec"]

    @property
    def old_omni_spec(self) -> str:
        """The vllm-omni before the merge."""
        return self.job.inputs["omni"]["spec"]

    @property
    def base_spec(self) -> str | None:
        """The vllm-ascend the runners were copied from."""
        base = self.job.inputs["base"]
        return base and base["spec"]

    def finish(
        self, result: Result, pins: dict[str, Any], findings: list[dict[str, Any]], *, partly: bool
    ) -> Result:
        """Record the verdict as evidence, with all ``findings``, and say what comes next.

        Of some checks only, nothing is recorded.
        """
        again = shlex.join(["upgrade.py", GATE, *naming(self.job)])
        result.data |= {"job": self.job.id}
        if partly:
            result.next = again
            return result
        if self.plan.subject(self.root).tree != self.subject.tree:
            raise BadInput(
                "the files changed while they were audited",
                expected="the same content from the beginning to the end",
                try_=f"{again} when nothing else writes to them",
            )
        log = self.job.folder / "audit.json"
        write_json(log, result.as_json() | {"findings": findings})
        record = ledger.record(
            self.job,
            gate=GATE,
            label="static",
            verdict=result.verdict,
            subject=self.subject,
            pins=pins,
            command=invocation.current(),
            started=self.started,
            seconds=time.monotonic() - self.begun,
            summary=result.summary,
            log=log,
            data={"counts": result.data["counts"], "baseline": result.data["baseline"]},
        )
        self.job.finish(GATE, result.verdict, result.summary, {"evidence": record.id})
        result.data |= {"evidence": record.id, "report": str(log)}
        deliver = ["upgrade.py", "deliver", "--repo", self.job.repo or "PATH", *naming(self.job)]
        result.next = again if result.verdict is Verdict.FAIL else shlex.join(deliver)
        return result


def begin(args: argparse.Namespace) -> AuditJob:
    """The audit of the job that the options name; marks the step as running."""
    begun, started = time.monotonic(), utc_now()
    job = named_job(args)
    plan = load_plan(job)
    root = Path(job.repo or job.out or job.folder)
    subject = plan.subject(root)
    omni = open_source(f"dir:{job.repo}") if job.repo else _merged(job, plan, root)
    job.begin(GATE)
    return AuditJob(job, plan, root, omni, subject, started, begun)


def _merged(job: Job, plan: Plan, root: Path) -> SourceTree:
    """The vllm-omni of the job with the merged files of the output folder in their places."""
    texts = {path: (root / path).read_text("utf-8") if kept else None for path, kept in plan.files.items()}
    return overlay(open_source(job.inputs["omni"]["spec"]), texts)
