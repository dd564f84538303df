"""From which version each copy was taken: the releases or commits of the file it is a copy of.

What one file has of another was taken together, so its base is joint. A file is looked at in the
history only when something is a copy of it; everything else is compared with the given tree alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import msgspec

from npu_upgrade.code.module import Module
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.kept import keep, kept
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Downstream, Upstream
from npu_upgrade.lineage.history import History, Version, history_state, keys_of, open_history
from npu_upgrade.lineage.inference import PATIENCE, first_looked_at, infer, infer_units
from npu_upgrade.lineage.project import distribution
from npu_upgrade.lineage.records import Lineage, MethodLineage
from npu_upgrade.lineage.units import Relation, UnitLineage, read_units
from npu_upgrade.sources.content import code_digest, content_of


class Origins:
    """What the units of a side are to upstream; ``specs`` say where the history of each package is."""

    def __init__(self, side: Downstream, specs: Mapping[str, str]) -> None:
        self.side, self.specs = side, specs
        self._histories: dict[str, History | None] = {}

    @cached_property
    def runners(self) -> Lineage | None:
        """The lineage of the runners; None where there are none.

        Raises as :func:`npu_upgrade.lineage.inference.infer`.
        """
        upstreams = self.side.project.upstreams
        if not any(upstream.package == upstreams[0] for upstream in self.side.families):
            return None
        source = self._history(self.side.upstream.path)
        return infer(self.side, source) if source else None

    def history_of_runners(self) -> History:
        """The history of what the runners build on; raises as :func:`open_history`."""
        upstream = self.side.upstream
        history = open_history(self.specs[upstream.package], upstream)
        self._histories[upstream.path] = history
        return history

    @cached_property
    def units(self) -> list[UnitLineage]:
        """Every unit; what was found before is kept by the content of the trees and their histories."""
        place = self._place()
        found = kept(place, list[UnitLineage])
        return keep(place, self._read()) if found is None else found

    def _place(self) -> Path:
        trees = {package: content_of(tree) for package, tree in self.side.upstreams.items()}
        histories = {package: history_state(spec) for package, spec in self.specs.items()}
        content = [content_of(self.side.tree), trees, histories, code_digest("lineage", "program", "code")]
        name = sha256(json.dumps([content, self.side.tree.date], default=str))
        return cache_root() / "lineage" / f"units-{name[:24]}.json"

    def _read(self) -> list[UnitLineage]:
        side, runners = self.side, self.runners
        say(f"comparing {len(side.paths)} files with {' and '.join(side.upstreams)}")
        known = {(entry.path, entry.name): entry for entry in runners.methods} if runners else {}
        found = {
            (unit.path, unit.name): _of_runner(unit, known.get((unit.path, unit.name)), runners, side)
            for unit in read_units(side)
        }
        groups = taken_together(unit for unit in found.values() if not unit.base)
        if groups:
            say(f"finding the bases of {sum(map(len, groups))} copies in {len(groups)} files")
            self._read_ahead({copies[0].upstream.partition(":")[0] for copies in groups})
        for copies in groups:
            lineage = self.lineage(copies)
            for unit, entry in zip(copies, lineage.methods if lineage else (), strict=lineage is not None):
                found[unit.path, unit.name] = _based(unit, entry, lineage)
        for one in filter(None, self._histories.values()):
            one.save()
        return list(found.values())

    def lineage(self, copies: Sequence[UnitLineage]) -> Lineage | None:
        """The lineage of copies that one file has of another, an entry for each; None without a history."""
        history = self._history(copies[0].upstream.partition(":")[0])
        file = self.side.program.file(copies[0].path)
        if history is None or file is None:
            return None
        units = Module(file.source, file.tree).units  # those below a version guard that holds, too
        entries = []
        for unit in copies:
            keys, name = keys_of(units[unit.name].source), unit.upstream.partition(":")[2]
            entries.append((MethodLineage("", unit.path, unit.name, name, True, True, len(keys)), keys))
        try:
            return infer_units(self.side.tree, entries, history)
        except BadInput as error:  # every version is newer than the tree
            say(f"note: without the base of {history.upstream.path}: {error.what}")
            return None

    def _read_ahead(self, paths: Iterable[str]) -> None:
        """Have what the walk back of each file begins with, by release: the files of one lie side by side."""
        wanted: dict[str, list[tuple[History, Version]]] = {}
        first: dict[str, list[Version]] = {}  # of each package: its files have the same releases
        for history in filter(None, map(self._history, sorted(paths))):
            package = history.upstream.path.partition("/")[0]
            if package not in first:
                first[package] = first_looked_at(history, self.side.tree)
            for version in first[package]:
                wanted.setdefault(version.spec, []).append((history, version))
        with ThreadPoolExecutor(PATIENCE + 1) as pool:
            list(
                pool.map(
                    lambda files: [history.fetch(version) for history, version in files], wanted.values()
                )
            )

    def _history(self, path: str) -> History | None:
        if path not in self._histories:
            self._histories[path] = _history(self.specs, path)
        return self._histories[path]


def _history(specs: Mapping[str, str], path: str) -> History | None:
    """The history of a file; None, and a word on why, where there is none."""
    try:
        return open_history(specs[path.partition("/")[0]], Upstream(path, ""))
    except (BadInput, Blocked) as error:
        say(f"note: without the history of {path}: {error.what}")
        return None


def _of_runner(
    unit: UnitLineage, entry: MethodLineage | None, runners: Lineage | None, side: Downstream
) -> UnitLineage:
    """A unit of a runner file as its history tells; any other as the trees tell."""
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


def taken_together(units: Iterable[UnitLineage]) -> list[list[UnitLineage]]:
    """The copies among units, those that one file has of another together."""
    groups: dict[tuple[str, str], list[UnitLineage]] = {}
    for unit in units:
        if unit.copied and unit.statements:
            groups.setdefault((unit.upstream.partition(":")[0], unit.path), []).append(unit)
    return list(groups.values())


def _based(unit: UnitLineage, entry: MethodLineage, lineage: Lineage | None) -> UnitLineage:
    if entry.best is None or lineage is None:
        return unit
    return msgspec.structs.replace(
        unit,
        base=entry.best.label,
        base_date=entry.best.date.isoformat() if entry.best.date else "",
        confidence=entry.confidence,
        score=entry.score,
        matched=entry.matched,
        statements=entry.statements,
        behind=entry.behind,
        compared=f"{len(lineage.considered)} versions",
    )
