"""A vllm-omni-like checkout with an applied upgrade, and its job, for the tests of delivery."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from npu_upgrade.cli import main as cli
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.observed import Built, Class, Device, Observed, Process, Ran
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import Outcome
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.job import Job, open_job, start_job
from npu_upgrade.job.plan_file import load_plan

RUNNER = "vllm_omni/npu/runner.py"
WORKER = "vllm_omni/npu/worker.py"
NEW = "vllm_omni/npu/inputs.py"
OTHER = "vllm_omni/engine.py"
OMNI = {"spec": "pypi:vllm-omni==0.22.0", "identity": {"version": "0.22.0", "sha": None}}
ASCEND = {"spec": "pypi:vllm-ascend==0.23.0.post1", "identity": {"version": "0.23.0.post1", "sha": "a" * 40}}
BRANCH = "npu-upgrade-0.23.0.post1"


def git(repo: Path, *args: str, **env: str) -> str:
    done = subprocess.run(
        ["git", *args],
        cwd=repo,
        env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"} | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"git {args}: {done.stderr}"
    return done.stdout


def snapshot(repo: Path) -> dict[str, Any]:
    """Everything a refusal has to leave alone, to the byte."""
    files = {p: p.read_bytes() for p in sorted(repo.rglob("*")) if p.is_file() and ".git" not in p.parts}
    return {
        "refs": git(repo, "for-each-ref"),
        "head": (repo / ".git/HEAD").read_bytes(),
        "status": git(repo, "status", "--porcelain=v2", "--branch"),
        "index": (repo / ".git/index").read_bytes() if (repo / ".git/index").exists() else b"",
        "files": files,
        "modes": {p: p.stat().st_mode for p in files},
    }


def write(repo: Path, path: str, text: str) -> None:
    (repo / path).parent.mkdir(parents=True, exist_ok=True)
    (repo / path).write_text(text)


def add_hook(repo: Path, name: str, script: str) -> None:
    hook = repo / ".git/hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)


@dataclass
class Upgrade:
    """A checkout on the upgrade branch, the merge applied and checked, nothing committed."""

    repo: Path
    workspace: Path
    job: Job
    plan: dict[str, Any] = field(default_factory=dict)

    def write_plan(self, **changes: Any) -> None:
        self.plan |= changes
        (self.workspace / "out").mkdir(exist_ok=True)
        (self.workspace / "out/plan.json").write_text(json.dumps(self.plan))

    def record(
        self,
        gate: str = "plan",
        label: str = "static",
        verdict: Verdict = Verdict.PASS,
        data: Mapping[str, Any] | None = None,
        started: str = "2026-11-20T12:00:00Z",
        seconds: float = 1.5,
    ) -> Record:
        subject = load_plan(self.job).subject(self.repo)
        outcome = Outcome(
            gate=gate,
            label=label,
            verdict=verdict,
            subject=subject,
            job=self.job.of(subject.tree),
            pins={"vllm-omni": OMNI["identity"], "vllm-ascend": ASCEND["identity"]},
            command=["upgrade.py", gate],
            started=started,
            seconds=seconds,
            summary=f"{gate} said so",
            data=data or {},
        )
        return self.job.store.record(outcome)

    def served(
        self,
        *built: tuple[str, str],
        label: str = "NPU real",
        device: str = "npu",
        steps: int = 3,
        functions: Sequence[str] = (),
        others: Mapping[str, str] | None = None,
        verdict: Verdict = Verdict.PASS,
        load_format: str = "auto",
        pythonpath: Sequence[str] = (),
    ) -> Record:
        """A server passed that built ``built`` (path, class), and loaded every file of the job as it is.

        ``others``: path -> hash of files that it loaded beside them, or with another content.
        """
        subject = load_plan(self.job).subject(self.repo)
        hashes = subject.files | dict(others or {})
        classes = tuple(Class(f"some.module.{name}", path, hashes[path]) for path, name in built)
        files = {path: Ran(digest, tuple(functions)) for path, digest in hashes.items()}
        runner = (Built("runner", classes, steps),) if classes else ()
        process = Process(
            7,
            "worker",
            0,
            device=Device(device),
            built=runner,
            files=files,
            config={"load_format": load_format},
        )
        run = self.job.store.begin("serve", Redactor())
        run.json(
            "observed.json", msgspec.to_builtins(Observed("omni", (process,), pythonpath=tuple(pythonpath)))
        )
        outcome = Outcome(
            gate="serve",
            label=label,
            verdict=verdict,
            subject=Subject({"vllm_omni": "c" * 64}),
            job=self.job.of(subject.tree),
            pins={},
            command=["upgrade.py", "serve"],
            started="2026-11-20T13:00:00Z",
            seconds=1.5,
            summary="served",
        )
        return self.job.store.record(outcome, run)

    def record_all(self) -> None:
        """Every gate that a delivery asks for passed for the files as they are now."""
        for gate in ("plan", "audit"):
            self.record(gate)

    def head(self) -> str:
        return git(self.repo, "rev-parse", "HEAD").strip()

    def body(self) -> str:
        return git(self.repo, "show", "-s", "--format=%B", "HEAD")

    def committed(self) -> list[str]:
        return git(self.repo, "diff-tree", "-r", "--name-only", "--no-commit-id", "HEAD").split()


def run_deliver(upgrade: Upgrade, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict]:
    """The exit code and the JSON of one ``upgrade.py deliver``."""
    options = options if "--repo" in options else ("--repo", str(upgrade.repo), *options)
    capsys.readouterr()
    words = ["deliver", "--format", "json", "--workspace", str(upgrade.workspace), *options]
    code = cli.main("upgrade.py", "", ["deliver"], words)
    return code, json.loads(capsys.readouterr().out)


def make_upgrade(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    """The checkout, a merge applied to it by hand, and the records of its gates that passed."""
    forget_people(monkeypatch)
    made, upgrade = _upgrade()
    copied(Path(made.name), folder, "work/.npu-upgrade/jobs/*/job.json")
    workspace = folder / "work"
    return Upgrade(folder / "vllm-omni", workspace, open_job(workspace), copy.deepcopy(upgrade.plan))


def forget_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git learns who commits from its configuration alone."""
    for name in [*os.environ]:
        if name.startswith(("GIT_AUTHOR", "GIT_COMMITTER")) or name == "EMAIL":
            monkeypatch.delenv(name)


