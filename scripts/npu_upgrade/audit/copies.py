"""The methods of the NPU runners that are copies of vllm-ascend's, and what each was copied from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from npu_upgrade.code.definitions import read_module
from npu_upgrade.code.module import Unit
from npu_upgrade.code.statements import Statement, split_statements
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Downstream, Upstream, read_runner
from npu_upgrade.lineage.history import History, Version, keys_of, open_history, upstream_unit
from npu_upgrade.lineage.inference import FEWEST_STATEMENTS, Scores, infer, rank
from npu_upgrade.lineage.records import Bases, Lineage, MethodLineage
from npu_upgrade.sources.tree import SourceTree

DEEPER = 3
"""So many releases before those that lineage looks at are looked at for copies never synced."""


@dataclass(frozen=True)
class Copy:
    """One copied method.

    ``base`` is upstream's text it was copied from, put together from the known versions;
    ``version`` the label of the best one. ``target`` is upstream's text in the given
    vllm-ascend, None where that has no such method. ``origin`` holds the statements of the
    version it was copied from, ``known`` those of all versions that were looked at.
    """

    path: str
    unit: Unit
    upstream_path: str
    upstream_name: str
    version: str
    ours: Sequence[Statement]
    base: Sequence[Statement]
    target: Unit | None
    origin: frozenset[str]
    known: frozenset[str]


def find_copies(side: Downstream, ascend: SourceTree) -> list[Copy]:
    """The copied methods of the runner files, in the order of the files.

    Where vllm-ascend has no history to look at, the given tree is all there is to compare with.
    """
    try:
        upstream = side.upstream
        bases = Bases(_with_older(side.tree, infer(side, _history(ascend, upstream))))
    except BadInput:  # runners that do not build on vllm-ascend, or older than all its versions
        return []
    return list(_copies(side.tree, ascend, upstream, bases))


def _copies(omni: SourceTree, ascend: SourceTree, upstream: Upstream, bases: Bases) -> Iterator[Copy]:
    theirs = read_module(ascend, upstream.path)
    for runner in bases.lineage.runners:
        for unit in read_runner(omni, runner.path).units.values():
            entry = bases.lineage.method(runner.path, unit.qualname)
            if entry is None or not entry.copied:
                continue
            ours = split_statements(unit.source)
            base = bases.statements(entry, ours)
            if base is None:
                continue
            target = upstream_unit(theirs.units, upstream.class_name, entry.upstream) if theirs else None
            texts = _texts(bases, entry.upstream, bases.version(entry))
            origin = {*texts[0], *(statement.key for statement in base)}
            yield Copy(
                path=runner.path,
                unit=unit,
                upstream_path=upstream.path,
                upstream_name=entry.upstream,
                version=bases.version(entry).label,
                ours=ours,
                base=base,
                target=target,
                origin=frozenset(origin),
                known=frozenset(origin.union(*texts)),
            )


def _with_older(omni: SourceTree, lineage: Lineage) -> Lineage:
    """``lineage`` with the methods that were copied before the versions it looked at, and never synced."""
    history = lineage.history
    place = history.versions.index(lineage.considered[0])
    older = [version for version in history.versions[max(0, place - DEEPER) : place] if not version.yanked]
    if not older:
        return lineage
    return replace(lineage, methods=tuple(_older(omni, entry, history, older) for entry in lineage.methods))


def _older(
    omni: SourceTree, entry: MethodLineage, history: History, versions: Sequence[Version]
) -> MethodLineage:
    """The entry as a copy of one of some older versions, when it is one of none that were looked at."""
    if entry.copied or entry.statements < FEWEST_STATEMENTS:
        return entry
    unit = Scores(history, entry.upstream, keys_of(read_runner(omni, entry.path).units[entry.name].source))
    best = rank([unit], versions).best[0]
    return replace(entry, copied=True, best=best) if unit.is_copy(best) else entry


def _texts(bases: Bases, name: str, version: Version) -> list[list[str]]:
    """The statements of the method in the version itself, and in its neighbours."""
    older, newer = bases.lineage.neighbours(name, version)
    sources = [bases.lineage.history.unit(version, name) or "", *older, *newer]
    return [[statement.key for statement in split_statements(source)] for source in sources]


def _history(ascend: SourceTree, upstream: Upstream) -> History:
    """The history the tree is of: its clone, the releases, or the tree alone."""
    released = f"pypi:vllm-ascend=={ascend.version}" if ascend.version else None
    spec = ascend.spec if ascend.sha else released
    if spec is not None:
        try:
            return open_history(spec, upstream)
        except (Blocked, BadInput) as error:
            say(f"note: without vllm-ascend's history: {error.what}")
    version = Version(
        ascend.version or "the given tree", ascend.spec, ascend.date, ascend.sha, ascend.version
    )
    text = ascend.read(upstream.path) if ascend.exists(upstream.path) else ""

    def read(versions: Sequence[Version]) -> Iterator[tuple[Version, str]]:
        yield from ((one, text) for one in versions)

    return History(upstream, [version], read, lazy=True)
