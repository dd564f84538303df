"""What every method of the worker files is compared with: the upstream text it was copied from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.code.module import Unit, parse_module
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.lineage.inference import is_copy, match
from npu_upgrade.lineage.records import Bases
from npu_upgrade.program.program import ClassSymbol, Program


@dataclass(frozen=True)
class Counterpart:
    """A unit of a worker file with its upstream.

    ``upstream`` is ``path:Class.method`` of what it was compared with, empty without one;
    ``base`` its statements, None where the unit is no copy of it.
    """

    unit: Unit
    ours: list[Statement]
    upstream: str = ""
    version: str = ""
    base: list[Statement] | None = None


def counterparts(
    program: Program, path: str, bases: Bases | None, labels: dict[str, str]
) -> list[Counterpart]:
    """Each unit of a file of vllm-omni with its upstream.

    ``bases`` knows the origin of the units of NPU runner files; the others are compared with
    the classes they derive from. ``labels`` names the version of each tree.
    """
    file = program.file(path)
    if file is None:
        return []
    own = path.partition("/")[0]
    above = {cls.name: [one for one in cls.mro[1:] if _package(one) != own] for cls in file.classes.values()}
    return [
        _from_lineage(path, unit, bases) or _from_parents(unit, above, labels)
        for unit in parse_module(file.source).units.values()
    ]


def _from_lineage(path: str, unit: Unit, bases: Bases | None) -> Counterpart | None:
    entry = bases.lineage.method(path, unit.qualname) if bases else None
    if bases is None or entry is None or not entry.copied:
        return None
    ours = split_statements(unit.source)
    upstream = f"{bases.lineage.history.upstream.path}:{entry.upstream}"
    return Counterpart(unit, ours, upstream, bases.version(entry).label, bases.statements(entry, ours))


def _from_parents(unit: Unit, above: dict[str, list[ClassSymbol]], labels: dict[str, str]) -> Counterpart:
    """Compared with the upstream class that it has most in common with."""
    ours = split_statements(unit.source)
    best: tuple[float, Counterpart] | None = None
    for package, where, text in _candidates(unit, above):
        theirs = split_statements(text)
        mine, other = ([s.key for s in side if s.key != END] for side in (ours, theirs))
        found = match(mine, other)
        score, copied = found.score, is_copy(found, len(mine))
        if best is None or (copied and score > best[0]):
            base = theirs if copied else None
            best = (score if copied else 0.0), Counterpart(unit, ours, where, labels.get(package, ""), base)
    return best[1] if best else Counterpart(unit, ours)


def _candidates(unit: Unit, above: dict[str, list[ClassSymbol]]) -> Iterator[tuple[str, str, str]]:
    """(package, ``path:name``, source) of the upstream units of that name, nearest first."""
    classes = above.get(unit.owner, []) if unit.owner else [a for own in above.values() for a in own]
    for ancestor in classes:
        name = f"{ancestor.name}.{unit.name}" if unit.owner else unit.name
        found = parse_module(ancestor.file.source).units.get(name)
        if found:
            yield _package(ancestor), f"{ancestor.file.path}:{name}", found.source


def _package(cls: ClassSymbol) -> str:
    return cls.file.path.partition("/")[0]
