"""An upgrade as one uncommitted change on a new branch of a git checkout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_together
from npu_upgrade.sources.checkout import Checkout, open_checkout


def check_applicable(repo: Path, branch: str) -> Checkout:
    """The checkout, when a change may be put on a new branch of it.

    Raises :class:`BadInput` for a folder that is no checkout, one with changes, and a
    branch that is there already.
    """
    checkout = open_checkout(repo)
    changed = checkout.git("status", "--porcelain", "--untracked-files=no").splitlines()
    if changed:
        raise BadInput(
            f"{repo} has uncommitted changes: {changed[0].strip()}" + (" and more" if changed[1:] else ""),
            expected="a checkout without changes, so that the upgrade stands alone in the diff",
            try_="commit or stash them; an upgrade already applied goes on with `upgrade.py plan`, "
            "or begins anew with `upgrade.py merge --again`",
        )
    if checkout.ask("check-ref-format", "--branch", branch) is None:
        raise BadInput(
            f"{branch!r} is no name for a branch", expected="a git branch name", try_="--branch NAME"
        )
    if checkout.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"):
        raise BadInput(
            f"{repo} has a branch {branch} already",
            expected="a new branch for the upgrade",
            try_="--branch NAME, or delete the old branch",
        )
    return checkout


def apply_change(checkout: Checkout, branch: str, start: str, files: Mapping[str, str]) -> Path:
    """Make ``branch`` at ``start``, switch to it and write ``files``; returns the checkout's top.

    When the files cannot be written, the checkout is as it was before.
    """
    top = checkout.root
    before = checkout.branch() or checkout.git("rev-parse", "HEAD").strip()
    detached = checkout.branch() is None
    checkout.git("switch", "--quiet", "--create", branch, start)
    try:
        write_together({top / path: text for path, text in files.items()})
    except BadInput:
        checkout.git("switch", "--quiet", *(["--detach"] if detached else []), before)
        checkout.git("branch", "--quiet", "-D", branch)
        raise
    return top


def move_aside(checkout: Checkout, branch: str, start: str) -> str:
    """Leave ``branch`` under another name, with what is not committed as one more commit; go to ``start``.

    Returns that name. Untracked files stay where they are. Raises :class:`BadInput` when the checkout is on
    another branch and has changes, or is in the middle of a merge.
    """
    on_it = checkout.branch() == branch
    changed = checkout.git("status", "--porcelain", "--untracked-files=no").splitlines()
    unmerged = [line for line in changed if "U" in line[:2] or line[:2] in ("AA", "DD")]
    if unmerged or (changed and not on_it):
        raise BadInput(
            f"{checkout.root} has changes that are not of {branch}: {(unmerged or changed)[0].strip()}",
            expected=f"the branch {branch} of the upgrade, or a checkout without changes",
            try_=f"commit or stash them, or `git switch {branch}`",
        )
    if checkout.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}") is None:
        return ""
    taken = set(checkout.git("for-each-ref", "--format=%(refname:strip=2)", "refs/heads").split())
    aside = next(name for number in range(1, len(taken) + 2) if (name := f"{branch}-{number}") not in taken)
    head = checkout.git("rev-parse", f"refs/heads/{branch}").strip()
    if changed:
        author = ("-c", "user.name=npu-upgrade", "-c", "user.email=npu-upgrade@localhost")
        # `stash create` stores what is tracked and changes nothing; no hook of the user's runs.
        kept = checkout.git(*author, "stash", "create").strip()
        message = "The upgrade as it was when it was merged again"
        head = checkout.git(*author, "commit-tree", f"{kept}^{{tree}}", "-p", head, "-m", message).strip()
    checkout.git("branch", "--no-track", aside, head)
    if on_it:
        checkout.git("reset", "--quiet", "--hard")
        checkout.git("switch", "--quiet", "--detach", start)
    checkout.git("branch", "--quiet", "-D", branch)
    return aside
