"""The pull request of a watch: the upgrade to what was looked at last, where nothing of it needs a hand."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.ground.command import Command, answered, upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.checkout import Checkout, open_checkout
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.watch.judge import Judge
from npu_upgrade.watch.records import Seen

BRANCH = "npu-upgrade/watch"


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of it: the ``address``, or ``why`` there is none.

    ``commit`` is on ``branch``; ``by_hand`` publishes one that gh or git could not.
    """

    address: str = ""
    why: str = ""
    branch: str = ""
    commit: str = ""
    by_hand: str = ""

    @property
    def said(self) -> str:
        if self.address:
            return f"pull request {self.address}"
        made = f"commit {self.commit[:12]} on {self.branch}, " if self.commit else ""
        return f"{made}no pull request: {self.why}" + (f"; by hand: {self.by_hand}" if self.by_hand else "")


def check_asked(omni: str | None) -> Path:
    """The checkout that a pull request is for; raises :class:`BadInput` where ``--omni`` names none."""
    spec = parse_spec(omni) if omni else None
    if spec is None or spec.kind != "dir":
        raise BadInput(
            f"--open-pr needs a checkout, and {omni or '--downstream'} is none",
            expected="the checkout of a vllm-omni",
            try_="--omni dir:PATH",
        )
    return open_checkout(Path(spec.path).expanduser(), "--omni").root


def open_request(repo: Path, workspace: Path, judge: Judge, seen: Seen) -> Request:
    """Merge, check and commit the upgrade on :data:`BRANCH` of ``repo``, and open its pull request with gh.

    The work is done in a worktree of its own: the checkout stays on its branch, with its files as they are.
    Nothing is left of an upgrade that a check refuses; the audit compares with what the watch compares with.
    """
    checkout = open_checkout(repo)
    if why := _refused(checkout, seen):
        return Request(why=why)
    head = checkout.git("rev-parse", "HEAD").strip()
    with _worktree(checkout, head) as place:
        merge = upgrade("merge", "--omni", f"git:{repo}@{head}", "--ascend", seen.spec)
        why, found = _passed(merge.adding("--apply", str(place), "--branch", BRANCH), workspace)
        if why:
            return Request(why=why)
        if not Checkout(place).git("status", "--porcelain", "--untracked-files=no"):
            return Request(why="the merge changes no file")
        job = ("--job", str(found["job"]))
        vllm = judge.vllm_spec
        pair = ["--vllm", vllm, "--baseline", judge.copied_at.spec, vllm] if vllm else []
        deliver = upgrade("deliver", *job, "--repo", str(place))
        for command in (upgrade("plan", *job), upgrade("audit", *job, *pair), deliver):
            why, found = _passed(command, workspace)
            if why:
                return Request(why=why)
        commit = str(found["commit"])
        why, found = _passed(deliver.adding("--pr"), workspace)
        if why:
            return Request(why=why, branch=BRANCH, commit=commit, by_hand=_by_hand(checkout))
        return Request(str(found["pull_request"]), branch=BRANCH, commit=commit)


def _refused(checkout: Checkout, seen: Seen) -> str:
    """Why an upgrade is not begun, empty where nothing stands against it."""
    left = [item for _, items in seen.still_open() for item in items]
    if left:
        return f"{len(left)} items are open, as: {left[0].title}"
    if not seen.entries:
        return "nothing new upstream touches this project"
    if changed := checkout.git("status", "--porcelain", "--untracked-files=no").splitlines():
        return f"the checkout has uncommitted changes: {changed[0].strip()}"
    remotes = checkout.git("remote").split()
    there = [checkout.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{BRANCH}")]
    there += [checkout.ask("ls-remote", "--heads", remote, f"refs/heads/{BRANCH}") for remote in remotes]
    return f"{BRANCH} exists already: merge or delete it" if any(there) else ""


@contextlib.contextmanager
def _worktree(checkout: Checkout, head: str) -> Generator[Path]:
    """A second working tree of the checkout; a branch that has got no commit in it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as folder:
        place = Path(folder).resolve() / checkout.root.name
        checkout.git("worktree", "add", "--quiet", "--detach", str(place), head)
        try:
            yield place
        finally:
            checkout.git("worktree", "remove", "--force", str(place))
            if checkout.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{BRANCH}") == head:
                checkout.git("branch", "--quiet", "-D", BRANCH)


def _passed(command: Command, workspace: Path) -> tuple[str, dict[str, Any]]:
    """Run a step: why it did not pass, empty where it did, and its result."""
    say(f"{command.name}: on the way to a pull request")
    code, found = answered(command.adding("--workspace", str(workspace)))
    why = str(found.get("summary") or found.get("error") or f"exit code {code}")
    return f"{command.name}: {why}" if code else "", found


def _by_hand(checkout: Checkout) -> str:
    remote = next(iter(checkout.git("remote").split()), "REMOTE")
    push = f"git -C {checkout.root} push -u {remote} {BRANCH}"
    return f"{push} && cd {checkout.root} && gh pr create --fill --head {BRANCH}"
