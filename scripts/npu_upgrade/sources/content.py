"""What a result is kept by: the content of the trees that were looked at, and our own code."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import npu_upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.held import held
from npu_upgrade.sources.tree import SourceTree


def content_of(tree: SourceTree) -> list[Any]:
    """What a tree holds: a release by its archive, a commit by its SHA, anything else file by file."""
    return lasting(tree) or ["files", content_digest(tree), tree.version]


def lasting(tree: SourceTree) -> list[Any] | None:
    """What names the content of a release or a commit for good; None for anything else."""
    if tree.archive_sha256 and tree.verified:
        return ["archive", tree.archive_sha256]
    return ["commit", tree.sha] if tree.sha and not tree.dirty else None


@held
def content_digest(tree: SourceTree) -> str:
    """SHA-256 over the Python files of a tree, which pins one that is no release and no commit:
    as it was when it was first asked."""
    return sha256("".join(f"{path} {_digest(tree, path)}\n" for path in tree.list() if path.endswith(".py")))


def _digest(tree: SourceTree, path: str) -> str:
    try:
        return sha256(tree.read(path))
    except BadInput:  # not UTF-8, so nothing else reads it either
        return "unreadable"


@functools.cache
def code_digest(*rooms: str) -> str:
    """SHA-256 of our own code in some rooms, and of this Python: what else a result depends on."""
    root = Path(npu_upgrade.__file__).parent
    paths = (path for room in rooms for path in sorted((root / room).rglob("*.py")))
    return sha256(b"".join(path.read_bytes() for path in paths) + f"{sys.version_info[:2]}".encode())
