"""The same thing's earlier delivery, when the checkout already holds one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from npu_upgrade.delivery.changes import GONE, Entry, at_commit
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.checkout import Checkout


@dataclass(frozen=True)
class Earlier:
    """The commit at HEAD that is the delivery, as people may have edited it.

    ``base`` is its parent (the empty tree for a root commit); ``pushed`` the remote branches that have it.
    """

    sha: str
    base: str
    title: str
    body: str
    signed: bool
    pushed: list[str]


def find_earlier(checkout: Checkout, marker: str, files: Collection[str], branch: str) -> Earlier | None:
    """The delivery at HEAD to make again, or None when there is none.

    ``marker`` is the trailer that names what was delivered, ``files`` are all that it may change.

    Raises :class:`BadInput` when making it again would rewrite commits of others.
    """
    found = checkout.git("log", "--format=%H", "--fixed-strings", f"--grep={marker}", "HEAD").split()
    delivered = [sha for sha in found if _delivers(checkout, sha, marker)]
    if not delivered:
        return None
    sha, head = delivered[0], checkout.git("rev-parse", "HEAD").strip()
    if sha != head:
        raise _refusal(
            f"commits were made on top of {sha[:12]}, which is the delivery",
            f"git rebase -i {sha[:12]}^ to move them away or into it, or deliver from a branch without them",
        )
    elsewhere, pushed = _branches_with(checkout, head, branch)
    if elsewhere:
        raise _refusal(
            f"{sha[:12]}, which is the delivery, is already in {', '.join(elsewhere)}",
            "commit the further changes by hand on top of it",
        )
    return _describe(checkout, head, files, pushed)


def _describe(checkout: Checkout, sha: str, files: Collection[str], pushed: list[str]) -> Earlier:
    parents = checkout.git("show", "-s", "--format=%P", sha).split()
    if len(parents) > 1:
        raise _refusal(f"{sha[:12]} is a merge commit", "git reset --soft HEAD^1, then deliver again")
    base = parents[0] if parents else checkout.git("hash-object", "-t", "tree", "--stdin").strip()
    changed = checkout.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, sha).split("\0")[:-1]
    others = sorted(set(changed) - set(files))
    if others:
        raise _refusal(
            f"{sha[:12]} also changes {', '.join(others[:5])}, which the delivery does not",
            "git reset --soft HEAD^, deliver again, and commit those files on top",
        )
    title, body = (checkout.git("show", "-s", f"--format={part}", sha).strip("\n") for part in ("%s", "%b"))
    signed = "\ngpgsig" in checkout.git("cat-file", "commit", sha).split("\n\n", 1)[0]
    return Earlier(sha, base, title, body, signed, pushed)


def is_as_delivered(
    checkout: Checkout, earlier: Earlier, now: dict[str, Entry], text: str, signer: str
) -> bool:
    """Whether making the commit again would give the same files and message."""
    there = {path: entry for path, entry in now.items() if entry.mode != GONE}
    message = checkout.git("show", "-s", "--format=%B", earlier.sha).strip()
    return (
        at_commit(checkout, earlier.sha, now) == there
        and message == f"{text.strip()}\nSigned-off-by: {signer}"
    )


def _delivers(checkout: Checkout, sha: str, marker: str) -> bool:
    # As a line of its own, wherever it is: a paragraph added below it makes it no trailer to git.
    return marker in checkout.git("show", "-s", "--format=%B", sha).splitlines()


def _branches_with(checkout: Checkout, sha: str, branch: str) -> tuple[list[str], list[str]]:
    """The branches that contain a commit: those of others, and the remote ones of this branch."""
    listing = checkout.git(
        "for-each-ref", f"--contains={sha}", "--format=%(refname)", "refs/heads", "refs/remotes"
    )
    tracked = (f"{branch}@{{upstream}}", f"{branch}@{{push}}")
    own = {checkout.ask("rev-parse", "--symbolic-full-name", name) for name in tracked}
    elsewhere, pushed = [], []
    for ref in listing.split():
        kind, _, name = ref.removeprefix("refs/").partition("/")
        is_default = kind == "remotes" and name.partition("/")[2] in checkout.default_branches()
        if ref == f"refs/heads/{branch}" or name.endswith("/HEAD"):
            continue
        if kind == "remotes" and not is_default and (ref in own or name.partition("/")[2] == branch):
            pushed.append(name)
        else:
            elsewhere.append(name)
    return elsewhere, pushed


def _refusal(what: str, try_: str) -> BadInput:
    return BadInput(
        what, expected="HEAD at the delivery itself, not yet merged, with nothing added", try_=try_
    )
