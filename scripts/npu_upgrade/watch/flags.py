"""Which flags of a merge are worth a word each time upstream moves, and what makes two of them the same.

A merge is looked at by who made it; the watch speaks up by itself, so it says a thing once, and says nothing
where nothing can go wrong.
"""

from __future__ import annotations

import ast
import textwrap

from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.merge.plan import copy_items
from npu_upgrade.merge.runners import MethodOutcome
from npu_upgrade.threeway.pieces import Flag

_PLACES = (ast.Name, ast.Attribute, ast.Subscript)


def items_of(outcome: MethodOutcome) -> tuple[Item, ...]:
    """What a merge leaves to a person. A flag is the same as long as ours at its place is."""
    flags = outcome.merged.flags if outcome.merged else ()
    items = list(copy_items(outcome))
    found = items[: len(items) - len(flags)]
    for item, flag in zip(items[len(found) :], flags, strict=True):
        if _tells(flag):
            item.id = item_id(item.kind, outcome.entry.path, outcome.entry.name, flag.ours)
            found.append(item)
    return tuple({item.id: item for item in found}.values())


def _tells(flag: Flag) -> bool:
    """Whether something can be wrong with an automatic decision."""
    if flag.kind == "replaced":
        return bool(flag.ours.strip())  # what was dropped stays dropped
    if flag.kind == "both-added":
        return not _independent(flag.ours, flag.theirs)
    return flag.kind != "assert"  # ours tests what upstream asserts


def _independent(one: str, other: str) -> bool:
    """Whether the order of two groups of statements is no matter: none sets what the other one sees."""
    try:
        (sets, reads, calls), (also_sets, also_reads, also_calls) = map(_seen, (one, other))
    except SyntaxError:
        return False
    if sets & (also_sets | also_reads) or also_sets & reads:
        return False
    hidden = (calls and any("." in name for name in also_sets)) or (
        also_calls and any("." in name for name in sets)
    )
    return not hidden and not (calls and also_calls)


def _seen(text: str) -> tuple[set[str], set[str], bool]:
    """What statements set and read, and whether they call methods of ``self``, which may do either."""
    nodes = [
        node for node in ast.walk(ast.parse(textwrap.dedent(text.strip("\n")))) if isinstance(node, ast.expr)
    ]
    places = [node for node in nodes if isinstance(node, _PLACES)]
    sets = {ast.unparse(node) for node in places if isinstance(node.ctx, ast.Store)}
    reads = {ast.unparse(node) for node in places if isinstance(node.ctx, ast.Load)} - {"self"}
    calls = any(isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self.") for node in nodes)
    return sets, reads, calls
