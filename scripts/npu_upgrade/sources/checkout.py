"""The user's git checkout, through git itself; reading it never writes anything, not even its index."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.ground.errors import BadInput, Blocked

_OWN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")


@dataclass(frozen=True)
class Checkout:
    """A checkout with a working tree, by its top folder."""

    root: Path

    def run(
        self, *args: str, stdin: str = "", index: Path | None = None, objects: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run git in the checkout, without a shell, a pager or a terminal to ask on.

        ``objects`` is a folder that takes what git stores, instead of the checkout's own store.
        """
        # An identity git made up from the host name must not sign anything off.
        command, extra = (
            ["git", "-c", "user.useConfigOnly=true", *args],
            {"LC_ALL": "C.UTF-8", "LANGUAGE": "C"},
        )
        if args[0] != "commit":  # its hooks would inherit this
            extra["GIT_LITERAL_PATHSPECS"] = "1"
        if index:
            extra["GIT_INDEX_FILE"] = str(index)
        if objects:
            extra["GIT_OBJECT_DIRECTORY"] = str(objects)
            extra["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(self.git_path("objects").resolve())
        env = {key: value for key, value in os.environ.items() if key not in _OWN} | extra
        try:
            # A session of its own has no terminal: a locked signing key fails instead of asking.
            return subprocess.run(
                command,
                cwd=self.root,
                env=env,
                input=stdin,
                capture_output=True,
                check=False,
                encoding="utf-8",
                errors="surrogateescape",
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise Blocked("git is not installed", expected="git on PATH", try_="install git") from error

    def git(self, *args: str, stdin: str = "", index: Path | None = None, objects: Path | None = None) -> str:
        """The output of a git command that has to succeed; raises :class:`Blocked` with git's own words."""
        done = self.run(*args, stdin=stdin, index=index, objects=objects)
        if done.returncode != 0:
            raise Blocked(
                f"git {args[0]} failed: {done.stderr.strip()}",
                expected=f"git to work in {self.root}",
                try_="put right what git names, then run the same command again",
            )
        return done.stdout

    def ask(self, *args: str) -> str | None:
        """The output of a git command without its newline, or None when git says no."""
        done = self.run(*args)
        return done.stdout.rstrip("\n") if done.returncode == 0 else None

    def git_path(self, name: str) -> Path:
        """Where git keeps ``name`` for this checkout (a linked worktree has its own)."""
        return self.root / self.git("rev-parse", "--git-path", name).rstrip("\n")

    def config(self, key: str, kind: str = "") -> str | None:
        return self.ask("config", *([f"--type={kind}"] if kind else []), "--get", key)

    def branch(self) -> str | None:
        """The branch HEAD is on, or None when HEAD is detached."""
        return self.ask("symbolic-ref", "--quiet", "--short", "HEAD")

    def default_branches(self) -> set[str]:
        """What the remotes call their default branch; without a remote, the usual names."""
        lines = self.git("for-each-ref", "--format=%(refname:lstrip=3) %(symref:lstrip=3)", "refs/remotes")
        heads = [line.split(" ", 1) for line in lines.splitlines()]
        return {target for name, target in heads if name == "HEAD" and target} or {"main", "master"}

    @contextlib.contextmanager
    def scratch_index(self) -> Generator[Path]:
        """A copy of the index to work in, gone afterwards; the user's own stays as it is.

        A copy keeps sparse and intent-to-add entries, which ``git read-tree HEAD`` would lose, and the time
        of the index, by which git tells which files may have changed since it was written.
        """
        index = self.git_path("index")
        with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as folder:
            scratch = Path(folder).resolve() / "index"
            if index.exists():
                shutil.copy2(index, scratch)
            yield scratch


@functools.lru_cache(maxsize=256)
def text_at(checkout: Checkout, commit: str, path: str) -> str | None:
    """The text of a file in a commit, by the SHA of that; None where it has no such file."""
    done = checkout.run("show", f"{commit}:{path}")
    return done.stdout if done.returncode == 0 else None


_known: set[tuple[Path, int]] = set()  # the folders that were seen to be the top of a checkout


def open_checkout(path: Path, option: str = "--repo") -> Checkout:
    """The checkout whose top folder is ``path``; raises :class:`BadInput` for anything else.

    ``option`` is what the folder was given with.
    """
    if not path.is_dir():
        raise BadInput(f"no folder {path}", expected="a git checkout", try_=f"{option} PATH of the clone")
    checkout = Checkout(path.resolve())
    if (checkout.root, path.stat().st_ino) in _known:
        return checkout
    done = checkout.run("rev-parse", "--show-toplevel")
    top = done.stdout.rstrip("\n")
    if done.returncode != 0 or not top:
        raise BadInput(
            f"{path} is not a git checkout: {done.stderr.strip() or 'it is bare'}",
            expected="a clone with a working tree",
            try_=f"{option} PATH of the clone that was worked in",
        )
    if Path(top).resolve() != checkout.root:
        raise BadInput(
            f"{path} is a folder inside the checkout {top}",
            expected="the checkout's top folder",
            try_=f"{option} {top}",
        )
    _known.add((checkout.root, path.stat().st_ino))
    return checkout
