"""A source tree with some files replaced: a merge's result before it is anywhere, an edited release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from npu_upgrade.ground.files import sha256
from npu_upgrade.sources.git import below
from npu_upgrade.sources.tree import SourceTree


def overlay(tree: SourceTree, texts: Mapping[str, str | None]) -> SourceTree:
    """``tree`` with the files of ``texts`` (path -> text, None for a file that is gone) in their place.

    The result is no release and no commit any more: its identity names the content of the
    replaced files, and it counts as dirty.
    """
    if not texts:
        return tree
    digest = sha256("".join(f"{path} {sha256(text or '')}\n" for path, text in sorted(texts.items())))

    def listed(prefix: str) -> list[str]:
        gone = {path for path, text in texts.items() if text is None}
        return below(sorted({*tree.list(), *texts} - gone), prefix)

    def data(path: str) -> bytes:
        return many([path])[path]

    def many(paths: Sequence[str]) -> dict[str, bytes]:
        new = {path: text.encode() for path, text in texts.items() if text is not None}
        return tree.contents([path for path in paths if path not in new]) | {
            path: new[path] for path in paths if path in new
        }

    return replace(
        tree,
        spec=f"{tree.spec} with {len(texts)} files replaced ({digest[:12]})",
        archive_sha256=None,
        dirty=True,
        root=None,
        _has=lambda path: texts[path] is not None if path in texts else tree.exists(path),
        _bytes=data,
        _paths=listed,
        _many=many,
    )
