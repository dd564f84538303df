"""An upgrade job in the user's workspace: its inputs, where its results are, and its journal.

Everything is below ``.npu-upgrade/``: ``current`` names the job at hand, ``jobs/<id>/`` holds ``job.json``
and the journal. How far a stage got is read from the journal and the evidence (:mod:`.upgrade`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from npu_upgrade.evidence import chain
from npu_upgrade.evidence.chain import Ledger, OfJob, Record
from npu_upgrade.evidence.store import Store, present_store
from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground import command as called
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_atomic, write_json
from npu_upgrade.ground.locks import locked
from npu_upgrade.ground.paths import WORKSPACE_DIR, workspace_root
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.journal import Attempt, Ended, Journal, Skipped
from npu_upgrade.job.stages import find_workspace as find_workspace
from npu_upgrade.job.stages import named_from_here
from npu_upgrade.lineage.project import KNOWN, distribution

SCHEMA = "npu-upgrade/job/2"
STAGES = ("merge", "plan", "audit", "emulate", "deliver")
SYNC, SAFE, ALL = SCOPES = ("sync", "safe", "all")
NEIGHBOUR = "emulate-neighbour"  # the gate of an emulated run on another target than the job's
FIND_OR_START = (
    "--workspace DIR, the checkout that merge --apply wrote to or the folder merge --out was run in; "
    "or start one: upgrade.py discover, then upgrade.py merge with the two versions it names"
)


def ruling() -> str:
    """What to do about a run that fails and seems to be wrong itself, for a refusal."""
    letting_pass = called.upgrade("next", "--skip", "emulate", "--note", "WHY").short
    said = "that a run which fails is wrong itself is for a person to say"
    return f"{said}: {letting_pass} lets it pass, and the commit tells"


class Source(Struct, frozen=True):
    """One input: its canonical spec, and what it was found to be."""

    spec: str
    identity: dict[str, Any]


class Inputs(Struct, frozen=True):
    """The downstream (``omni``), the upstream to upgrade to (``ascend``), and the one it is on now.

    ``whole``: what is merged are the copies in all its files, else those of vllm-omni's runners.
    """

    omni: Source
    ascend: Source
    base: Source | None = None
    whole: bool = False

    def named(self) -> dict[str, Source]:
        """Role -> source, of those that were given."""
        return {role: one for role in ("omni", "ascend", "base") if (one := getattr(self, role))}


@dataclass
class Job:
    """One job, as ``job.json`` in its ``folder`` has it.

    ``out`` holds the results (``plan.json``); ``repo`` and ``branch`` are the checkout merge applied to;
    ``included`` are files of it that a person named as part of the upgrade. ``scope`` is what it takes of the
    GPU side's gains: nothing, what fits, or what a person answers for each.
    """

    folder: Path
    id: str
    created: str
    inputs: Inputs
    out: str | None = None
    repo: str | None = None
    branch: str | None = None
    included: list[str] = field(default_factory=list)
    scope: str = SAFE

    @property
    def project(self) -> str:
        """The name of the project that is upgraded."""
        return str(self.inputs.omni.identity.get("project") or KNOWN[0].name)

    @property
    def upstream(self) -> str:
        """The name of the project that it is upgraded to."""
        return str(self.inputs.ascend.identity.get("project") or distribution(KNOWN[0].upstreams[0]))

    @property
    def of_omni(self) -> bool:
        """Whether the runners of vllm-omni are merged; else the copies of a whole project."""
        return not self.inputs.whole

    @property
    def root(self) -> Path:
        """The folder with the files of the job."""
        return Path(self.repo or self.out or self.folder)

    @property
    def workspace(self) -> Path:
        return self.folder.parents[2]

    @property
    def journal(self) -> Journal:
        return Journal(self.folder)

    @property
    def store(self) -> Store:
        """The evidence of the workspace."""
        return present_store(self.workspace)

    @property
    def marker(self) -> str:
        """The trailer of the commit that delivers it."""
        return f"Upgrade-Job: {self.id}"

    @property
    def skipped(self) -> dict[str, str]:
        """What a person chose not to do, with the reason; delivery names it."""
        return self.journal.skipped()

    def ruled_wrong(self, record: Record) -> bool:
        """Whether a person left the gate out after it had failed: the run itself is wrong, they say."""
        ended = datetime.fromisoformat(record.started) + timedelta(seconds=int(record.seconds))
        left_out = (
            datetime.fromisoformat(one.at) for one in self.journal.of(Skipped) if one.id == record.gate
        )
        return record.verdict == "FAIL" and any(at >= ended for at in left_out)

    def ledger(self) -> Ledger:
        """The records of this job, and whether they can be trusted."""
        return self.store.of_job(self.id)

    def records(self) -> list[Record]:
        """The records of this job; raises :class:`BadInput` when the chain cannot be trusted."""
        chain.trusted(self.store.folder)
        return self.ledger().records

    def of(self, tree: str) -> OfJob:
        """What marks a record as one of this job, about ``tree``."""
        return OfJob(self.id, tree)

    def attempt(self, stage: str) -> Attempt:
        """The last run of a stage; an earlier stage that ended with something new makes it one to do."""
        return self.journal.attempt(stage, STAGES[: STAGES.index(stage)])

    def begin(self, stage: str, command: list[str] | None = None) -> None:
        """Note that this process runs a stage; :class:`BadInput` when another live process does."""
        self.journal.begin(stage, command if command is not None else called.current())

    def finish(
        self,
        stage: str,
        verdict: Verdict,
        summary: str,
        outputs: Mapping[str, Any] | None = None,
        evidence: str = "",
    ) -> None:
        """Note how a stage ended; ``evidence`` is the record that holds the verdict of a gate."""
        said = {} if evidence else {"verdict": verdict.value, "summary": summary}
        self.journal.add(Ended, stage=stage, outputs=dict(outputs or {}), evidence=evidence, **said)

    def place(
        self,
        *,
        out: Path | None = None,
        repo: Path | None = None,
        branch: str | None = None,
        included: list[str] | None = None,
        scope: str | None = None,
    ) -> None:
        """Record where the results are, and what else belongs to them; what is not given stays."""
        given = {
            "out": out and str(out.absolute()),
            "repo": repo and str(repo.absolute()),
            "branch": branch,
            "included": included,
            "scope": scope,
        }
        with locked(self.folder / "job.lock"):
            # another process may have saved since this one read
            if (self.folder / "job.json").exists():
                self.__dict__.update(_load(self.folder).__dict__)
            self.__dict__.update({name: value for name, value in given.items() if value})
            state = {"schema": SCHEMA} | self.__dict__
            del state["folder"]
            write_json(self.folder / "job.json", msgspec.to_builtins(state))


def start_job(
    workspace: Path,
    *,
    omni: Mapping[str, Any],
    ascend: Mapping[str, Any],
    base: Mapping[str, Any] | None = None,
    out: Path | None = None,
    repo: Path | None = None,
    branch: str | None = None,
    whole: bool = False,
) -> Job:
    """The job for these inputs, made or found again, and now the current one.

    ``omni``, ``ascend`` and ``base`` are ``{"spec": canonical text, "identity": dict}``.
    """
    inputs = msgspec.convert({"omni": omni, "ascend": ascend, "base": base, "whole": whole}, Inputs)
    jobs = workspace_root(workspace.absolute()) / "jobs"
    jobs.mkdir(exist_ok=True)
    names = (_short(inputs.omni, "omni"), _short(inputs.ascend, "ascend"))
    id = f"upgrade-{names[0]}-{_slug(inputs.omni)}-{names[1]}-{_slug(inputs.ascend)}"
    if (jobs / id / "job.json").exists() and _key(_load(jobs / id).inputs) != _key(inputs):
        id = f"{id}-{sha256(_key(inputs))[:8]}"
    job = Job(jobs / id, id, utc_now(), inputs)
    job.folder.mkdir(exist_ok=True)
    job.place(out=out, repo=repo, branch=branch)
    write_atomic(jobs.parent / "current", job.id + "\n")
    return job


def open_job(workspace: Path, id: str | None = None) -> Job:
    """The job ``id``, by default the current one; raises :class:`BadInput` when there is none."""
    root = workspace.absolute() / WORKSPACE_DIR
    current = root / "current"
    name = id or (current.read_text("utf-8").strip() if current.is_file() else "")
    if not name:
        raise BadInput(
            f"no job in {workspace}",
            expected="a workspace in which an upgrade was started",
            try_=FIND_OR_START,
        )
    folder = root / "jobs" / name
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+_-]*", name) or not (folder / "job.json").is_file():
        known = sorted(p.parent.name for p in root.glob("jobs/*/job.json"))
        raise BadInput(
            f"no job {name!r} in {workspace}",
            expected=f"one of: {', '.join(known)}" if known else "a job started here",
            try_=f"--job {known[-1]}" if known else FIND_OR_START,
        )
    return _load(folder)


def naming(job: Job) -> list[str]:
    """The options that name ``job`` from the present folder, for a command that is to be run next.

    The only job of a workspace needs no name.
    """
    others = any(place.parent != job.folder for place in job.folder.parent.glob("*/job.json"))
    return [*(["--job", job.id] if others else []), *named_from_here(job.workspace)]


def _load(folder: Path) -> Job:
    path = folder / "job.json"
    try:
        value = json.loads(path.read_text("utf-8"))
        schema = value.pop("schema", None)
        if schema == SCHEMA:
            return msgspec.convert(value | {"folder": folder}, Job)
        why = f"schema {schema!r}"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        schema, why = None, str(error)
    if schema == "npu-upgrade/job/1":
        raise BadInput(
            f"{folder} is a job that an older version of this tool began ({schema})",
            expected=f"a job of this version ({SCHEMA})",
            try_=f"finish it with that version; or mv {folder} {folder}.old and begin the upgrade again "
            "(your checkout, its branch and the remembered answers stay)",
        )
    raise BadInput(
        f"cannot read the job in {path}: {why}",
        expected=f"the file as this tool wrote it ({SCHEMA})",
        try_=f"restore it, or move {folder} away and start the job again",
    )


def _key(inputs: Inputs) -> str:
    # How a source was asked for (a branch or its SHA) makes no other job.
    names = ("version", "sha", "archive_sha256")
    chosen = {
        role: [source.spec, *(source.identity.get(name) for name in names)]
        for role, source in inputs.named().items()
        if not (role == "base" and inputs.whole)  # read off the downstream, or corrected by --again
    }
    return json.dumps(chosen | ({"whole": True} if inputs.whole else {}), sort_keys=True)


def _short(source: Source, known: str) -> str:
    name = str(source.identity.get("project") or known).removeprefix("vllm-")
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _slug(source: Source) -> str:
    text = source.identity.get("version") or (source.identity.get("sha") or "")[:12] or Path(source.spec).name
    return re.sub(r"[^a-z0-9.+]+", "-", str(text).lower()).strip("-.") or "source"
