"""Where a commit goes: a checkout that can take it now, and the earlier delivery it replaces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.checkout import Checkout, open_checkout

_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}


@dataclass(frozen=True)
class Earlier:
    """The commit at HEAD that is the delivery, as people may have edited it.

    ``base`` is its parent (the empty tree for a root commit), ``files`` what it changes, ``pushed`` the
    remote branches that have it.
    """

    sha: str
    base: str
    files: list[str]
    title: str
    body: str
    signed: bool
    pushed: list[str]


@dataclass(frozen=True)
class Place:
    """``signer`` is ``Name <mail>`` of the committer; ``marker`` the trailer that names what is delivered."""

    checkout: Checkout
    branch: str
    head: str
    signer: str
    marker: str
    earlier: Earlier | None

    @property
    def base(self) -> str:
        """The commit or tree that the delivery stands on."""
        return self.earlier.base if self.earlier else self.head

    @property
    def pushed(self) -> list[str]:
        return self.earlier.pushed if self.earlier else []


def open_place(repo: Path, marker: str, *, made: str | None = None, new: str = "npu-upgrade") -> Place:
    """The place for a commit in ``repo``; raises :class:`BadInput` when it cannot take one now.

    ``made`` is the branch that was made for this delivery, None when there is none; ``new`` a name for one.
    """
    checkout = open_checkout(repo)
    _check_idle(checkout)
    branch = _branch(checkout, made, new)
    signer = _signer(checkout)
    head = checkout.git("rev-parse", "HEAD").strip()
    return Place(checkout, branch, head, signer, marker, _earlier(checkout, head, marker, branch))


def _check_idle(checkout: Checkout) -> None:
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


def _branch(checkout: Checkout, made: str | None, new: str) -> str:
    branch = checkout.branch()
    wanted = f"the branch {made}" if made else "a branch for the delivery"
    switch = f"git switch {made}" if made else f"git switch -c {new}"
    if branch is None:
        raise BadInput("HEAD is detached, so no branch would hold the commit", expected=wanted, try_=switch)
    if branch in checkout.default_branches() and branch != made:
        raise BadInput(f"HEAD is on the default branch {branch}", expected=wanted, try_=switch)
    return branch


def _signer(checkout: Checkout) -> str:
    for variable in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        done = checkout.run("var", variable)
        if done.returncode != 0:
            raise BadInput(
                f"git does not know who commits: {done.stderr.strip().splitlines()[-1]}",
                expected="user.name and user.email set (one made up from the host name signs nothing off)",
                try_='git config user.name "NAME" && git config user.email MAIL',
            )
    return done.stdout.strip().rsplit(" ", 2)[0]


def _earlier(checkout: Checkout, head: str, marker: str, branch: str) -> Earlier | None:
    """The delivery at HEAD to make again; refuses when that would rewrite commits of others."""
    found = checkout.git("log", "--format=%H", "--fixed-strings", f"--grep={marker}", "HEAD").split()
    # As a line of its own, wherever it is: a paragraph added below it makes it no trailer to git.
    sha = next((sha for sha in found if marker in _show(checkout, sha, "%B").splitlines()), None)
    if sha is None:
        return None
    if sha != head:
        raise not_alone(
            f"commits were made on top of {sha[:12]}, which is the delivery",
            f"git rebase -i {sha[:12]}^ to move them away or into it, or deliver from a branch without them",
        )
    elsewhere, pushed = _branches_with(checkout, sha, branch)
    if elsewhere:
        raise not_alone(
            f"{sha[:12]}, which is the delivery, is already in {', '.join(elsewhere)}",
            "commit the further changes by hand on top of it",
        )
    parents = _show(checkout, sha, "%P").split()
    if len(parents) > 1:
        raise not_alone(f"{sha[:12]} is a merge commit", "git reset --soft HEAD^1, then deliver again")
    base = parents[0] if parents else checkout.git("hash-object", "-t", "tree", "--stdin").strip()
    files = checkout.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, sha).split("\0")[:-1]
    signed, subject, body = is_signed(checkout, sha), *(_show(checkout, sha, form) for form in ("%s", "%b"))
    return Earlier(sha, base, files, subject, body, signed, pushed)


def is_signed(checkout: Checkout, sha: str) -> bool:
    """Whether a commit has a signature, besides its sign-off."""
    return "\ngpgsig" in checkout.git("cat-file", "commit", sha).split("\n\n", 1)[0]


def _show(checkout: Checkout, sha: str, form: str) -> str:
    return checkout.git("show", "-s", f"--format={form}", sha).strip("\n")


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


def not_alone(what: str, try_: str) -> BadInput:
    """Why an earlier delivery cannot be made again."""
    return BadInput(
        what, expected="HEAD at the delivery itself, not yet merged, with nothing added", try_=try_
    )
