"""Findings kept between runs, by the content of everything that was looked at and by our own code."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from pathlib import Path
from typing import Any

import npu_upgrade
from npu_upgrade.audit.finding import Finding, from_json
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.sources.tree import SourceTree

_PACKAGES = ("audit", "program", "pycode", "sources", "upgrade")


class KeptFindings:
    """What each check found on one triple and the old one beside it: a file for each, in one folder."""

    def __init__(self, world: World) -> None:
        triples = [world.triple] + ([world.old.triple] if world.old else [])
        content = [_content(tree) for triple in triples for tree in _trees(triple)]
        self.folder = cache_root() / "audit" / sha256(json.dumps([content, _maker()]))[:24]

    def get(self, check: str) -> list[Finding] | None:
        """The findings of a check, None when they are not known."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            stored = json.loads((self.folder / f"{check}.json").read_text("utf-8"))
            return [from_json(entry) for entry in stored]
        return None

    def put(self, check: str, found: list[Finding]) -> None:
        """Keep them; a cache that cannot be written is no reason to fail."""
        with contextlib.suppress(BadInput):
            text = json.dumps([finding.as_json() for finding in found])
            write_atomic(self.folder / f"{check}.json", text)


def _trees(triple: Triple) -> list[SourceTree]:
    return [tree for tree in (triple.omni, triple.ascend, triple.vllm) if tree]


def _content(tree: SourceTree) -> list[Any]:
    """What a tree holds: a release by its archive, a commit by its SHA, anything else file by file."""
    if tree.archive_sha256 and tree.verified:
        return ["archive", tree.archive_sha256]
    if tree.sha and not tree.dirty:
        return ["commit", tree.sha]
    return ["files", content_digest(tree), tree.version]


def content_digest(tree: SourceTree) -> str:
    """SHA-256 over the Python files of a tree, which pins one that is no release and no commit."""
    return sha256("".join(f"{path} {_digest(tree, path)}\n" for path in tree.list() if path.endswith(".py")))


def _digest(tree: SourceTree, path: str) -> str:
    try:
        return sha256(tree.read(path))
    except BadInput:  # not UTF-8, so no check reads it either
        return "unreadable"


@functools.cache
def _maker() -> str:
    """Our own code and this Python: what else findings depend on."""
    root = Path(npu_upgrade.__file__).parent
    code = b"".join(
        path.read_bytes() for package in _PACKAGES for path in sorted((root / package).rglob("*.py"))
    )
    return sha256(code + f"{sys.version_info[:2]}".encode())
