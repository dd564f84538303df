"""Read-only access to a clone, bare or not, by ``git``; nothing is fetched, run or changed."""

from __future__ import annotations

import difflib
import functools
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from packaging.version import InvalidVersion, Version

from npu_upgrade.ground.errors import BadInput, Blocked

TIMEOUT_SECONDS = 300
Names = list[str]  # Repo.list hides the builtin inside the class
_SETTINGS = (
    "core.fsmonitor=false", "core.quotePath=false", "protocol.allow=never", "color.ui=false",
    "log.follow=false", "log.showRoot=true", "log.showSignature=false", "i18n.logOutputEncoding=UTF-8",
)  # fmt: skip
_SAFE = ("--no-pager", *(part for setting in _SETTINGS for part in ("-c", setting)))
_KEPT = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}  # they hold safe.directory
_SHA = re.compile(r"[0-9a-f]{40,64}")
_FETCHING = re.compile(r"promisor|lazy fetch|transport '\w+' not allowed|protocol '\w+' is not allowed")


@dataclass(frozen=True)
class Change:
    """A commit and what it changed: path -> blob, None where the file was deleted. ``date`` is UTC."""

    sha: str
    date: datetime
    subject: str
    blobs: dict[str, str | None]


_DESCRIBING = ("log", "-1", "--decorate-refs=refs/tags/*", "--format=%H%x00%ct%x00%D")
Changes = list[Change]
Tags = list[tuple[str, datetime | None, str]]


