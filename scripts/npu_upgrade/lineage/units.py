"""What each unit of a downstream is to its upstreams: the model that everything else reads.

A unit is a method, a function, a class or a whole file. Its relation is told from the trees at
hand; from which version a copy was taken is told by :mod:`npu_upgrade.lineage.origins`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property, lru_cache

import msgspec

from npu_upgrade.code.module import Module, Unit
from npu_upgrade.lineage.alike import Alike, Candidate
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.history import keys_of
from npu_upgrade.lineage.inference import COPIED_SHARE, NOTHING, is_copy, match
from npu_upgrade.lineage.patches import Patch, patches_in
from npu_upgrade.program.program import ClassSymbol, File

FEWEST_UNRELATED = 8
"""So many statements make a copy of a unit that nothing but its name leads to."""


class Relation(StrEnum):
    """What a unit is to upstream; the first that holds, in this order."""

    COPY = "copy"
    """Of a unit of the class it derives from, mirrors or patches, or of the file of that class."""
    VENDORED = "vendored"
    """Copied from elsewhere."""
    PATCH = "patch"
    """Put in place of upstream's, or doing that."""
    OVERRIDE = "override"
    """Of a method of upstream's; a class that derives from one."""
    MIRROR = "mirror"
    """Of a unit of the main device's side."""
    OWN = "own"


