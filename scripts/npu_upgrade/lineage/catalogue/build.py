"""Builds the catalogue of one vllm-omni: which files are looked at, and with what they are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from npu_upgrade.code.definitions import read_module
from npu_upgrade.code.module import Unit, parse_module
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.lineage.catalogue.block import Catalogue, Listing, Method, runner_ancestries
from npu_upgrade.lineage.catalogue.derive import block_id, derive, places, whole
from npu_upgrade.lineage.catalogue.needs import OmniNames, needs, omni_names
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.inference import is_copy, match
from npu_upgrade.lineage.records import Bases
from npu_upgrade.program.program import ClassSymbol, Program
from npu_upgrade.sources.tree import SourceTree


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


@dataclass(frozen=True)
class Sources:
    """What a catalogue is read from; ``vllm`` is None when the GPU side is left out.

    ``bases`` knows what the NPU runners' methods were copied from, None when nothing is
    copied; ``ascend`` is the tree of the joint base, None when it cannot be had.
    """

    side: Downstream
    ascend: SourceTree | None
    vllm: SourceTree | None
    bases: Bases | None

    def trees(self) -> dict[str, SourceTree]:
        packages = (self.side.project.package, *self.side.project.upstreams)
        every = zip(packages, (self.side.tree, self.ascend, self.vllm), strict=True)
        return {name: tree for name, tree in every if tree}

    @cached_property
    def program(self) -> Program:
        return Program(self.trees())

    def labels(self) -> dict[str, str]:
        return {name: tree.version or (tree.sha or "")[:9] for name, tree in self.trees().items()}


def build(sources: Sources, versions: dict[str, str]) -> Catalogue:
    """The catalogue of all runner files and of what other worker files copy; purposes are still empty."""
    omni, runners = sources.side.tree, sources.side.runners
    files = {"gpu": [r.gpu_path for r in runners if r.gpu_path], "npu": [r.path for r in runners]}
    folders = {side: dict.fromkeys(path.rpartition("/")[0] for path in files[side]) for side in files}
    names = omni_names(sources.program, [*folders["gpu"], *folders["npu"]], _upstream_texts(sources))
    found = []
    for side in ("npu", "gpu") if sources.vllm else ("npu",):
        every = [path for folder in folders[side] for path in omni.list(folder) if path.endswith(".py")]
        for path in dict.fromkeys([*files[side], *every]):
            methods = _methods(sources, path, names, path in files[side])
            if methods:
                found.append(Listing(side, path, tuple(methods)))
    return Catalogue(versions, tuple(found), runner_ancestries(sources.program, runners))


def _methods(sources: Sources, path: str, names: OmniNames, runner: bool) -> list[Method]:
    """The methods of a file; outside the runner files only those that are copies."""
    bases = sources.bases if path in {runner.path for runner in sources.side.runners} else None
    found = counterparts(sources.program, path, bases, sources.labels())
    methods = [_method(sources, path, one, names) for one in found if runner or one.base is not None]
    return [method for method in methods if method.blocks]


def _method(sources: Sources, path: str, one: Counterpart, names: OmniNames) -> Method:
    unit = one.unit
    module = read_module(sources.side.tree, path)
    assert module is not None
    if one.base is None:
        kind = "override" if one.upstream else "own"
        blocks = [whole(unit.qualname, kind, unit.start, unit.end, one.ours)]
        keys = {blocks[0].id: [s.key for s in one.ours if s.key != END]}
    else:
        blocks = derive(unit.qualname, unit.start, one.ours, one.base)
        found = [place for place in places(one.ours, one.base) if place.ours]
        keys = {block_id(unit.qualname, place.keys): list(place.keys) for place in found}
    with_needs = [
        replace(block, needs=needs(keys.get(block.id, ()), module, path, names)) for block in blocks
    ]
    place = (unit.qualname, unit.start + 1, unit.end)
    return Method(*place, one.upstream, one.version, one.base is not None, tuple(with_needs))


def _upstream_texts(sources: Sources) -> list[str]:
    """The files whose names are not omni's: upstream's runners."""
    texts = []
    if sources.ascend and sources.bases:
        path = sources.bases.lineage.history.upstream.path
        texts += [sources.ascend.read(path)] if sources.ascend.exists(path) else []
    mirrored = {runner.gpu_path for runner in sources.side.runners if runner.gpu_path}
    folders = {path.rpartition("/")[0] for path in mirrored}
    program, package = sources.program, sources.side.project.package
    every = (cls for folder in folders for file in program.files(folder) for cls in file.classes.values())
    above = {base.file for cls in every for base in cls.mro if not base.file.path.startswith(f"{package}/")}
    return texts + [file.source for file in above]
