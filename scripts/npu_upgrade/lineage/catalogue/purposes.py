"""Keeps the purposes people wrote when a catalogue is made again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from npu_upgrade.lineage.catalogue.block import WHOLE, Block, Catalogue, Method
from npu_upgrade.lineage.catalogue.reference import Row, names_of

ALIKE = 0.6
"""From this share of common names on, a block counts as a later form of one with a purpose."""


def with_purposes(catalogue: Catalogue, rows: Iterable[Row]) -> Catalogue:
    """``catalogue`` with the purposes of blocks of the same content, else of their earlier forms.

    Of two rows for one block the first one counts.
    """
    every = [row for row in rows if row.purpose]
    exact: dict[str, Row] = {}
    for row in every:
        exact.setdefault(row.id, row)
    now = {block.id for _, _, block in catalogue.blocks()}
    left = [row for row in every if row.id not in now]
    files = []
    for file in catalogue.files:
        methods = [
            _method(method, exact, [r for r in left if r.path == file.path]) for method in file.methods
        ]
        files.append(replace(file, methods=tuple(methods)))
    return replace(catalogue, files=tuple(files))


def _method(method: Method, exact: dict[str, Row], left: Sequence[Row]) -> Method:
    rest = [row for row in left if row.method == method.name]
    blocks = []
    for block in method.blocks:
        if block.id in exact:
            row = exact[block.id]
            blocks.append(replace(block, purpose=row.purpose, earlier=row.earlier))
            continue
        row = _nearest(block, rest)
        if row:
            rest.remove(row)
            block = replace(block, purpose=row.purpose, earlier=True)
        blocks.append(block)
    return replace(method, blocks=tuple(blocks))


def _nearest(block: Block, rows: Sequence[Row]) -> Row | None:
    """The row for an earlier form of a block; a whole method is one by its name alone."""
    if block.kind in WHOLE:
        return next((row for row in rows if not row.names), None)
    names = names_of(block)
    scored = [(len(names & row.names) / max(1, len(names | row.names)), row) for row in rows]
    best = max(scored, key=lambda pair: pair[0], default=(0.0, None))
    return best[1] if best[0] >= ALIKE else None
