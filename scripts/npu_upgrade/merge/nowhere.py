"""Names in a conflict that nothing has any more: neither the target, nor its vllm, nor the tree itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.merge.gone import vllm_tree
from npu_upgrade.merge.vain import ASKED
from npu_upgrade.program.words import words_of
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.tree import open_source

_MOST = 6


def nowhere(target: str, root: Path, sides: Iterable[str]) -> list[str]:
    """The attributes and functions of ``sides`` of conflicts that none of the trees has, but to read or call.

    ``target`` is the spec of the upstream that is merged, ``root`` the checkout. Nothing where a tree cannot
    be had.
    """
    names = dict.fromkeys(name for side in sides for found in ASKED.findall(side) for name in found if name)
    try:
        upstream = open_source(target)
        trees = [tree for tree in (upstream, vllm_tree(upstream)) if tree]
        gone = [name for name in names if not any(words_of(tree).of(name) for tree in trees)]
        return [name for name in gone if not _is_own(Repo(root), name)][:_MOST] if len(trees) > 1 else []
    except UpgradeError:
        return []


def _is_own(repo: Repo, name: str) -> bool:
    """Whether a file of the checkout defines or sets a name."""
    return bool(repo.grep(rf"(def|class) +{name}\b|\b{name} *(:[^=]*)?=[^=]"))
