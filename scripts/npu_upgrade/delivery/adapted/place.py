"""Putting the files of a delivery into a working tree, and taking them out again when there is no commit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

from npu_upgrade.delivery.adapted.backport import Content
from npu_upgrade.delivery.changes import at_commit, differing, in_working_tree
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.sources.checkout import Checkout


def check_free(checkout: Checkout, incoming: Mapping[str, Content]) -> None:
    """Raise :class:`BadInput` when a file that is to be written has changes that would be lost."""
    committed = at_commit(checkout, "HEAD", incoming) if incoming else {}
    changed = differing(committed, in_working_tree(checkout, incoming, committed)) if incoming else []
    for path in changed:
        if _read(checkout.root / path) != incoming[path].data:
            raise BadInput(
                f"{path} has changes in {checkout.root} and in the implementation root",
                expected="the change in one of the two",
                try_=f"git -C {checkout.root} stash, or --leave {path}",
            )


@contextlib.contextmanager
def in_place(root: Path, incoming: Mapping[str, Content]) -> Generator[Callable[[], None]]:
    """Write ``incoming`` below ``root``; unless the given function is called, it is all taken back."""
    before = {path: (_read(root / path), _mode(root / path)) for path in incoming}
    folders = {parent for path in incoming for parent in (root / path).parents if not parent.exists()}
    kept = False

    def keep() -> None:
        nonlocal kept
        kept = True

    try:
        for path, content in incoming.items():
            _put(root / path, content.data, 0o755 if content.mode == "100755" else 0o644)
        yield keep
    finally:
        if not kept:
            for path, (data, mode) in before.items():
                _put(root / path, data, mode)
            for folder in sorted(folders, reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _put(path: Path, data: bytes | None, mode: int) -> None:
    if data is None:
        path.unlink(missing_ok=True)
        return
    write_atomic(path, data)
    os.chmod(path, mode)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(
            f"cannot read {path}: {error.strerror or error}",
            expected="a plain file",
            try_="check its permissions",
        ) from error


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777 if path.exists() else 0o644
