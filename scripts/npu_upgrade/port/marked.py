"""Markers around the omni code that a port brought into methods copied from vllm-ascend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npu_upgrade.code.module import Module, Unit, parse_module, replace_units, split_lines
from npu_upgrade.code.statements import END, Comment, Statement, render, split_statements
from npu_upgrade.lineage.marker_places import omni_code
from npu_upgrade.lineage.marking import add_markers
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.threeway.pieces import Conflict, Piece


def marked(npu: NpuSide, files: Mapping[str, str]) -> dict[str, str]:
    """The changed runner files of ``npu`` with a marker before and after all such code that has none.

    What stood there without markers before stays so, and so do omni's own methods.
    """
    found = {}
    for path, text in files.items():
        before, after = parse_module(npu.texts[path]).units, parse_module(text)
        units = {}
        for name, unit in after.units.items():
            was, copied = before.get(name), npu.copied_from(name)
            if was and copied and was.source != unit.source:
                statements = split_statements(unit.source)
                sides = split_statements(was.source), split_statements(copied)
                pieces = marked_pieces(statements, *sides, comments_behind(after, unit))
                units[name] = render([one for one in pieces if isinstance(one, Statement)])
        found[path] = replace_units(after, units)
    return found


def comments_behind(module: Module, unit: Unit) -> list[Comment]:
    """The comments right behind a method that are as deep as its text: a marker there ends its last lines."""
    lines = split_lines(module.source)
    depth = len(lines[unit.start]) - len(lines[unit.start].lstrip())
    found: list[Comment] = []
    for line in lines[unit.end :]:
        indent = len(line) - len(line.lstrip())
        if not line.lstrip().startswith("#") or indent <= depth:
            break
        found.append(Comment(indent, line.strip()))
    return found


def marked_pieces(
    pieces: Sequence[Piece],
    before: Sequence[Statement],
    upstream: Sequence[Statement],
    behind: Sequence[Comment] = (),
) -> list[Piece]:
    """The same of one method, which may have conflicts; what stands right before one stays without a marker:
    it would end in one side of it. ``behind`` are the comments that follow the method and are no part of it.
    """
    if behind:
        pieces = [*pieces, Statement(END, 0, (), 0, tuple(behind))]
    flat = [
        (statement, number)
        for number, piece in enumerate(pieces)
        for statement in (piece.ours if isinstance(piece, Conflict) else (piece,))
    ]
    statements, had = [one for one, _ in flat], {one.key for one in before}
    new = [
        own and one.key not in had
        for own, one in zip(omni_code(statements, upstream), statements, strict=True)
    ]
    disputed = False
    for place in reversed(range(len(flat))):
        disputed = isinstance(pieces[flat[place][1]], Conflict) or (disputed and new[place])
        new[place] = new[place] and not disputed
    made = add_markers(statements, new)
    whole = {number: one for one, (_, number) in zip(made, flat, strict=False)}
    kept = [piece if isinstance(piece, Conflict) else whole[number] for number, piece in enumerate(pieces)]
    if behind:
        end = kept.pop()
        assert isinstance(end, Statement)
        own = end.comments[: len(end.comments) - len(behind)]
        kept += [Statement(END, 0, (), 0, own)] if own else []
    return [*kept, *made[len(flat) :]]
