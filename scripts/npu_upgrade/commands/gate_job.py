"""A gate as a step of a job: the merged runners as they are now, and the evidence about them."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npu_upgrade.audit.belonging import belonging
from npu_upgrade.audit.triples import check_parses, named_triple, old_triple, open_project, open_triple
from npu_upgrade.audit.world import Triple
from npu_upgrade.commands.asking import ending
from npu_upgrade.commands.job_arguments import named_job
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.run_folder import RunFolder
from npu_upgrade.evidence.runs import RESULT
from npu_upgrade.evidence.store import Outcome
from npu_upgrade.evidence.subject import Subject, read_bytes
from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground import command
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.errors import BadInput, ChangedError, UpgradeError
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.job import STAGES, Job, naming
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.job.upgrade import not_for
from npu_upgrade.sources.content import content_digest
from npu_upgrade.sources.tree import SourceTree, open_source, overlay


@dataclass(frozen=True)
class GateJob:
    """One run of a gate on a job's files; ``tree`` is the downstream with the merged files in it."""

    gate: str
    label: str
    job: Job
    plan: Plan
    root: Path
    tree: SourceTree
    subject: Subject
    started: str
    begun: float

    def triple(self, ascend: str | None = None, vllm: str | None = None) -> Triple:
        """What is judged: the files on the job's upstream, or on others that were named."""
        target = self.job.inputs.ascend.spec
        if self.job.of_omni:
            check_parses(self.tree)
            return open_triple(self.tree, ascend or target, vllm)
        return Triple(None, self.tree, open_project(vllm or target, "vllm"))

    def snapshot(self) -> GateJob:
        """The same, of the files as they are now, whatever is written to them later."""
        if not self.job.repo:
            return self
        texts = _texts(self.root, self.plan)
        self.check()
        return replace(self, tree=overlay(self.tree, texts))

    def finish(
        self,
        result: Result,
        pins: dict[str, Any],
        whole: dict[str, Any],
        evidence: dict[str, Any],
        logs: Sequence[Path] | None = None,
        *,
        edited: bool = False,
    ) -> Result:
        """Record the verdict as evidence, and say what comes next.

        ``whole`` is what the gate's log holds beside the result, ``evidence`` what the record itself holds;
        a gate that starts something gives the ``logs`` of it, and is a run with a folder of its own.
        ``edited``: it judged a snapshot of files that are others now, which is no step of the job.
        """
        result.data |= {"job": self.job.id}
        if not edited:
            self.check()
        log = self.job.folder / f"{self.gate}{'-before-edit' if edited else ''}.json"
        write_json(log, result.as_json() | whole)
        outcome = Outcome(
            gate=self.gate,
            job=self.job.of(self.subject.tree),
            label=self.label,
            verdict=result.verdict,
            subject=self.subject,
            pins=pins,
            command=command.current(),
            started=self.started,
            seconds=time.monotonic() - self.begun,
            summary=result.summary,
            log=log,
            data=evidence,
        )
        record = self.job.store.record(outcome, None if logs is None else self._run(log, logs))
        result.data |= {"evidence": record.id, "report": str(log)}
        if edited:
            return result
        if self.gate in STAGES:
            self.job.finish(self.gate, result.verdict, result.summary, evidence=record.id)
        return ending(result, self.job, lists=True)

    @property
    def is_edited(self) -> bool:
        """Whether the files are others than when the gate began."""
        return self.plan.subject(self.root).tree != self.subject.tree

    def check(self) -> None:
        """Raise :class:`ChangedError` unless the files are as they were when the gate began."""
        if self.is_edited:
            raise self.changed()

    def check_all(self) -> None:
        """The same, and raise it too where the upgrade has other files by now: an edit can add one."""
        self.check()
        if load_plan(self.job).subject(self.root).tree != self.subject.tree:
            raise self.changed()

    def changed(self) -> ChangedError:
        """What a gate raises that judges files which are not the present ones any more."""
        return ChangedError(
            f"the files changed while gate {self.gate} judged them",
            expected="the same content from start to end; in the background an edit may end a run",
            try_=f"{self.again.short} judges them as they are now",
        )

    def _run(self, result: Path, logs: Sequence[Path]) -> RunFolder:
        folder = self.job.store.begin(self.gate, Redactor())
        folder.log(RESULT, result)
        for log in logs:
            folder.log(log.name, log)
        return folder

    @property
    def again(self) -> Command:
        """The command that runs this gate again."""
        if self.gate not in STAGES:
            return Command.of(command.current())
        return upgrade(self.gate, *naming(self.job))