class Repo:
    """A clone on this machine. Raises :class:`BadInput` when ``path`` is not the top of one."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().resolve()
        if not self.path.is_dir():
            _refuse(f"no folder {self.path}")
        # Without the ceiling, a plain folder inside some clone would silently mean that clone.
        done = self._git("rev-parse", "--absolute-git-dir", ok=(0, 128), ceiling=self.path.parent)
        if done.returncode:
            reason = done.stderr.decode("utf-8", "replace").strip().removeprefix("fatal: ")
            _refuse(f"{self.path} is not a git repository ({reason.splitlines()[0]})")
        self.git_dir = Path(os.fsdecode(done.stdout.rstrip(b"\n")))
        self._known: dict[str, bytes] = {}
        self._listed: dict[str, dict[str, str]] = {}
        self.asked = Counter[str]()
        """How many files of a commit were asked for one by one."""

    @cached_property
    def is_shallow(self) -> bool:
        """Whether the history of the clone is cut off."""
        return self._text("rev-parse", "--is-shallow-repository").strip() == "true"

    @property
    def origin(self) -> str:
        """The address it was cloned from, empty where there is none; it may hold a password."""
        return self._git("config", "--get", "remote.origin.url", ok=(0, 1)).stdout.decode().strip()

    def resolve(self, ref: str) -> str:
        """The full SHA of the commit a tag, branch (local or of a remote) or SHA names."""
        for candidate in self._names_of(ref):
            done = self._git(
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                f"{candidate}^{{commit}}",
                ok=(0, 1, 128),
            )
            if done.returncode == 0:
                return done.stdout.decode().strip()
        names = self._text(
            "for-each-ref", "--format=%(refname:strip=2)", "refs/tags", "refs/heads", "refs/remotes"
        )
        near = difflib.get_close_matches(ref, names.split(), n=5, cutoff=0.3)
        raise BadInput(
            f"no commit {ref!r} in {self.path}" + (" (a shallow clone)" if self.is_shallow else ""),
            expected=f"a tag, branch or SHA, such as {', '.join(near)}" if near else "a tag, branch or SHA",
            try_=f"`git -C {self.path} fetch --tags` when it is newer than the clone",
        )

    def _names_of(self, ref: str) -> Iterator[str]:
        """What a ref may be called here: as it is, and as a branch of each remote."""
        yield ref
        remotes = [f"refs/remotes/{remote}/{ref}" for remote in self._text("remote").split()]
        yield from sorted(remotes, key=lambda name: "/origin/" not in name)

    def commit_date(self, sha: str) -> datetime:
        """The committer's date of a commit, in UTC."""
        return self.describe(sha)[0]

    def describe(self, sha: str) -> tuple[datetime, Names]:
        """The committer's date (UTC) of a commit and the tags on exactly it."""
        return _described(self._text(*_DESCRIBING, sha, "--"))[1:]

    def look_up(self, ref: str) -> tuple[str, datetime, Names]:
        """The commit that ``ref`` names, as :meth:`resolve`, and what :meth:`describe` tells of it."""
        done = self._git(*_DESCRIBING, "--end-of-options", f"{ref}^{{commit}}", "--", ok=(0, 128))
        if done.returncode == 0:
            return _described(done.stdout.decode("utf-8", "replace"))
        sha = self.resolve(ref)
        return sha, *self.describe(sha)

    def built_version(self, sha: str) -> str | None:
        """The version that setuptools-scm gives a build of a commit; None where no tag before it is one.

        ``v0.18.0rc1`` and 5 commits: ``0.18.0rc2.dev5+g1a2b3c4d5``.
        """
        done = self._git("describe", "--tags", "--long", "--abbrev=9", sha, ok=(0, 128))
        tag, _, rest = done.stdout.decode().strip().rpartition("-g")
        name, _, count = tag.rpartition("-")
        version = version_of_tag(name)
        if version is None or count == "0":
            return version
        last = re.compile(r"(\d+)(\.dev\d+)?$")
        following = last.sub(lambda found: str(int(found[1]) + 1), Version(version).public)
        return f"{following}.dev{count}+g{rest}"

    def tags(self, merged: str | None = None) -> Tags:
        """Name, date (UTC) and commit of each tag, of all or of those in the history of ``merged``."""
        form = "--format=%(refname:strip=2)%00%(creatordate:unix)%00%(objectname)%00%(*objectname)"
        limit = [f"--merged={merged}"] if merged else []
        rows = [
            line.split("\0") for line in self._text("for-each-ref", form, *limit, "refs/tags").splitlines()
        ]
        return [
            (name, datetime.fromtimestamp(int(seconds), UTC) if seconds else None, peeled or sha)
            for name, seconds, sha, peeled in rows
        ]

    def line_from(self, sha: str, count: int) -> tuple[Names, Names]:
        """The commits before and after one on its branch, nearest first, at most ``count`` each."""
        refs = ("refs/heads", "refs/remotes")
        form = ("--format=%(objectname)", f"--contains={sha}", "--sort=-committerdate", "--count=1")
        tip = self._text("for-each-ref", *form, *refs).strip()
        older = self._text("rev-list", "--first-parent", f"--max-count={count + 1}", sha).split()[1:]
        newer = self._text("rev-list", "--first-parent", "--reverse", f"{sha}..{tip}").split() if tip else []
        return older, newer[:count]

    def files(self, sha: str) -> dict[str, str]:
        """Path -> blob SHA of every regular file in the tree of a commit."""
        if sha in self._listed:
            return self._listed[sha]
        entries = {}
        for line in self._git("ls-tree", "-r", "-z", sha).stdout.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, _, blob = head.decode().split()
            if mode.startswith("100"):
                entries[os.fsdecode(path)] = blob
        if _SHA.fullmatch(sha):
            self._listed[sha] = entries
        return entries

    def list(self, sha: str, prefix: str = "") -> Names:
        """Sorted paths of the regular files at a commit, all or those of one folder."""
        return below(self.files(sha), prefix)

    def read(self, sha: str, path: str) -> str:
        """The text of a file at a commit; :class:`BadInput` when it is missing or not UTF-8."""
        blob = self.files(sha).get(path)
        if blob is None:
            raise no_file(path, f"git:{self.path}@{sha}")
        return decoded(self.blob(blob), path)

    def blob(self, sha: str) -> bytes:
        """The bytes of one blob."""
        return self._known[sha] if sha in self._known else self._blobs([sha])[sha]

    def blobs_of(self, files: Mapping[str, str], paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of some of ``files`` (path -> blob SHA), read in one go."""
        wanted = {path: files[path] for path in paths}
        self.keep(wanted.values())
        return {path: self._known[sha] for path, sha in wanted.items()}

    def keep(self, shas: Iterable[str]) -> None:
        """Read blobs in one go, for :meth:`blob`: neighbouring commits share nearly all of them."""
        if new := set(shas) - self._known.keys():
            self._known |= self._blobs(new)

    def blobs(self, shas: Iterable[str]) -> dict[str, str]:
        """Blob SHA -> text, read in one go; bytes that are no UTF-8 become U+FFFD."""
        return {sha: data.decode("utf-8", "replace") for sha, data in self._blobs(shas).items()}

    def grep(self, pattern: str) -> Names:
        """The Python files of the work tree with a line that an extended regular expression matches."""
        return self._git("grep", "-lE", "-e", pattern, "--", "*.py", ok=(0, 1)).stdout.decode().splitlines()

    def file_history(self, path: str, refs: Iterable[str] = ()) -> Changes:
        """The commits that changed ``path``, newest first.

        Over ``refs``, or over all branches and tags (``refs/pull`` left out: a mirror has
        thousands). A merge counts where its result differs from every parent.
        """
        starts = [self.resolve(ref) for ref in refs] or ["--branches", "--tags", "--remotes"]
        shape = ("--raw", "-c", "--no-abbrev", "--no-renames", "--full-history", "--date-order")
        # A merge that took the file from a parent as it was changed nothing.
        return [change for change in self._log(*shape, *starts, path=path) if path in change.blobs]

    def changes(self, since: str, until: str, folder: str) -> Changes:
        """The commits of ``until``'s branch after ``since`` that changed files of a folder, oldest first.

        A merge counts with all that it brought to the branch.
        """
        shape = ("--first-parent", "-m", "--raw", "--no-abbrev", "--no-renames", "--reverse")
        return self._log(*shape, f"{since}..{until}", path=folder)

    def _log(self, *shape: str, path: str) -> Changes:
        text = self._text("log", *shape, "--format=%x01%H%x00%ct%x00%s", "--", f":(literal){path}")
        return [_change(entry) for entry in re.split(r"\x01(?=[0-9a-f]{40,64}\0)", text)[1:]]

    def before(self, date: datetime, ref: str) -> str | None:
        """The last commit of a branch up to a date; None where the branch is younger."""
        limit = f"--before={date.isoformat()}"
        return self._text("rev-list", "-1", "--first-parent", limit, self.resolve(ref)).strip() or None

    def folder(self, sha: str, folder: str) -> str:
        """What git calls the content of a folder at a commit; empty where it has none."""
        done = self._git("rev-parse", "--verify", "--quiet", f"{sha}:{folder}", ok=(0, 1, 128))
        return done.stdout.decode().strip()

    def refs(self) -> Names:
        """All branches and tags, each as its SHA and its name."""
        return self._text("for-each-ref", "--format=%(objectname) %(refname)").splitlines()

    def head_and_dirty(self) -> tuple[str | None, bool]:
        """The SHA of HEAD (None before the first commit) and whether the work tree differs from it."""
        done = self._git("rev-parse", "--verify", "--quiet", "HEAD^{commit}", ok=(0, 1, 128))
        head = done.stdout.decode().strip() or None
        drivers = self._git("config", "--null", "--name-only", "--get-regexp", r"^filter\.", ok=(0, 1)).stdout
        # `status` runs the clean filters a clone configures; an empty command runs none.
        names = {key.rpartition(".")[0] for key in os.fsdecode(drivers).split("\0") if key}
        off = [f"{name}.{key}" for name in sorted(names) for key in ("clean=", "process=", "required=false")]
        options = [part for setting in off for part in ("-c", setting)]
        status = self._git("status", "--porcelain", "-z", "--ignore-submodules=dirty", options=options)
        return head, bool(status.stdout)

    def _blobs(self, shas: Iterable[str]) -> dict[str, bytes]:
        wanted = list(dict.fromkeys(shas))
        answer = self._git("cat-file", "--batch", stdin="".join(f"{sha}\n" for sha in wanted).encode()).stdout
        found, position = {}, 0
        for sha in wanted:
            end = answer.index(b"\n", position)
            head = answer[position:end].split()
            if head[1:2] != [b"blob"]:
                raise _absent(self.path, f"object {sha}")
            size = int(head[2])
            found[sha] = answer[end + 1 : end + 1 + size]
            position = end + size + 2
        return found

    def _text(self, *args: str) -> str:
        return self._git(*args).stdout.decode("utf-8", "replace")

    def _git(
        self,
        *args: str,
        ok: tuple[int, ...] = (0,),
        options: Iterable[str] = (),
        stdin: bytes = b"",
        ceiling: Path | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        env = _environment() | ({"GIT_CEILING_DIRECTORIES": str(ceiling)} if ceiling else {})
        command = ["git", *_SAFE, *options, "-C", str(self.path), *args]
        try:
            done = subprocess.run(command, env=env, capture_output=True, timeout=TIMEOUT_SECONDS, input=stdin)
        except FileNotFoundError as error:
            raise Blocked("git is not installed", expected="git on PATH", try_="install git") from error
        except subprocess.TimeoutExpired as error:
            raise Blocked(
                f"git {args[0]} took more than {TIMEOUT_SECONDS} s in {self.path}",
                expected="a clone on a local disk",
                try_="clone it to a local disk",
            ) from error
        stderr = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode and _FETCHING.search(stderr):
            raise _absent(self.path, stderr.splitlines()[-1])
        if done.returncode not in ok:
            raise Blocked(
                f"git {args[0]} failed in {self.path}: {stderr[:500]}",
                expected="an intact clone",
                try_=f"`git -C {self.path} fsck`, or a fresh clone",
            )
        return done


def clone_at(path: Path | str) -> Repo:
    """The clone at ``path``, one for all of a process: what was read of a commit stays read.

    Raises :class:`BadInput` as :class:`Repo` does.
    """
    where = Path(path).expanduser().resolve()
    return _clone_at(where, where.stat().st_ino) if where.exists() else Repo(where)


@functools.lru_cache(maxsize=8)
def _clone_at(path: Path, _inode: int) -> Repo:
    return Repo(path)


def below(paths: Iterable[str], prefix: str) -> list[str]:
    """The sorted ``paths`` that are ``prefix`` or lie in that folder."""
    folder = prefix.rstrip("/")
    return sorted(path for path in paths if not folder or path == folder or path.startswith(f"{folder}/"))


def decoded(data: bytes, path: str) -> str:
    """UTF-8 text, or :class:`BadInput` with the path."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start})",
            expected="a text file",
            try_="name another file",
        ) from error


