"""What differs in a checkout from the commit that a delivery stands on; the user's index stays as it is."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from npu_upgrade.sources.checkout import Checkout


def stage(checkout: Checkout, paths: Collection[str], index: Path, objects: Path | None = None) -> None:
    """Bring ``paths`` in a scratch index to what is in the working tree, whatever flags they have.

    ``objects`` takes the blobs instead of the checkout's own store.
    """
    known = checkout.git("ls-files", "-z", "--", *paths, index=index)
    for flag in ("--no-assume-unchanged", "--no-skip-worktree"):
        checkout.git("update-index", flag, "-z", "--stdin", stdin=known, index=index)
    names = "".join(f"{path}\0" for path in paths)
    checkout.git(
        "update-index", "--add", "--remove", "-z", "--stdin", stdin=names, index=index, objects=objects
    )


def changed_since(checkout: Checkout, commit: str, paths: Collection[str]) -> list[str]:
    """Those of ``paths`` that are not in the working tree as they are in ``commit``."""
    if not paths:
        return []
    with checkout.scratch_index() as index:
        objects = index.parent / "objects"
        objects.mkdir()
        stage(checkout, paths, index, objects)
        options = ("--cached", "--name-only", "--no-renames", "--no-ext-diff", "-z")
        listed = checkout.git("diff", *options, commit, "--", *paths, index=index, objects=objects)
        return sorted(listed.split("\0")[:-1])


def base_of(checkout: Checkout, marker: str) -> str:
    """The commit that the delivery named by the trailer ``marker`` stands on: HEAD, or the one before it."""
    head, _, body = checkout.git("show", "-s", "--format=%H %P%n%B", "HEAD").partition("\n")
    names = head.split()
    return names[1] if marker in body.splitlines() and len(names) > 1 else names[0]


def edited(checkout: Checkout, base: str, folders: Collection[str]) -> list[str]:
    """The files below ``folders`` that were changed since ``base``; of those new to git, the Python."""
    there = _folders(checkout, folders)
    if not there:
        return []
    kinds = ("--modified", "--deleted", "--others", "--exclude-standard")
    listed = checkout.git("ls-files", "-z", "-t", *kinds, "--", *there)
    rows = [(row[0], row[2:]) for row in listed.split("\0")[:-1]]  # a letter, "?" for what git does not know
    staged = checkout.git("diff-index", "--cached", "--name-only", "--no-renames", "-z", base, "--", *there)
    changed = {name for kind, name in rows if kind != "?" or name.endswith(".py")}
    names = {*changed, *staged.split("\0")} - {""}
    return sorted(name for name in names if not (checkout.root / name).is_dir())


def untracked(checkout: Checkout, folders: Collection[str]) -> list[str]:
    """The files below ``folders`` that are new to git and not ignored."""
    there = _folders(checkout, folders)
    if not there:
        return []
    listed = checkout.git("ls-files", "-z", "--others", "--exclude-standard", "--", *there)
    return [name for name in listed.split("\0") if name and not name.endswith("/")]


def _folders(checkout: Checkout, folders: Collection[str]) -> list[str]:
    return [folder for folder in folders if (checkout.root / folder).is_dir()]


def top_folders(paths: Collection[str]) -> list[str]:
    """The outermost folder of each path, the root's own files left out."""
    return sorted({PurePosixPath(path).parts[0] for path in paths if "/" in path})
