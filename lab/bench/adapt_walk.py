"""One walk of ``bench.adapt``: a workspace, the commands that `next` names, and what is there at the end."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.adapt_cases import LEFT_OUT, Case
from bench.adapt_checkpoints import CHECKPOINTS, make
from bench.shared import ADAPT
from bench.walk_repo import begin_repo, git, write_texts
from npu_upgrade.environments.specs import read_spec
from npu_upgrade.environments.store import ensure
from npu_upgrade.evidence.runs import Run, runs_of
from npu_upgrade.evidence.store import present_store
from npu_upgrade.sources.tree import open_source

VLLM, ASCEND = "pypi:vllm==0.30.0", "pypi:vllm-ascend==0.30.0rc2"
_QUICK = ("--quiet", "1", "--generations", "1")
_SERVED = ("--max-num-seqs", "16", "--max-model-len", "512")
_FEWER = {
    "capacity": ("--sequences", "16", "--no-maximum"),
    "performance": ("--input-len", "64", "--output-len", "16", "--concurrency", "1", "4"),
}
_MOST = 40  # calls of one walk


class Walk(msgspec.Struct):
    """What became of a case. ``own``: its architecture is served by nobody; ``reference``: what the
    comparison with Transformers said; ``printed``: the most characters that one command printed; ``said``:
    the cause that a broken one was stopped by."""

    name: str
    broken: bool = False
    own: bool = False
    seconds: float = 0.0
    calls: int = 0
    printed: int = 0
    reference: str = ""
    commit: str = ""
    said: str = ""
    problems: list[str] = []
    steps: list[str] = []

    @property
    def good(self) -> bool:
        return not self.problems


class _Place:
    """A workspace with the model and a clone of vllm-ascend, and the calls that are made in it."""

    def __init__(self, case: Case, out: Path) -> None:
        self.case, self.folder = case, out / case.name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.model = make(case.of, self.folder / f"Tiny-{case.of}")
        self.repo = self.folder / "vllm-ascend"
        self.done = Walk(case.name, bool(case.cause), not CHECKPOINTS[case.of].served)

    def call(self, *words: object) -> dict[str, Any]:
        """One command of adapt.py as a process of its own; its whole result."""
        begun = time.monotonic()
        given = [str(word) for word in words]
        print(f"$ adapt.py {shlex.join(given)[:200]}", file=sys.stderr, flush=True)
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [sys.executable, str(ADAPT), *given]
        process = subprocess.run(command, cwd=self.folder, env=kept, stdin=-3, capture_output=True, text=True)
        seconds, done = time.monotonic() - begun, self.done
        done.seconds += seconds
        done.calls += 1
        done.printed = max(done.printed, len(process.stdout))
        result = json.loads(process.stdout) if process.stdout.strip() else {"error": process.stderr[-400:]}
        said = str(result.get("summary") or result.get("error"))
        done.steps.append(f"{given[0]} {process.returncode} {seconds:.0f} s: {said[:300]}")
        print(f"  {seconds:.1f} s {process.returncode} {len(process.stdout)}: {said[:300]}", file=sys.stderr)
        if "whole_result" in result and (self.folder / result["whole_result"]).is_file():
            result |= json.loads((self.folder / result["whole_result"]).read_text("utf-8"))
        return result | {"code": process.returncode}

    def runs(self) -> list[Run]:
        return runs_of(present_store(self.folder), str(self.model)).counted


def walk(case: Case, out: Path) -> Walk:
    """From the model's folder to the commit, by `next` alone."""
    place = _Place(case, out)
    _clone(place.repo)
    place.call("analyze", place.model, "--vllm", VLLM, "--ascend", ASCEND)
    given = ("--vllm", VLLM, "--ascend", ASCEND, "--delivery", place.repo)
    answer = place.call("plan", place.model, *given)
    left, before = set(case.left_out), ""
    while place.done.calls < _MOST and answer["code"] == 0:
        answer = place.call("next")
        why = str(answer.get("summary"))
        stage = re.split(r" is the next stage|:", why)[0]
        if "every stage is done" in why:
            break
        if stage in left:
            left.discard(stage)
            place.call("next", "--skip", stage, "--note", LEFT_OUT[stage])
            answer["code"] = 0
            continue
        if answer.get("step") == "change":
            if stage == "adapter" and "ID=ANSWER" in str(answer.get("then")) and case.decisions:
                words = shlex.split(answer["then"])
                words = [
                    word for word in words[words.index("plan") :] if word not in ("--decide", "ID=ANSWER")
                ]
                place.call(*words, *(word for one in case.decisions for word in ("--decide", one)))
                answer["code"] = 0
            else:
                place.done.problems.append(f"stuck at {stage}: {why[:300]}")
                break
            continue
        command = shlex.split(answer.get("next") or "")
        words = command[command.index(next(one for one in command if one.endswith("adapt.py"))) + 1 :]
        if words == before:
            place.done.problems.append(f"named twice: {' '.join(words)[:200]}")
            break
        before = words
        _run(place, words)
        answer["code"] = 0
    else:
        place.done.problems.append(f"no end after {place.done.calls} calls: {place.done.steps[-1]}")
    _look(place)
    return place.done