def version_of_tag(tag: str) -> str | None:
    """The version a tag names ("v0.18.0rc1" -> "0.18.0rc1"), or None for another kind of tag."""
    try:
        return str(Version(tag))
    except InvalidVersion:
        return None


def no_file(path: str, source: str) -> BadInput:
    """The error for a path a source does not have."""
    return BadInput(
        f"no file {path} in {source}",
        expected="a path from the top of the source, with '/'",
        try_="another path or version: the file may have moved",
    )


def _described(text: str) -> tuple[str, datetime, Names]:
    sha, seconds, names = text.strip("\n").split("\0")
    tags = [name.removeprefix("tag: ") for name in names.split(", ") if name.startswith("tag: ")]
    return sha, datetime.fromtimestamp(int(seconds), UTC), tags


def _change(entry: str) -> Change:
    """One entry of a log."""
    head, _, raw = entry.partition("\n")
    sha, seconds, subject = head.split("\0", 2)
    lines = (line.partition("\t") for line in raw.splitlines() if line.startswith(":"))
    # ":100644 100644 OLD NEW M\tPATH"; a merge has one more colon, mode and SHA per parent.
    blobs = {path: fields.split()[-2] for fields, _, path in lines}
    named = {path: blob if blob.strip("0") else None for path, blob in blobs.items()}
    return Change(sha, datetime.fromtimestamp(int(seconds), UTC), subject, named)


def _environment() -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key in _KEPT}
    return env | {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


def _refuse(what: str) -> NoReturn:
    raise BadInput(
        what,
        expected="the top folder of a clone, or a bare repository",
        try_="check the path, or `git clone` it first",
    )


def _absent(path: Path, what: str) -> Blocked:
    return Blocked(
        f"the clone {path} does not hold everything it names: {what}",
        expected="a full clone (not --filter, not damaged)",
        try_=f"`git -C {path} fetch --refetch --no-filter`, or a fresh full clone (nothing is fetched here)",
    )