def copied(made: Path, folder: Path, *naming: str) -> None:
    """Copy what was made once; the files that name its place (patterns) name the new one then."""
    shutil.copytree(made, folder, symlinks=True, dirs_exist_ok=True)
    for path in [found for pattern in naming for found in folder.glob(pattern)]:
        path.write_text(path.read_text().replace(str(made), str(folder)))


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for what is made once; it goes with this process."""
    return tempfile.TemporaryDirectory(prefix="npu-upgrade-tests-")


@functools.cache
def _upgrade() -> tuple[tempfile.TemporaryDirectory[str], Upgrade]:
    made = new_folder()
    return made, _made(Path(made.name).resolve())


def _made(folder: Path) -> Upgrade:
    repo, workspace = folder / "vllm-omni", folder / "work"
    workspace.mkdir()
    git(folder, "init", "-q", "-b", "main", str(repo))
    git(repo, "config", "user.name", "Ada Lovelace")
    git(repo, "config", "user.email", "ada@example.com")
    write(repo, "vllm_omni/__init__.py", "")
    for path in (RUNNER, WORKER, OTHER):
        write(repo, path, f"NAME = {path!r}\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "[Core] Start")
    git(repo, "switch", "-q", "-c", BRANCH)
    write(repo, RUNNER, "NAME = 'upgraded'\n")
    write(repo, NEW, "FRESH = True\n")
    job = start_job(workspace, omni=OMNI, ascend=ASCEND, out=workspace / "out", repo=repo, branch=BRANCH)
    upgrade = Upgrade(repo, workspace, job)
    digest = hashlib.sha256(b"merged").hexdigest()
    upgrade.write_plan(
        schema="npu-upgrade/plan/1",
        versions={
            "omni": OMNI["identity"],
            "ascend": ASCEND["identity"],
            "base": {"version": "0.22.1rc1", "sha": "b" * 40},
        },
        files=[
            {"path": path, "sha256_merged": digest, "sha256_ours": digest} for path in (RUNNER, WORKER, NEW)
        ],
        methods=[{"name": "execute_model", "outcome": "merged"}, {"name": "load_model", "outcome": "ours"}],
        items=[
            {"id": "port-1", "kind": "gpu port", "state": "open", "title": "new sampler"},
            {"id": "import-2", "kind": "import", "state": "done"},
            {"id": "port-3", "kind": "gpu port", "state": "waived", "title": "not for NPU"},
        ],
        conflicts_open=0,
    )
    upgrade.record_all()
    return upgrade


GH = """#!{python}
import json, sys
from pathlib import Path
log, fail = Path({log!r}), Path({fail!r})
if fail.exists():
    sys.exit("gh: not logged in")
text = sys.stdin.read() if "--body-file" in sys.argv else ""
with log.open("a") as stream:
    stream.write(json.dumps([sys.argv[1:], text]) + "\\n")
if sys.argv[1:3] == ["pr", "list"]:
    if any("create" in line for line in log.read_text().splitlines()):
        print("https://example.com/pr/7")
elif sys.argv[1:3] == ["pr", "create"]:
    print("https://example.com/pr/7")
else:
    print("https://example.com/issue/5#comment")
"""


class Gh:
    def __init__(self, folder: Path) -> None:
        self.log, self.fail = folder / "gh.jsonl", folder / "fail"

    def calls(self, *command: str) -> list[tuple[list[str], str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(a, text) for a, text in map(json.loads, lines) if a[: len(command)] == list(command)]


def make_gh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Gh:
    """A gh on PATH that writes down what it was asked."""
    made = Gh(folder)
    tool = folder / "bin/gh"
    tool.parent.mkdir()
    tool.write_text(GH.format(python=sys.executable, log=str(made.log), fail=str(made.fail)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    return made