def _run(place: _Place, words: list[str]) -> None:
    """A command as it was named; the first server gets the options that a person would choose."""
    name = words[0]
    if name == "serve" and "--python" not in words and "--emulated" not in words:
        at = words.index("--") if "--" in words else len(words)
        words = [*words[:at], "--python", "cpu", *_QUICK, "--", *_SERVED]
    if name in _FEWER and "--sequences" not in words and "--concurrency" not in words:
        at = words.index("--") if "--" in words else len(words)
        words = [*words[:at], *_FEWER[name], *words[at:]]
    if name == "artifacts":
        words = [*words, "--unpublished", f"checkpoints/{place.model.name}"]
    place.call(*words)


def stopped(case: Case, out: Path) -> Walk:
    """A broken checkpoint: `next` is followed until something says what is wrong."""
    place = _Place(case, out)
    _clone(place.repo)
    given = ("--vllm", VLLM, "--ascend", ASCEND)
    said = [place.call("analyze", place.model, *given)]
    if said[-1]["code"] == 0:
        said.append(place.call("plan", place.model, *given, "--delivery", place.repo))
    for answer in said:
        words = json.dumps(answer, ensure_ascii=False)
        if answer["code"] != 0 and case.cause in words:
            place.done.said = str(answer.get("summary") or answer.get("error"))
    if not place.done.said:
        place.done.problems.append(f"not stopped with {case.cause!r}: {place.done.steps[-1]}")
    if (place.model / "executed").exists():
        place.done.problems.append("the checkpoint's own code ran")
    if git(place.repo, "rev-list", "--count", "main..HEAD").strip() != "0":
        place.done.problems.append("something was committed")
    return place.done


def _clone(repo: Path) -> None:
    """What of vllm-ascend's release a delivery touches and its checks read, on a branch of its own."""
    begin_repo(repo)
    tree, wanted = (
        open_source(ASCEND),
        ("docs/", "tests/e2e/", "tools/", ".github/", "mkdocs.yml", ".gitignore"),
    )
    write_texts(repo, [path for path in tree.list() if path.startswith(wanted)], tree.read)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "Start")
    git(repo, "switch", "-q", "-c", "adapt")


def _look(place: _Place) -> None:
    """What is there: one commit, served by real weights, equal, features judged, documents that hold."""
    done, runs = place.done, place.runs()
    served = [one for one in runs if (one.gate, one.load, one.label) == ("serve", "real", "CPU real")]
    if not served or served[-1].verdict != "PASS":
        done.problems.append("real weights were not served")
        return
    done.reference = str(served[-1].map("reference").get("state") or "")
    if done.reference != "equal":
        done.problems.append(f"it does not equal Transformers: {served[-1].map('reference').get('why')}")
    if not any(row.get("feature") == "graph" for one in runs for row in one.many("features")):
        done.problems.append("no feature was judged")
    commits = git(place.repo, "rev-list", "main..HEAD").split()
    if len(commits) != 1:
        done.problems.append(f"{len(commits)} commits")
        return
    done.commit = commits[0]
    message = git(place.repo, "show", "-s", "--format=%B", "HEAD")
    if message.count("\nSigned-off-by: ") != 1 or "\nNPU-Validation: pending\n" not in message:
        done.problems.append("the commit is not signed off once with its validation pending")
    files = git(place.repo, "diff", "--name-only", "main..HEAD").split()
    if wrong := [one for one in files if re.search(r"egg-info|__pycache__|/build/", one)]:
        done.problems.append(f"leftovers of a build are in the commit: {wrong}")
    if done.own and not any(one.endswith("/model.py") for one in files):
        done.problems.append("the adapter is not in the commit")
    if not any(one.startswith("docs/source/tutorials/models/Tiny") for one in files):
        done.problems.append("the tutorial is not in the commit")
    if git(place.repo, "status", "--porcelain").strip():
        done.problems.append(f"left over: {git(place.repo, 'status', '--porcelain')}")
    if why := _site_problem(place):  # last, because the build leaves files of its own
        done.problems.append(why)


def _site_problem(place: _Place) -> str:
    """What vllm-ascend's own documentation build says against the page; empty when it is in the site."""
    site, page = place.folder / "site", f"tutorials/models/{place.model.name}"
    (place.repo / "docs/overrides").mkdir(exist_ok=True)  # of the theme, which the release leaves out
    command = [str(ensure(read_spec("ascend-docs"))), "-m", "mkdocs", "build", "--site-dir", str(site)]
    built = subprocess.run(command, cwd=place.repo, capture_output=True, text=True)
    if built.returncode:
        return f"the site does not build: {built.stderr.strip()[-300:]}"
    if not (site / f"{page}.html").is_file() and not (site / page / "index.html").is_file():
        return "the site has no page of the model"
    warned = [line for line in built.stderr.splitlines() if f"{page}.md" in line]
    shutil.rmtree(site, ignore_errors=True)
    return f"the site's build warns: {warned[0]}" if warned else ""
