"""Names in a conflict that nothing has any more: neither the target, nor its vllm, nor the tree itself."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.merge.gone import vllm_tree
from npu_upgrade.program.words import words_of
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.tree import SourceTree, open_source
from npu_upgrade.threeway.pieces import Conflict

_ASKED = re.compile(r"\.([A-Za-z_]\w{4,})|\b([A-Za-z_]\w{4,})\s*\(")
_MOST = 6


@dataclass(frozen=True)
class Known:
    """Whether the upstream trees have a name, and whether the downstream's own defines or sets it."""

    upstream: Callable[[str], bool]
    own: Callable[[str], bool]

    def beyond_upstream(self, texts: Iterable[str]) -> list[str]:
        """What texts ask for, as attribute or function, and no upstream tree has; short names say nothing."""
        names = dict.fromkeys(
            name for text in texts for found in _ASKED.findall(text) for name in found if name
        )
        return [name for name in names if not self.upstream(name)]

    def why_vain(self, conflict: Conflict) -> str:
        """Why ours of a conflict cannot run: it asks for what none of the trees has; empty where it may.

        Ours stays to be decided where it has anything besides that only the downstream has.
        """
        others = {one.key for one in (*conflict.base, *conflict.theirs)}
        gone = self.beyond_upstream(one.key for one in conflict.ours if one.key not in others)
        if not gone or any(map(self.own, gone)):
            return ""
        return f"ours asks for {', '.join(gone)}, which nothing has any more: theirs is taken"


def known_in(downstream: SourceTree, upstream: SourceTree, vllm: SourceTree | None) -> Known | None:
    """The names of these trees; None without vLLM, of which the runners inherit."""
    has = _upstream(upstream, vllm)

    @functools.cache
    def own(name: str) -> bool:
        made = re.compile(_made(name), re.MULTILINE)
        return any(made.search(downstream.read(path)) for path in words_of(downstream).of(name))

    return Known(has, own) if has else None


def _upstream(upstream: SourceTree, vllm: SourceTree | None) -> Callable[[str], bool] | None:
    trees = (upstream, vllm) if vllm else ()
    return functools.cache(lambda name: any(words_of(tree).of(name) for tree in trees)) if trees else None


def _made(name: str) -> str:
    """A line that defines or sets a name, as an extended regular expression."""
    return rf"(def|class) +{name}\b|\b{name} *(:[^=]*)?=[^=]"


def nowhere(target: str, root: Path, sides: Iterable[str]) -> list[str]:
    """The attributes and functions of ``sides`` of conflicts that none of the trees has, but to read or call.

    ``target`` is the spec of the upstream that is merged, ``root`` the checkout. Nothing where a tree cannot
    be had.
    """
    try:
        upstream = open_source(target)
        has = _upstream(upstream, vllm_tree(upstream))
        if has is None:
            return []
        repo = Repo(root)
        known = Known(has, lambda name: bool(repo.grep(_made(name))))
        return [name for name in known.beyond_upstream(sides) if not known.own(name)][:_MOST]
    except UpgradeError:
        return []
