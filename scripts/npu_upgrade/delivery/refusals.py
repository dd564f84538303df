"""Why a delivery does not go ahead: checks that read the checkout, the files and the evidence.

Each raises :class:`BadInput` and changes nothing.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterable
from pathlib import Path

import yaml

from npu_upgrade.delivery.changes import at_commit
from npu_upgrade.delivery.kept import defined_twice, lost_markers
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.job.job import Job
from npu_upgrade.job.plan_file import Plan
from npu_upgrade.sources.checkout import Checkout

_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}
_MARKER = re.compile(rb"^(<{7}|\|{7}|>{7})([ \t\r]|$)", re.MULTILINE)


def check_state(checkout: Checkout, made: str | None, new: str = "npu-upgrade") -> str:
    """The branch to commit on, when the checkout can take a commit now.

    ``made`` is the branch that was made for this delivery, None when there is none; ``new`` a name for one.
    """
    if checkout.git_path("index.lock").exists():
        raise BadInput(
            f"the index of {checkout.root} is locked",
            expected="no other git command at work in it",
            try_=f"wait for it; if none runs, remove {checkout.git_path('index.lock')}",
        )
    for name, operation in _OPERATIONS.items():
        if checkout.git_path(name).exists():
            raise BadInput(
                f"a {operation} is in progress in {checkout.root}",
                expected="no operation half-way",
                try_=f"git {operation} --continue or git {operation} --abort, then deliver again",
            )
    if checkout.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
        raise BadInput(
            f"{checkout.root} has no commit yet",
            expected="the project's history below the delivery",
            try_="--repo PATH of the clone that was worked in",
        )
    return _check_branch(checkout, made, new)


def _check_branch(checkout: Checkout, made: str | None, new: str) -> str:
    branch = checkout.branch()
    wanted = f"the branch {made}" if made else "a branch for the delivery"
    switch = f"git switch {made}" if made else f"git switch -c {new}"
    if branch is None:
        raise BadInput("HEAD is detached, so no branch would hold the commit", expected=wanted, try_=switch)
    if branch in checkout.default_branches() and branch != made:
        raise BadInput(f"HEAD is on the default branch {branch}", expected=wanted, try_=switch)
    return branch


def check_identity(checkout: Checkout) -> str:
    """The committer as ``Name <mail>``, when a person gave it to git."""
    for variable in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        done = checkout.run("var", variable)
        if done.returncode != 0:
            raise BadInput(
                f"git does not know who commits: {done.stderr.strip().splitlines()[-1]}",
                expected="user.name and user.email set (one made up from the host name signs nothing off)",
                try_='git config user.name "NAME" && git config user.email MAIL',
            )
    return done.stdout.strip().rsplit(" ", 2)[0]


def check_places(checkout: Checkout, plan: Plan) -> None:
    """Every file of the plan is where git can commit it from: no submodule, sparse path, link or folder."""
    folders = {parent.as_posix() for path in plan.files for parent in Path(path).parents} - {"."}
    modules = {e.path for e in at_commit(checkout, "HEAD", sorted(folders)).values() if e.mode == "160000"}
    modules |= {folder for folder in folders if (checkout.root / folder / ".git").exists()}
    for path, kept in plan.files.items():
        file = checkout.root / path
        problem = None
        if any(parent.as_posix() in modules for parent in Path(path).parents):
            problem = "is inside a submodule", "deliver in the submodule's own checkout"
        elif file.parent.resolve() != file.parent or file.is_symlink() or file.is_dir():
            problem = "is a link or a folder, or behind a link", "put the file itself there"
        elif kept and not file.exists():
            sparse = checkout.git("ls-files", "-t", "--", path).startswith("S")
            way = f"git sparse-checkout add {Path(path).parent}" if sparse else "upgrade.py merge --apply"
            problem = (
                ("is left out by the sparse checkout" if sparse else "is missing"),
                f"{way}, then deliver",
            )
        if problem:
            raise BadInput(
                f"{path} {problem[0]}", expected=f"a plain file in {checkout.root}", try_=problem[1]
            )


def check_staged(checkout: Checkout, plan: Plan) -> None:
    """Nothing but files of the plan is staged."""
    staged = checkout.git("diff", "--cached", "--name-only", "--no-renames", "--no-ext-diff", "-z", "HEAD")
    others = sorted(set(staged.split("\0")[:-1]) - set(plan.files))
    if others:
        raise BadInput(
            f"other changes are staged: {_some(others)}",
            expected="an index with nothing but the delivery's own files staged",
            try_=f"{shlex.join(['git', 'restore', '--staged', *others[:5]])} (the files keep their changes)",
        )


def check_contents(root: Path, paths: Iterable[str]) -> None:
    """No file has a conflict marker left, and each parses."""
    for path in paths:
        file = root / path
        data = file.read_bytes() if file.exists() else b""
        marker = _MARKER.search(data)
        if marker:
            line = data.count(b"\n", 0, marker.start()) + 1
            raise BadInput(
                f"{path} line {line} still has a conflict marker",
                expected="every conflict decided",
                try_="edit the file, then run upgrade.py plan and deliver again",
            )
        problem = _syntax_problem(file, data)
        if problem:
            raise BadInput(
                f"{path} does not parse: {problem}",
                expected="a file its language accepts",
                try_="correct it, then run upgrade.py plan and deliver again",
            )


def check_kept(checkout: Checkout, base: str, paths: Iterable[str]) -> None:
    """No Python file of ``base`` lost markers of code that still stands, or defines a method twice now."""
    for path in at_commit(checkout, base, [path for path in paths if path.endswith(".py")]):
        file = checkout.root / path
        if not file.exists():
            continue
        texts = checkout.git("show", f"{base}:{path}"), file.read_text("utf-8")
        if lost := lost_markers(*texts):
            raise BadInput(
                f"{path} has lost markers of omni code in {', '.join(lost)}, and the code still stands",
                expected="the markers kept around the code they are for",
                try_=f"git diff {base} -- {path}; put them back, then run upgrade.py plan and deliver again",
            )
        if twice := defined_twice(*texts):
            raise BadInput(
                f"{path} defines {', '.join(twice)} twice: only the last definition counts",
                expected="one definition of each method",
                try_="merge the definitions, then run upgrade.py plan and deliver again",
            )


def check_evidence(job: Job, plan: Plan, subject: Subject) -> list[Record]:
    """The standing records for this content: a ``plan`` PASS and an ``audit`` are among them, and no FAIL."""
    records = job.records()
    again = f"upgrade.py plan --job {job.id}, then deliver"
    if job.ledger().unfinished:
        raise BadInput(
            "the newest record of evidence is half-written: a gate died while it ended",
            expected="the verdict of every gate that ran",
            try_=f"run that gate again ({again})",
        )
    standing = job.store.standing(records, subject.tree)
    for one in standing:
        if one.verdict == "FAIL":
            raise BadInput(
                f"gate {one.gate} ({one.label}) failed for exactly these files: {one.summary}",
                expected="no gate whose newest verdict is FAIL",
                try_="correct what it names and run it again",
            )
    planned = next((r for r in standing if (r.gate, r.label) == ("plan", "static")), None)
    if planned is None:
        stale = any((r.gate, r.label) == ("plan", "static") for r in records)
        raise BadInput(
            f"gate plan {'judged other contents of these files' if stale else 'has no evidence'}",
            expected="gate plan (static) PASS for the files as they are now",
            try_=again,
        )
    if planned.verdict != "PASS" or plan.conflicts_open:
        state = f"{plan.conflicts_open} conflicts are open" if plan.conflicts_open else planned.summary
        raise BadInput(
            f"gate plan is {planned.verdict}: {state}",
            expected="gate plan (static) PASS and no conflict open",
            try_=again,
        )
    if not any((r.gate, r.label) == ("audit", "static") for r in standing):
        raise BadInput(
            "gate audit has no evidence for the files as they are now",
            expected="gate audit (static) without new findings",
            try_=f"upgrade.py audit --job {job.id}, then deliver",
        )
    return standing


def _syntax_problem(file: Path, data: bytes) -> str | None:
    try:
        if file.suffix == ".py":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape in the user's file is not our news
                ast.parse(data)
        elif file.suffix in (".yaml", ".yml"):
            list(yaml.compose_all(data, Loader=yaml.SafeLoader))
    except (SyntaxError, ValueError, RecursionError, yaml.YAMLError) as error:
        return " ".join(str(error).split())
    return None


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
