"""Conflicts in which ours asks for what nothing has any more: it could not run as it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from npu_upgrade.program.words import words_of
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.threeway.pieces import Conflict, Flag, MergedMethod, Piece, syntax_error

ASKED = re.compile(r"\.([A-Za-z_]\w{4,})|\b([A-Za-z_]\w{4,})\s*\(")
"""The attributes and functions that a text asks for; short names say nothing."""


@dataclass(frozen=True)
class Vain:
    """What the upstream trees and the downstream's own have, by name."""

    upstream: Callable[[str], bool]
    own: Callable[[str], bool]


def vain_of(downstream: SourceTree, upstream: SourceTree, vllm: SourceTree | None) -> Vain | None:
    """The names of these trees; None without vLLM, of which the runners inherit."""
    if vllm is None:
        return None
    trees = (upstream, vllm)

    def own(name: str) -> bool:
        made = re.compile(rf"\b(?:def|class) +{name}\b|\b{name} *(?::[^=]*)?=[^=]")
        return any(made.search(downstream.read(path)) for path in words_of(downstream).of(name))

    return Vain(lambda name: any(words_of(tree).of(name) for tree in trees), own)


def decided(merged: MergedMethod, vain: Vain) -> MergedMethod:
    """Theirs, with a flag, in each conflict where ours asks for what none of the trees has.

    Ours stays to be decided where it has anything besides that only the downstream has.
    """
    pieces: list[Piece] = []
    flags: list[Flag] = []
    for piece in merged.pieces:
        names = _in_vain(piece, vain) if isinstance(piece, Conflict) else []
        if isinstance(piece, Conflict) and names:
            pieces += piece.theirs
            reason = f"ours asks for {', '.join(names)}, which nothing has any more: theirs is taken"
            flags.append(Flag("vain", reason, *piece.texts()))
        else:
            pieces.append(piece)
    if not flags or syntax_error(pieces) is not None:
        return merged
    return replace(merged, pieces=tuple(pieces), flags=(*merged.flags, *flags))


def _in_vain(conflict: Conflict, vain: Vain) -> list[str]:
    known = {one.key for one in (*conflict.base, *conflict.theirs)}
    texts = [one.key for one in conflict.ours if one.key not in known]
    names = dict.fromkeys(name for text in texts for found in ASKED.findall(text) for name in found if name)
    gone = [name for name in names if not vain.upstream(name)]
    return [] if any(map(vain.own, gone)) else gone