class UnitLineage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One unit. ``upstream``, ``mirror`` and ``patches`` are ``path:name``, empty where there is none.

    ``score`` is the dice of its statements and upstream's, ``matched`` how many are common. Of a
    copy, ``base`` is the version it was most likely taken from and ``base_date`` its day (ISO),
    ``behind`` how many newer texts there were; ``compared`` says what it was compared with.
    """

    path: str
    name: str
    kind: str
    line: int
    lines: int
    relation: Relation
    upstream: str = ""
    mirror: str = ""
    patches: tuple[str, ...] = ()
    statements: int = 0
    matched: int = 0
    score: float = 0.0
    base: str = ""
    base_date: str = ""
    confidence: float = 0.0
    behind: int = 0
    compared: str = ""

    @property
    def copied(self) -> bool:
        return self.relation in (Relation.COPY, Relation.VENDORED)


def read_units(side: Downstream) -> list[UnitLineage]:
    """Every unit of the side in the order of files and lines, compared with the upstream trees at hand."""
    reader = _Reader(side)
    return [unit for path in side.paths if (file := side.program.file(path)) for unit in reader.units(file)]


class _Reader:
    def __init__(self, side: Downstream) -> None:
        self.side = side
        self._twins: dict[int, ClassSymbol | None] = {}
        self._parsed: dict[str, Mapping[str, Unit]] = {}
        files = [file for path in side.paths if (file := side.program.file(path))]
        self.patches = [
            patch for file in files for patch in patches_in(file, self._units(file), self._replaces)
        ]
        self._long = [
            unit
            for file in files
            for unit in self._units(file).values()
            if unit.end - unit.start >= FEWEST_UNRELATED
        ]

    def _units(self, file: File) -> Mapping[str, Unit]:
        if file.path not in self._parsed:
            self._parsed[file.path] = Module(file.source, file.tree).units
        return self._parsed[file.path]

    def _replaces(self, target: str) -> bool:
        """Whether a target is of an upstream, or of the side of the project that is not in question."""
        package = target.partition("/")[0]
        own = package == self.side.project.package and not self.side.project.holds(_file_of(target))
        return own or package in self.side.upstreams

    @cached_property
    def alike(self) -> Alike:

        def units(path: str) -> Mapping[str, Unit]:
            file = self.side.program.file(path)
            return self._units(file) if file else {}

        return Alike(self.side.upstreams, self._long, units)

    @cached_property
    def over(self) -> dict[str, list[str]]:
        """What each function, method or class replaces."""
        found: dict[str, list[str]] = {}
        for patch in self.patches:
            found.setdefault(patch.by, []).append(patch.target)
        return found

    @cached_property
    def installing(self) -> dict[tuple[str, str], list[Patch]]:
        """The patches by the file and the unit that install them."""
        found: dict[tuple[str, str], list[Patch]] = {}
        for patch in self.patches:
            found.setdefault((patch.path, patch.unit), []).append(patch)
        return found

    def units(self, file: File) -> Iterator[UnitLineage]:
        """The file, its classes and what is in them."""
        near = self._near(file)
        inner = [self._unit(file, unit, near) for unit in self._units(file).values()]
        whole = {cls.name: cls for cls in file.classes.values() if cls.methods}
        yield self._file(file, inner)
        for cls in whole.values():
            yield self._class(cls, [unit for unit in inner if unit.name.startswith(f"{cls.name}.")])
        yield from inner

    def _near(self, file: File) -> set[str]:
        """The files of upstream's that the file has to do with: of bases, mirrors and what it patches."""
        classes = [above for cls in file.classes.values() for above in (*self._above(cls), self._twin(cls))]
        targets = [patch.target for patch in self.patches if patch.path == file.path]
        targets += [
            target for by, over in self.over.items() if by.startswith(f"{file.path}:") for target in over
        ]
        return {cls.file.path for cls in classes if cls} | {_file_of(target) for target in targets}

    def _above(self, cls: ClassSymbol) -> list[ClassSymbol]:
        """The classes of upstream's that a class derives from."""
        return [above for above in cls.mro[1:] if not self.side.is_own(above)]

    def _twin(self, cls: ClassSymbol) -> ClassSymbol | None:
        """The class that a class mirrors."""
        if id(cls) not in self._twins:
            self._twins[id(cls)] = self.side.mirror(cls)
        return self._twins[id(cls)]

    def _unit(self, file: File, unit: Unit, near: set[str]) -> UnitLineage:
        cls = file.classes.get(unit.owner or unit.name)
        own = keys_of(unit.source)
        over = self.over.get(f"{file.path}:{unit.qualname}", [])
        mirror = self._mirror(file, cls, unit)
        bases = self._above(cls) if cls else []
        above = [f"{_name(base)}.{unit.name}" for base in bases if unit.name in base.methods]
        named = [*above, *over, mirror]
        related = [found for name in named if (found := self._at(name))]
        others = self.alike.candidates(unit) if len(own) >= FEWEST_UNRELATED else []
        related += [one for one in others if one.path in near]
        matches = [(match(own, _keys(one.unit.source)), one, True) for one in related]
        matches += [
            (match(own, _keys(one.unit.source)), one, False) for one in others if one.path not in near
        ]
        best = max(matches, key=lambda found: (found[0].score, found[2]), default=None)
        relation = Relation.OWN
        copied = best and (
            is_copy(best[0], len(own)) if best[2] else best[0].matched >= COPIED_SHARE * len(own)
        )
        patched = (*over, *(patch.target for patch in self.installing.get((file.path, unit.qualname), ())))
        upstream = ""
        if best and copied:
            relation = Relation.COPY if best[2] else Relation.VENDORED
            upstream = f"{best[1].path}:{best[1].unit.qualname}"
        elif patched:
            relation, upstream = Relation.PATCH, patched[0]
        elif above or (bases and not unit.owner):
            relation, upstream = Relation.OVERRIDE, above[0] if above else _name(bases[0])
        elif mirror:
            relation, upstream = Relation.MIRROR, mirror
        shown = best[0] if best and (copied or relation is Relation.OVERRIDE) else NOTHING
        return UnitLineage(
            path=file.path,
            name=unit.qualname,
            kind="method" if unit.owner else "class" if cls else "function",
            line=unit.start + 1,
            lines=unit.end - unit.start,
            relation=relation,
            upstream=upstream,
            mirror=mirror,
            patches=patched,
            statements=len(own),
            matched=shown.matched,
            score=round(shown.score, 4),
        )

    def _mirror(self, file: File, cls: ClassSymbol | None, unit: Unit) -> str:
        """What a unit mirrors, as ``path:name``."""
        if cls is not None:
            twin = self._twin(cls)
            if twin is None or not unit.owner:
                return _name(twin) if twin else ""
            return f"{_name(twin)}.{unit.name}" if unit.name in twin.methods else ""
        for path in self.side.mirrored_files(file.path)[:1]:
            other = self.side.program.file(path)
            if other and unit.name in other.functions:
                return f"{path}:{unit.name}"
        return ""

    def _at(self, place: str) -> Candidate | None:
        """The unit of upstream's at ``path:name``."""
        path, _, name = place.partition(":")
        file = self.side.program.file(path) or self.side.program.file(_file_of(place))
        if file is None or self.side.project.package == path.partition("/")[0]:
            return None
        unit = self._units(file).get(name)
        return Candidate(file.path, unit) if unit else None

    def _class(self, cls: ClassSymbol, methods: list[UnitLineage]) -> UnitLineage:
        """A class, by what it derives from, and by where most of its lines are from."""
        over = tuple(self.over.get(f"{cls.file.path}:{cls.name}", ()))
        above, twin = self._above(cls), self._twin(cls)
        vendored = _most([unit for unit in methods if unit.relation is Relation.VENDORED], methods)
        mirror = _name(twin) if twin else ""
        related = _first(
            (Relation.VENDORED, vendored.rpartition(".")[0] or vendored),
            (Relation.PATCH, "".join(over[:1])),
            (Relation.OVERRIDE, "".join(map(_name, above[:1]))),
            (Relation.MIRROR, mirror),
        )
        first, last = cls.node.lineno, cls.node.end_lineno or cls.node.lineno
        place = (cls.file.path, cls.name, "class", first, last - first + 1)
        return UnitLineage(*place, *related, mirror, over)

    def _file(self, file: File, units: list[UnitLineage]) -> UnitLineage:
        """A whole file, by where most of its lines are from, and by what it patches."""
        patched = tuple(patch.target for patch in self.patches if patch.path == file.path)
        mirrors = any(unit.mirror for unit in units)
        mirror = "".join(self.side.mirrored_files(file.path)[:1]) if mirrors else ""
        vendored = _most([unit for unit in units if unit.copied], units)
        related = _first(
            (Relation.VENDORED, vendored.partition(":")[0]),
            (Relation.PATCH, "".join(patched[:1])),
            (Relation.MIRROR, mirror),
        )
        place = (file.path, "", "module", 1, file.source.count("\n"))
        return UnitLineage(*place, *related, mirror, patched)


def _first(*relations: tuple[Relation, str]) -> tuple[Relation, str]:
    """The first relation that there is something for."""
    return next((one for one in relations if one[1]), (Relation.OWN, ""))


def _most(chosen: list[UnitLineage], units: list[UnitLineage]) -> str:
    """The upstream of the largest of the chosen units, when they have most of the lines; else empty."""
    lines = sum(unit.lines for unit in chosen)
    if 2 * lines <= sum(unit.lines for unit in units):
        return ""
    return max(chosen, key=lambda unit: unit.lines).upstream if chosen else ""


def _name(cls: ClassSymbol) -> str:
    return f"{cls.file.path}:{cls.name}"


def _file_of(place: str) -> str:
    """The file of ``path:name``, where the path of a module may lack its ending."""
    path = place.partition(":")[0]
    return path if path.endswith(".py") else f"{path}.py"


_keys = lru_cache(maxsize=8192)(keys_of)
