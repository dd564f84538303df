"""The files of a delivery as git objects: what is in the working tree against a commit."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.sources.checkout import Checkout

GONE = "000000"


@dataclass(frozen=True)
class Entry:
    """One path at one place: git mode (``000000`` when it is not there) and blob SHA."""

    path: str
    mode: str
    blob: str


def at_commit(checkout: Checkout, commit: str, paths: Iterable[str]) -> dict[str, Entry]:
    """The entries of ``paths`` in a commit or tree; paths it lacks are left out."""
    paths = list(paths)
    listing = checkout.git("ls-tree", "-z", "--full-tree", commit, "--", *paths) if paths else ""
    entries = {}
    for line in listing.split("\0")[:-1]:
        head, _, path = line.partition("\t")
        mode, _, blob = head.split()
        entries[path] = Entry(path, mode, blob)
    return entries


def in_working_tree(
    checkout: Checkout, paths: Iterable[str], before: dict[str, Entry], *, store: bool = False
) -> dict[str, Entry]:
    """The entries git would make of the files now (its clean filters apply); ``store`` keeps the blobs.

    ``before`` gives the modes where the file system cannot tell (core.fileMode false).
    """
    paths = sorted(paths)
    there = [path for path in paths if (checkout.root / path).is_file()]
    names = "".join(f"{path}\n" for path in there)
    hashed = checkout.git("hash-object", *(["-w"] if store else []), "--stdin-paths", stdin=names).split()
    trusted = checkout.config("core.fileMode", "bool") != "false"
    nothing = "0" * len(next(iter(hashed), "0" * 40))
    entries = {path: Entry(path, GONE, nothing) for path in paths}
    for path, blob in zip(there, hashed, strict=True):
        known = before[path].mode if path in before else "100644"
        entries[path] = Entry(path, _mode(checkout.root / path) if trusted else known, blob)
    return entries


def changed_since(checkout: Checkout, commit: str, paths: Iterable[str]) -> list[str]:
    """Those of ``paths`` that are not in the working tree as they are in ``commit``."""
    paths = list(paths)
    before = at_commit(checkout, commit, paths)
    now = in_working_tree(checkout, paths, before)
    return [path for path, entry in now.items() if entry != before.get(path, Entry(path, GONE, entry.blob))]


def put_into_index(checkout: Checkout, entries: Iterable[Entry], index: Path | None = None) -> None:
    """Set exactly these entries in an index (the user's own by default)."""
    # By object, not by path: git skips paths that are marked assume-unchanged.
    lines = "".join(f"{entry.mode} {entry.blob}\t{entry.path}\0" for entry in entries)
    checkout.git("update-index", "-z", "--index-info", stdin=lines, index=index)


def _mode(path: Path) -> str:
    return "100755" if path.stat().st_mode & stat.S_IXUSR else "100644"
