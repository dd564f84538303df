"""What upstream changed in a method, put into the method that overrides it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from npu_upgrade.code.definitions import absolute
from npu_upgrade.code.names import imports_in
from npu_upgrade.code.sequences import changes, patience
from npu_upgrade.code.statements import Statement, split_statements
from npu_upgrade.code.uses import free_names, reads
from npu_upgrade.lineage.items import Change
from npu_upgrade.merge.patched import diff_lines
from npu_upgrade.program.program import File, Method
from npu_upgrade.threeway.align import weight
from npu_upgrade.threeway.method import merge_method
from npu_upgrade.threeway.pieces import Conflict, resolved

OVERRIDDEN = "overridden-changed"
_FOLLOWED = 0.3
"""From this share of the replaced method's statements on, an override is written after it."""

_TELLING = 4
"""From this weight on, two methods have a statement in common because one was written after the other."""

_OF_ITS_CLASS = re.compile(r"\bsuper\(|\b__class__\b|\b__(?!\w*__\b)\w+")
"""What means something else in another class."""


@dataclass(frozen=True)
class TakenOver:
    """The override with what upstream changed, the imports it needs for that, and the difference to read."""

    change: Change
    imports: tuple[str, ...]
    text: str


def taken_over(method: Method, was: Method, now: Method) -> TakenOver | None:
    """What upstream changed from ``was`` to ``now`` in ``method``, which overrides it.

    None where it does not combine without a doubt, changes nothing here, or says what means something else
    here, and where the override has little of what it overrides.
    """
    sides = [source_of(one).replace("\r\n", "\n") for one in (was, method, now)]
    base, ours, theirs = map(split_statements, sides)
    if not _follows(ours, base):
        return None
    merged = merge_method(base, ours, theirs)
    if merged.flags or any(isinstance(piece, Conflict) for piece in merged.pieces):
        return None
    statements = resolved(merged.pieces, "ours")
    own = {one.key for one in ours}
    new = [one.key for one in statements if one.key not in own]
    if len(statements) == len(ours) and not new:
        return None
    if any(map(_OF_ITS_CLASS.search, new)):
        return None
    imports = _imports(sorted(reads(new) & free_names(statements)), method.owner.file, now.owner.file)
    if imports is None:
        return None
    before, after = sides[1], merged.text().strip("\n")
    text = "\n".join([*(f"+{one}" for one in imports), *diff_of(before, after)])
    return TakenOver(Change(before, after), tuple(imports), text)


def repeated(method: Method, was: Method, now: Method) -> list[str]:
    """The statements that an override repeats of what it calls, beside a change from ``was`` to ``now``.

    There the call does not bring the change: the override goes on by itself.
    """
    own = {one.key for one in split_statements(source_of(method))[1:]}
    before, after = ([one.key for one in split_statements(source_of(side))] for side in (was, now))
    found = []
    for change in changes(patience(before, after), len(before), len(after)):
        found += before[max(change.a0 - 1, 1) : change.a1 + 1]
    return [key for key in dict.fromkeys(found) if key in own and weight(key) >= _TELLING]


def _follows(ours: Sequence[Statement], base: Sequence[Statement]) -> bool:
    """Whether an override is written after what it overrides: else what changed there says little of it."""
    own = {one.key for one in ours}
    return sum(one.key in own for one in base[1:]) >= _FOLLOWED * max(1, len(base) - 1)


def _imports(names: Sequence[str], here: File, there: File) -> list[str] | None:
    """What one file has to import for names to mean there what they mean in another.

    None where it has such a name for something else, or cannot import it.
    """
    found = []
    wanted, known = _import_lines(there), _import_lines(here)
    for name in names:
        line = wanted.get(name)
        if line is None and (name in there.functions or name in there.classes):
            line = f"from {there.module} import {name}"
        if name in here.imports or name in here.functions or name in here.classes or name in here.values:
            if line is None or known.get(name) != line:
                return None
        elif line is None:
            return None
        else:
            found.append(line)
    return found


def _import_lines(file: File) -> dict[str, str]:
    """The imports that a file always makes, by the name that they bind."""
    nodes = (node for node in file.tree.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    items = (absolute(item, file.path) for node in nodes for item in imports_in(node))
    return {item.bound: item.statement() for item in items}


def source_of(method: Method) -> str:
    """The lines of a method with its decorators."""
    decorators = [node.lineno for node in method.node.decorator_list]
    first = min([method.node.lineno, *decorators]) - 1
    return "\n".join(method.owner.file.source.split("\n")[first : method.node.end_lineno])


def diff_of(before: str, after: str) -> list[str]:
    """The lines that differ, with their neighbours, without the indentation of the first of them."""
    indent = before[: len(before) - len(before.lstrip())]
    old, new = ([line.removeprefix(indent) for line in text.split("\n")] for text in (before, after))
    return diff_lines(old, new, around=1)
