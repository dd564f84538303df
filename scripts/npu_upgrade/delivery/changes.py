"""Files of the working tree in a scratch copy of the index, for git to compare and to commit."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

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
