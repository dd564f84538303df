"""The ``Omni-new`` markers of a file by what they stand in: a method, a class, or the file itself."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.code.module import Unit, parse_module
from npu_upgrade.lineage.marker_places import is_fence, is_rule
from npu_upgrade.program.program import File


@dataclass(frozen=True)
class Fence:
    """A marker, or a line of dashes that may close one; ``line`` is 1-based, ``depth`` its column."""

    line: int
    depth: int
    is_rule: bool


def fences_in(file: File) -> dict[str, list[Fence]]:
    """The markers of a file by the qualified name of the method, else of the class, else ``""``."""
    units = sorted(parse_module(file.source).units.values(), key=lambda unit: unit.start)
    found: dict[str, list[Fence]] = {}
    for fence in _fences(file.source):
        found.setdefault(_scope(file, units, fence), []).append(fence)
    return found


def odd_one(markers: Sequence[Fence]) -> Fence:
    """The first marker that has no second one at its depth; the last one where all have."""
    depths = [marker.depth for marker in markers]
    return next((marker for marker in markers if depths.count(marker.depth) % 2), markers[-1])


def _fences(source: str) -> Iterator[Fence]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        own_line = token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
        if own_line and (is_fence(token.string) or is_rule(token.string)):
            yield Fence(token.start[0], token.start[1], not is_fence(token.string))


def _scope(file: File, units: Sequence[Unit], fence: Fence) -> str:
    """What a marker stands in; below the last statement of a method, its depth tells."""
    before = [unit for unit in units if unit.start < fence.line]
    if before:
        last = before[-1]
        indent = len(last.source) - len(last.source.lstrip())
        if fence.line <= last.end or fence.depth > indent:
            return last.qualname
    classes = (cls.node for cls in file.classes.values())
    inside = [node.name for node in classes if fence.depth > 0 and node.lineno < fence.line]
    return inside[-1] if inside else ""
