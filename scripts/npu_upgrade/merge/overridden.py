"""What upstream changed in a method, put into the method that overrides it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.code.names import undefined_names
from npu_upgrade.code.statements import Statement, split_statements
from npu_upgrade.lineage.items import Change
from npu_upgrade.merge.patched import diff_lines
from npu_upgrade.program.program import Method
from npu_upgrade.threeway.method import merge_method
from npu_upgrade.threeway.pieces import Conflict, resolved

OVERRIDDEN = "overridden-changed"
_FOLLOWED = 0.3
"""From this share of the replaced method's statements on, an override is written after it."""


@dataclass(frozen=True)
class TakenOver:
    """The override with what upstream changed, the imports it needs for that, and the difference to read."""

    change: Change
    imports: tuple[str, ...]
    text: str


def taken_over(method: Method, was: Method, now: Method) -> TakenOver | None:
    """What upstream changed from ``was`` to ``now`` in ``method``, which overrides it.

    None where it does not combine without a doubt, changes nothing here, or reads a name that is not to be
    had, and where the override has little of what it overrides.
    """
    base, ours, theirs = (split_statements(source_of(one)) for one in (was, method, now))
    if not _follows(ours, base):
        return None
    merged = merge_method(base, ours, theirs)
    if merged.flags or any(isinstance(piece, Conflict) for piece in merged.pieces):
        return None
    statements = resolved(merged.pieces, "ours")
    if [one.key for one in statements] == [one.key for one in ours]:
        return None
    before, after, source = source_of(method), merged.text().strip("\n"), method.owner.file.source
    if source.count(before) != 1:
        return None
    lost = undefined_names(source.replace(before, after)) - undefined_names(source)
    imports = {name: next(_imports(name, now), "") for name in sorted(lost)}
    if not all(imports.values()):
        return None
    text = "\n".join([*(f"+{one}" for one in imports.values()), *diff_of(before, after)])
    return TakenOver(Change(before, after), tuple(imports.values()), text)


def _follows(ours: Sequence[Statement], base: Sequence[Statement]) -> bool:
    """Whether an override is written after what it overrides: else what changed there says little of it."""
    own = {one.key for one in ours}
    return sum(one.key in own for one in base[1:]) >= _FOLLOWED * max(1, len(base) - 1)


def _imports(name: str, upstream: Method) -> Iterator[str]:
    """How the file of an upstream method comes by a name: by an import, or because it defines it."""
    file = upstream.owner.file
    yield from (one.statement() for one in file.imports.get(name, ()))
    if name in file.functions or name in file.classes or name in file.values:
        yield f"from {file.module} import {name}"


def source_of(method: Method) -> str:
    """The lines of a method with its decorators."""
    decorators = [node.lineno for node in method.node.decorator_list]
    first = min([method.node.lineno, *decorators]) - 1
    return "\n".join(method.owner.file.source.split("\n")[first : method.node.end_lineno])


def diff_of(before: str, after: str) -> list[str]:
    """The lines that differ, with their neighbours."""
    old, new = (textwrap.dedent(text).split("\n") for text in (before, after))
    return diff_lines(old, new, around=1)
