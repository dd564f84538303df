"""From which version each copy was taken: the releases or commits of the file it is a copy of.

What one file has of another was taken together, so its base is joint. A file is looked at in the
history only when something is a copy of it; everything else is compared with the given tree alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from npu_upgrade.code.module import parse_module
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Downstream, Upstream
from npu_upgrade.lineage.history import History, keys_of, open_history
from npu_upgrade.lineage.inference import infer, infer_units
from npu_upgrade.lineage.project import distribution
from npu_upgrade.lineage.records import Lineage, MethodLineage
from npu_upgrade.lineage.units import Relation, UnitLineage, read_units


@dataclass(frozen=True)
class Whole:
    """Every unit of a side, and the lineage of the runners; None where there are none."""

    units: list[UnitLineage]
    runners: Lineage | None


def trace(side: Downstream, specs: Mapping[str, str], *, strict: bool = False) -> Whole:
    """Every unit with what it is to upstream; ``specs`` say where the history of each package is.

    Raises as :func:`npu_upgrade.lineage.inference.infer` when the side has runners; with
    ``strict`` also when there is no history of what they build on.
    """
    histories: dict[str, History | None] = {}
    if strict:
        histories[side.upstream.path] = open_history(specs[side.upstream.package], side.upstream)

    def history(path: str) -> History | None:
        if path not in histories:
            histories[path] = _history(specs, path)
        return histories[path]

    runners = _runners(side, history)
    say(f"comparing {len(side.paths)} files with {' and '.join(side.upstreams)}")
    units = read_units(side)
    found = {(unit.path, unit.name): _of_runner(unit, runners, side) for unit in units}
    groups: dict[tuple[str, str], list[UnitLineage]] = {}
    for unit in found.values():
        if unit.copied and unit.statements and not unit.base:
            groups.setdefault((unit.upstream.partition(":")[0], unit.path), []).append(unit)
    if groups:
        say(f"finding the bases of {sum(map(len, groups.values()))} copies in {len(groups)} files")
    for (upstream, _), copies in groups.items():
        found |= {(unit.path, unit.name): unit for unit in _with_bases(side, copies, history(upstream))}
    for one in filter(None, histories.values()):
        one.save()
    return Whole(list(found.values()), runners)


def _runners(side: Downstream, history: Callable[[str], History | None]) -> Lineage | None:
    if not any(upstream.package == side.project.upstreams[0] for upstream in side.families):
        return None
    source = history(side.upstream.path)
    return infer(side, source) if source else None


def _history(specs: Mapping[str, str], path: str) -> History | None:
    """The history of a file; None, and a word on why, where there is none."""
    try:
        return open_history(specs[path.partition("/")[0]], Upstream(path, ""))
    except (BadInput, Blocked) as error:
        say(f"note: without the history of {path}: {error.what}")
        return None


def _of_runner(unit: UnitLineage, runners: Lineage | None, side: Downstream) -> UnitLineage:
    """A unit of a runner file as its history tells; any other as the trees tell."""
    entry = runners.method(unit.path, unit.name) if runners else None
    same = unit.upstream.startswith(f"{side.upstream.path}:") if entry else False
    if entry is None or not (entry.copied or (same and unit.copied)):
        return _compared(unit, side)
    if not entry.copied:
        return _compared(msgspec.structs.replace(unit, relation=Relation.OVERRIDE), side)
    upstream = f"{side.upstream.path}:{entry.upstream}"
    return _based(msgspec.structs.replace(unit, relation=Relation.COPY, upstream=upstream), entry, runners)


def _compared(unit: UnitLineage, side: Downstream) -> UnitLineage:
    """A unit that says what it was compared with."""
    package = unit.upstream.partition("/")[0]
    tree = side.upstreams.get(package)
    if tree is None:
        return unit
    label = tree.version or (tree.sha or "")[:9] or tree.spec
    return msgspec.structs.replace(unit, compared=f"{distribution(package)} {label} only")


def _with_bases(side: Downstream, copies: list[UnitLineage], history: History | None) -> list[UnitLineage]:
    """The copies that one file has of another, with their bases where the history tells."""
    if history is None:
        return copies
    entries = []
    for unit in copies:
        keys = keys_of(parse_module(side.tree.read(unit.path)).units[unit.name].source)
        name = unit.upstream.partition(":")[2]
        entries.append((MethodLineage("", unit.path, unit.name, name, True, True, len(keys)), keys))
    try:
        found = infer_units(side.tree, entries, history)
    except BadInput as error:  # every version is newer than the tree
        say(f"note: without the base of {history.upstream.path}: {error.what}")
        return copies
    return [_based(unit, entry, found) for unit, entry in zip(copies, found.methods, strict=True)]


def _based(unit: UnitLineage, entry: MethodLineage, lineage: Lineage | None) -> UnitLineage:
    if entry.best is None or lineage is None:
        return unit
    return msgspec.structs.replace(
        unit,
        base=entry.best.label,
        confidence=entry.confidence,
        score=entry.score,
        matched=entry.matched,
        statements=entry.statements,
        behind=entry.behind,
        compared=f"{len(lineage.considered)} versions",
    )
