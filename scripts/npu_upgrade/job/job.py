"""The state of one job in the user's workspace: its inputs, and how far each step got.

Everything is below ``.npu-upgrade/``: ``current`` names the job at hand, and
``jobs/<id>/`` holds ``job.json`` and the evidence.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground import invocation
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_atomic, write_json
from npu_upgrade.ground.locks import locked
from npu_upgrade.ground.paths import WORKSPACE_DIR, workspace_root
from npu_upgrade.ground.verdict import Verdict

SCHEMA = "npu-upgrade/job/1"
STEPS = ("discover", "lineage", "merge", "plan", "audit", "emulate", "deliver")
FIND_OR_START = (
    "--workspace DIR, the checkout that merge --apply wrote to or the folder merge --out was run in; "
    "or start one: upgrade.py discover, then upgrade.py merge with the two versions it names"
)


@dataclass
class Step:
    """How far one step got; ``command`` is the argv that last began it, ``begun`` how often so far."""

    status: str = "todo"  # todo, running, done, failed
    at: str | None = None
    verdict: str | None = None
    summary: str | None = None
    outputs: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    pid: int | None = None
    pid_started: float | None = None
    begun: int = 0

    @property
    def alive(self) -> bool:
        """Whether the process that began the step is still there (its number alone may be reused)."""
        try:
            born = psutil.Process(self.pid).create_time() if self.pid else None
        except psutil.NoSuchProcess:
            return False
        return born is not None and self.pid_started is not None and abs(born - self.pid_started) < 2.0

    @property
    def interrupted(self) -> bool:
        return self.status == "running" and not self.alive


@dataclass
class Job:
    """One job. ``inputs``: omni, ascend and base, each ``{"spec", "identity"}`` (base may be None).

    ``out`` holds the results (``plan.json``); ``repo`` and ``branch`` are the checkout merge applied to;
    ``skipped`` what a person chose not to do, with the reason.
    """

    folder: Path
    id: str
    created: str
    inputs: dict[str, Any]
    out: str | None = None
    repo: str | None = None
    branch: str | None = None
    kind: str = "upgrade"
    skipped: dict[str, str] = field(default_factory=dict)
    steps: dict[str, Step] = field(default_factory=lambda: {name: Step() for name in STEPS})

    @property
    def workspace(self) -> Path:
        return self.folder.parents[2]

    def begin(self, name: str, command: list[str] | None = None) -> None:
        """Mark a step as running in this process.

        Raises :class:`BadInput` when another live process runs it.
        """
        with self._change():
            step = self.steps[name]
            if step.status == "running" and step.alive and step.pid != os.getpid():
                raise BadInput(
                    f"step {name} of job {self.id} is already running in process {step.pid}",
                    expected="one run of a step at a time",
                    try_=f"wait for it, or end process {step.pid} and run the same command again",
                )
            me = psutil.Process()
            step.status, step.at, step.verdict, step.summary = "running", utc_now(), None, None
            step.command = command if command is not None else invocation.current()
            step.pid, step.pid_started, step.begun = me.pid, me.create_time(), step.begun + 1

    def finish(
        self, name: str, verdict: Verdict, summary: str, outputs: Mapping[str, Any] | None = None
    ) -> None:
        """Record how a step ended; when its outputs changed, the steps after it are to do again."""
        with self._change():
            step = self.steps[name]
            new = json.loads(json.dumps(dict(outputs or {})))
            changed = step.outputs != new
            step.status = "done" if verdict is Verdict.PASS else "failed"
            step.at, step.verdict, step.summary = utc_now(), verdict.value, summary
            step.outputs, step.pid, step.pid_started, step.begun = new, None, None, 0
            if changed:
                for later in STEPS[STEPS.index(name) + 1 :]:
                    self.steps[later] = Step()

    def place(self, *, out: Path | None = None, repo: Path | None = None, branch: str | None = None) -> None:
        """Record where the results are; what is not given stays."""
        with self._change():
            self.out = str(out.absolute()) if out else self.out
            self.repo = str(repo.absolute()) if repo else self.repo
            self.branch = branch or self.branch

    def skip(self, name: str, reason: str) -> None:
        """Leave a gate or a kind of question out; delivery names it with the reason."""
        with self._change():
            self.skipped = {**self.skipped, name: reason}

    @contextlib.contextmanager
    def _change(self) -> Generator[None]:
        # Another process may have saved since this one read: change what is on disk, not what was read.
        with locked(self.folder / "job.lock"):
            if (self.folder / "job.json").exists():
                self.__dict__.update(_load(self.folder).__dict__)
            yield
            state = asdict(self) | {"schema": SCHEMA}
            del state["folder"]
            write_json(self.folder / "job.json", state)


def start_job(
    workspace: Path,
    *,
    omni: Mapping[str, Any],
    ascend: Mapping[str, Any],
    base: Mapping[str, Any] | None = None,
    out: Path | None = None,
    repo: Path | None = None,
    branch: str | None = None,
) -> Job:
    """The job for these inputs, made or found again, and now the current one.

    ``omni``, ``ascend`` and ``base`` are ``{"spec": canonical text, "identity": dict}``.
    """
    inputs = json.loads(json.dumps({"omni": omni, "ascend": ascend, "base": base}))
    jobs = workspace_root(workspace.absolute()) / "jobs"
    jobs.mkdir(exist_ok=True)
    plain = f"upgrade-omni-{_slug(inputs['omni'])}-ascend-{_slug(inputs['ascend'])}"
    job = Job(jobs / plain, plain, utc_now(), inputs)
    if (job.folder / "job.json").exists() and _key(_load(job.folder).inputs) != _key(inputs):
        other = f"{plain}-{sha256(_key(inputs))[:8]}"
        job = Job(jobs / other, other, utc_now(), inputs)
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


def find_workspace(start: Path) -> Path:
    """The nearest folder from ``start`` upwards that has a ``.npu-upgrade``, else ``start``."""
    start = start.absolute()
    return next((f for f in (start, *start.parents) if (f / WORKSPACE_DIR).is_dir()), start)


def naming(job: Job) -> list[str]:
    """The options that name ``job`` from the present folder, for a command that is to be run next."""
    place = [] if find_workspace(Path.cwd()) == job.workspace else ["--workspace", str(job.workspace)]
    return ["--job", job.id, *place]


def _load(folder: Path) -> Job:
    path = folder / "job.json"
    try:
        state = json.loads(path.read_text("utf-8"))
        if state.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        known = {name: Step(**step) for name, step in state["steps"].items()}
        state["steps"] = {name: known.get(name, Step()) for name in STEPS}
        return Job(folder=folder, **state)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(
            f"cannot read the job in {path}: {error}",
            expected=f"the file as this tool wrote it ({SCHEMA})",
            try_=f"restore it, or move {folder} away and start the job again",
        ) from error


def _key(inputs: Mapping[str, Any]) -> str:
    # How a source was asked for (a branch or its SHA) makes no other job.
    names = ("version", "sha", "archive_sha256")
    chosen = {
        role: source and [source["spec"], *(source["identity"].get(name) for name in names)]
        for role, source in inputs.items()
    }
    return json.dumps(chosen, sort_keys=True)


def _slug(source: Mapping[str, Any]) -> str:
    identity = source["identity"]
    text = identity.get("version") or (identity.get("sha") or "")[:12] or Path(source["spec"]).name
    return re.sub(r"[^a-z0-9.+]+", "-", str(text).lower()).strip("-.") or "source"
