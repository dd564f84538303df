"""Markers around the omni code that a port brought into methods copied from vllm-ascend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npu_upgrade.code.module import parse_module, replace_units
from npu_upgrade.code.statements import Statement, render, split_statements
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
                pieces = marked_pieces(statements, split_statements(was.source), split_statements(copied))
                units[name] = render([one for one in pieces if isinstance(one, Statement)])
        found[path] = replace_units(after, units)
    return found


def marked_pieces(
    pieces: Sequence[Piece], before: Sequence[Statement], upstream: Sequence[Statement]
) -> list[Piece]:
    """The same of one method, which may have conflicts; what stands right before one stays without a marker:
    it would end in one side of it.
    """
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
    return [*kept, *made[len(flat) :]]