@contextlib.contextmanager
def told(args: argparse.Namespace, gate: str) -> Generator[None]:
    """Note in the job that a gate which had begun could not judge: `next` is not to repeat it for ever."""
    try:
        yield
    except BadInput as error:
        with contextlib.suppress(UpgradeError):
            job = named_job(args)
            attempt = job.attempt(gate)
            if attempt.running and attempt.begun and attempt.begun.pid == os.getpid():
                # the same call judges what the files are now
                again = isinstance(error, ChangedError)
                outputs = {} if again else {"error": error.what, "try": error.try_}
                job.finish(gate, Verdict.INCONCLUSIVE, error.what, outputs)
        raise


def begin(args: argparse.Namespace, gate: str, label: str, *, whole: bool = True) -> GateJob:
    """The gate of the job that the options name; a whole run of it is noted in the job as begun."""
    begun, started = time.monotonic(), utc_now()
    job = named_job(args)
    if why := not_for(job, gate):
        raise BadInput(
            f"gate {gate} cannot judge this job: {why}",
            expected="the runners of vllm-omni on vllm-ascend, or a project on vllm (emulate: vllm-ascend)",
            try_=upgrade("next", *naming(job)).short,
        )
    plan = load_plan(job)
    root = job.root
    subject = plan.subject(root)
    tree = open_source(f"dir:{job.repo}") if job.repo else _merged(job, plan, root)
    if whole:
        job.begin(gate)
    return GateJob(gate, label, job, plan, root, tree, subject, started, begun)


def _merged(job: Job, plan: Plan, root: Path) -> SourceTree:
    """The downstream of the job with the merged files of the output folder in their places."""
    return overlay(open_source(job.inputs.omni.spec), _texts(root, plan))


def _texts(root: Path, plan: Plan) -> dict[str, str | None]:
    """The files of the plan as they are, None for one that is not there; no file that is no text."""
    found: dict[str, str | None] = {}
    for path, kept in plan.files.items():
        data = read_bytes(root / path) if kept else None
        with contextlib.suppress(UnicodeDecodeError):
            found[path] = None if data is None else data.decode()
    return found


def pins(triple: Triple) -> dict[str, Any]:
    """Which vllm-ascend and vllm a gate judged against, as evidence names them."""
    names = {"vllm_ascend": "ascend", "vllm": "vllm"}
    found = {}
    for top, tree in triple.trees().items():
        if top in names:
            exact = tree.version or (tree.sha and not tree.dirty)
            found[names[top]] = tree.identity() | ({} if exact else {"tree": content_digest(tree)})
    return found


def baseline(specs: list[str], triple: Triple, job: Job | None) -> Triple | None:
    """The old pair that ``--baseline`` asks for: auto, none, or specs; of a job the one before the merge."""
    if specs == ["none"]:
        return None
    base = None
    if job:
        inputs = job.inputs
        base = inputs.base.spec if inputs.base else None
        if not job.of_omni:
            before = open_source(inputs.omni.spec)
            if specs == ["auto"] and base:
                return Triple(None, before, open_project(base, "vllm"))
            triple = Triple(None, before, triple.vllm)
        else:
            triple = Triple(open_project(inputs.omni.spec, "vllm-omni"), triple.ascend, triple.vllm)
    if specs == ["auto"]:
        return old_triple(triple, base)
    old = named_triple(specs, triple)
    if job and (old.ascend.spec, old.vllm.spec) == (triple.ascend.spec, triple.vllm.spec):
        raise BadInput(
            f"--baseline is the target itself, {old.ascend.spec}: it would excuse what the upgrade fixes",
            expected="the pair that the tree ran with before",
            try_="--baseline auto",
        )
    return old


@dataclass(frozen=True)
class Trees:
    """What a gate looks at, and the matched old pair that it is compared with."""

    triple: Triple
    old: Triple | None
    job: GateJob | None

    @functools.cached_property
    def problems(self) -> list[str]:
        """What speaks against the trees, said as it is found."""
        found = [finding.what for finding in belonging(self.triple)]
        for problem in found:
            say(f"note: these do not belong together: {problem}")
        return found

    @property
    def data(self) -> dict[str, Any]:
        return {
            "problems": self.problems,
            "triple": {name: tree.identity() for name, tree in self.triple.trees().items()},
            "baseline": self.old and {name: tree.spec for name, tree in self.old.trees().items()},
        }

    def head(self, title: str = "") -> str:
        """The first lines for people."""
        apart = "".join(f"DO NOT BELONG TOGETHER: {problem}\n" for problem in self.problems)
        return f"{apart}{title}compared with: {named(self.old) if self.old else 'nothing'}\n\n"


def named(triple: Triple) -> str:
    """The trees of a triple with their versions, for people."""
    return " + ".join(
        f"{tree.project} {tree.version or (tree.sha or 'working tree')[:12]}"
        for tree in triple.trees().values()
    )
