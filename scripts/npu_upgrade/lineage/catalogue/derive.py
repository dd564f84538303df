"""The omni blocks of one method, from its difference to the upstream text it was copied from."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from npu_upgrade.code.sequences import changes
from npu_upgrade.code.statements import END, Statement, line_numbers
from npu_upgrade.ground.files import sha256
from npu_upgrade.lineage.catalogue.block import Block
from npu_upgrade.lineage.catalogue.syntax import made_of, nodes, starts_with
from npu_upgrade.lineage.marker_places import body_start, is_fence, is_rule, omni_code, unmarked_statements
from npu_upgrade.threeway.align import align, align_similar


@dataclass(frozen=True)
class Place:
    """The statements of one block: ``ours`` by index, ``keys`` their texts (upstream's for a deletion),
    ``replaced`` the upstream statements it stands for, ``at`` where it is.
    """

    ours: tuple[int, ...]
    keys: tuple[str, ...]
    replaced: tuple[str, ...]
    at: int


def derive(name: str, start: int, ours: Sequence[Statement], base: Sequence[Statement]) -> list[Block]:
    """The blocks of a method called ``name`` whose first line is ``start`` (0-based)."""
    omni = omni_code(ours, base)
    unmarked = unmarked_statements(ours, omni)
    where = line_numbers(ours, start)
    blocks = _signature(name, ours, base, where)
    for place in places(ours, base):
        blocks.append(
            _deletion(name, place, where) if not place.ours else _block(name, place, ours, where, unmarked)
        )
    return sorted(blocks, key=lambda block: (block.first, block.kind == "deletion"))


def whole(name: str, kind: str, start: int, end: int, ours: Sequence[Statement]) -> Block:
    """One block for a method that is not compared (half-open 0-based lines)."""
    keys = [s.key for s in ours if s.key != END]
    body = keys[body_start(ours) :]
    lines = sum(len(s.lines) for s in ours)
    shown = starts_with(body or keys), made_of(body)
    return Block(block_id(name, keys), kind, start + 1, end, len(keys), lines, 0, "unneeded", 0, *shown)


def places(ours: Sequence[Statement], base: Sequence[Statement]) -> list[Place]:
    """Where the body differs: runs of omni code parted at fences, and runs that upstream alone has."""
    pairs = align(base, ours)
    first, first_base = body_start(ours), body_start(base)
    found: list[Place] = []
    for change in changes(pairs, len(base), len(ours)):
        own = [n for n in range(max(change.b0, first), change.b1) if ours[n].key != END]
        theirs = [n for n in range(max(change.a0, first_base), change.a1) if base[n].key != END]
        inner = align_similar([base[i] for i in theirs], [ours[n] for n in own])
        similar = {theirs[i]: own[n] for i, n in inner}
        for run in _parted(ours, own):
            replaced = tuple(base[i].key for i in theirs if similar.get(i) in run)
            found.append(Place(tuple(run), tuple(ours[n].key for n in run), replaced, run[0]))
        dropped = tuple(base[i].key for i in theirs if i not in similar)
        if dropped:
            found.append(Place((), dropped, (), min(own[-1] + 1 if own else change.b1, len(ours) - 1)))
    return found


def block_id(name: str, keys: Sequence[str]) -> str:
    """The hash that names a block: of its statements and the method's name."""
    return sha256("\0".join((name.rpartition(".")[2], *keys)))[:10]


def _parted(ours: Sequence[Statement], own: Sequence[int]) -> list[list[int]]:
    """A run cut before each statement that a fence or rule stands before."""
    parts: list[list[int]] = []
    for number in own:
        fenced = any(is_fence(c.text) or is_rule(c.text) for c in ours[number].comments)
        if not parts or fenced:
            parts.append([])
        parts[-1].append(number)
    return parts


def _block(
    name: str, place: Place, ours: Sequence[Statement], where: Sequence[tuple[int, int]], unmarked: set[int]
) -> Block:
    outside = [n for n in place.ours if n in unmarked]
    marker = "inside" if not outside else "outside" if len(outside) == len(place.ours) else "partly"
    return Block(
        id=block_id(name, place.keys),
        kind="changed" if place.replaced else "added",
        first=where[place.ours[0]][0],
        last=where[place.ours[-1]][1],
        statements=len(place.ours),
        lines=sum(len(ours[n].lines) for n in place.ours),
        replaces=len(place.replaced),
        marker=marker,
        unmarked=sum(len(ours[n].lines) for n in outside),
        starts=starts_with(place.keys),
        made_of=made_of(place.keys),
    )


def _deletion(name: str, place: Place, where: Sequence[tuple[int, int]]) -> Block:
    line = where[place.at][0]
    shown = starts_with(place.keys), made_of(place.keys)
    count = len(place.keys)
    return Block(
        block_id(name, ("-", *place.keys)), "deletion", line, line, 0, 0, count, "inexpressible", 0, *shown
    )


def _signature(
    name: str, ours: Sequence[Statement], base: Sequence[Statement], where: Sequence[tuple[int, int]]
) -> list[Block]:
    """A block for a signature (or decorators) that differs."""
    mine, theirs = _head(ours), _head(base)
    if not mine or [s.key for s in mine] == [s.key for s in theirs]:
        return []
    keys = [s.key for s in mine]
    old, new = (
        [node.arg for node in nodes(s.key for s in side) if isinstance(node, ast.arg)]
        for side in (theirs, mine)
    )
    words = {"adds": [n for n in new if n not in old], "drops": [n for n in old if n not in new]}
    text = "; ".join(f"{word} {', '.join(f'`{n}`' for n in names)}" for word, names in words.items() if names)
    first, last = where[0][0], where[len(mine) - 1][1]
    sizes = len(mine), sum(len(s.lines) for s in mine), len(theirs)
    return [
        Block(
            block_id(name, keys),
            "signature",
            first,
            last,
            *sizes,
            "inexpressible",
            0,
            "signature",
            text or "same parameters, other types, defaults or decorators",
        )
    ]


def _head(statements: Sequence[Statement]) -> list[Statement]:
    """The decorators and the signature."""
    return [s for s in statements[: body_start(statements)] if s.key[:1] not in "'\""]
