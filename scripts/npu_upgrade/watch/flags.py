"""Which flags of a merge are worth a word each time upstream moves, and what makes two of them the same.

A merge is looked at by who made it; the watch speaks up by itself, so it says a thing once, and says nothing
where nothing can go wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.code.statements import Statement, nodes_of, statements_of
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.merge.plan import copy_items
from npu_upgrade.merge.runners import MethodOutcome
from npu_upgrade.threeway.align import resembles
from npu_upgrade.threeway.pieces import Flag

_PLACES = (ast.Name, ast.Attribute, ast.Subscript)


def items_of(outcome: MethodOutcome) -> tuple[Item, ...]:
    """What a merge leaves to a person.

    A flag is the same as long as ours at its place is, a conflict as long as its statements are, whatever
    their layout.
    """
    conflicts = outcome.merged.conflicts if outcome.merged else []
    flags = outcome.merged.flags if outcome.merged else ()
    items = list(copy_items(outcome))
    found = items[: len(items) - len(flags)]
    for item, conflict in zip((one for one in found if one.kind == "conflict"), conflicts, strict=True):
        sides = (conflict.base, conflict.ours, conflict.theirs)
        texts = ("\n".join(one.key for one in side) for side in sides)
        item.id = item_id(item.kind, outcome.entry.path, outcome.entry.name, *texts)
    for item, flag in zip(items[len(found) :], flags, strict=True):
        if _tells(flag):
            item.id = item_id(item.kind, outcome.entry.path, outcome.entry.name, flag.ours)
            found.append(item)
    return tuple({item.id: item for item in found}.values())


def _tells(flag: Flag) -> bool:
    """Whether something can be wrong with an automatic decision."""
    if flag.kind == "replaced":
        return _concerns(flag)
    # The order of two additions is looked at when they are merged; ours tests what upstream asserts.
    return flag.kind not in ("both-added", "assert")


def _concerns(flag: Flag) -> bool:
    """Whether upstream changed anything that ours, which stands in its place, still has.

    What was dropped stays dropped, with what stood below it and what reads nothing but its results.
    """
    base, ours, theirs = (statements_of(text) for text in (flag.base, flag.ours, flag.theirs))
    kept, was, now = ({one.key for one in side} for side in (ours, base, theirs))
    sets, reads = (set().union(*(sets_and_reads(one)[at] for one in ours)) for at in (0, 1))
    dropped = set().union(*(sets_and_reads(one)[0] for one in (*base, *theirs))) - sets - reads
    if any(one.key not in was and not sets_and_reads(one)[1] & dropped for one in _beside(theirs, kept)):
        return bool(ours)
    return any(resembles(one, own) for one in _beside(base, kept) if one.key not in now for own in ours)


def _beside(statements: list[Statement], kept: set[str]) -> Iterator[Statement]:
    """The statements that are below no header but those of ours."""
    out = None
    for one in statements:
        if out is None or one.indent <= out:
            out = one.indent if one.is_header and one.key not in kept else None
            yield one


def sets_and_reads(statement: Statement) -> tuple[set[str], set[str]]:
    """What a statement sets and reads."""
    places = [node for node in nodes_of(statement.key) if isinstance(node, _PLACES)]
    sets = {ast.unparse(node) for node in places if isinstance(node.ctx, ast.Store)}
    return sets, {ast.unparse(node) for node in places if isinstance(node.ctx, ast.Load)} - {"self"}
