"""Which release's GPU side the NPU runners correspond to.

Between one release and the next the GPU side gains and drops statements of omni's own. The
NPU runners correspond to the newest release of whose changes they show a fair share; what
came later nobody has looked at for the NPU side yet.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from packaging.version import Version as Number

from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.kept import keep, kept
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.records import is_older
from npu_upgrade.port.driven import TELLING
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.sides import GpuSide, read_gpu_side, statements
from npu_upgrade.program.version_guards import version_of
from npu_upgrade.sources.content import code_digest
from npu_upgrade.sources.index import Release, releases_of
from npu_upgrade.sources.tree import SourceTree, open_source
from npu_upgrade.threeway.align import weight

SHARE = 0.4
"""From this share of a release's changes on, the NPU runners have followed it."""

FEWEST = 5
MOST_STEPS = 12
_Facts = set[tuple[str, str, str]]  # kind of runner, unit, statement


@dataclass(frozen=True)
class Step:
    """What one release changed on the GPU side, and how much of that the NPU side shows."""

    version: str
    changed: int
    shown: int

    @property
    def share(self) -> float:
        return self.shown / self.changed if self.changed else 0.0


@dataclass(frozen=True)
class Since:
    """The GPU side that the NPU runners correspond to.

    ``before`` is the one of the release before it: what it has already and the NPU side
    lacks was passed over. ``steps`` are those looked at, newest first; none when a person
    named the release.
    """

    side: GpuSide
    before: GpuSide | None = None
    steps: Sequence[Step] = ()


def find_since(
    npu: NpuSide,
    new: GpuSide,
    upstream: frozenset[str],
) -> tuple[Since | None, list[Step]]:
    """The correspondence of the NPU runners and the releases before ``new``.

    ``upstream`` are statements that say nothing, since vllm-ascend or vLLM has them too. None
    when no release shows; the steps looked at come with it. What was found is kept by all that it depends on.
    """
    place = _kept_as(npu, new, upstream)
    known = kept(place, _Kept)
    if known is None:
        found, steps = _find(npu, new, upstream)
        before = found.before if found else None
        specs = (found.side.tree.spec if found else None, before.tree.spec if before else None)
        keep(place, _Kept(*specs, steps))
        return found, steps
    sides = [
        read_gpu_side(open_source(spec), npu.side) if spec else None for spec in (known.side, known.before)
    ]
    return (Since(sides[0], sides[1], known.steps) if sides[0] else None), known.steps


class _Kept(msgspec.Struct):
    """What was found: the specs of the two releases, and the steps."""

    side: str | None
    before: str | None
    steps: list[Step]


def _kept_as(npu: NpuSide, new: GpuSide, upstream: frozenset[str]) -> Path:
    older = _older(releases_of(npu.side.project.name), npu.side.tree, new.tree)
    content = [
        {kind: module.source for kind, module in npu.modules.items()},
        repr(npu.runners),
        npu.side.class_names,
        [(release.version, [file.hashes for file in release.files]) for release in older],
        sorted(upstream),
        code_digest("port", "lineage", "threeway", "code", "program"),
    ]
    return cache_root() / "since" / f"{sha256(msgspec.json.encode(content))[:24]}.json"


def _find(npu: NpuSide, new: GpuSide, upstream: frozenset[str]) -> tuple[Since | None, list[Step]]:
    sides = _from_nearest(_older_sides(npu, new.tree), npu)
    steps: list[Step] = []
    later = next(sides, None)
    while later is not None and len(steps) < MOST_STEPS:
        earlier = next(sides, None)
        if earlier is None:
            break
        step = _step(later, earlier, npu, upstream)
        steps.append(step)
        if step.changed >= FEWEST and step.share >= SHARE:
            return Since(later.side(npu.side), earlier.side(npu.side), steps), steps
        later = earlier
    return None, steps


def check_order(since: SourceTree, new: SourceTree) -> None:
    """Raise :class:`BadInput` when ``since`` is newer than the GPU side."""
    if is_older(new, since):
        raise BadInput(
            f"--since {since.spec} is newer than the GPU side, {new.spec}",
            expected="the older release whose GPU side the NPU runners correspond to",
            try_="--since auto, or name an older vllm-omni",
        )


_Keys = dict[str, dict[str, list[str]]]  # kind of runner -> unit -> its statements


class _Released(msgspec.Struct):
    """The statements of both sides of a release; ``gpu`` is None where its GPU runners have another place."""

    version: str
    spec: str
    gpu: _Keys | None
    npu: _Keys

    def side(self, side: Downstream) -> GpuSide:
        """Its GPU side itself."""
        return read_gpu_side(open_source(self.spec), side)


def _older_sides(npu: NpuSide, new: SourceTree) -> Iterator[_Released]:
    """The releases before ``new`` and not after the tree of the NPU side, newest first."""
    project = npu.side.project.name
    words = [repr(npu.runners), npu.side.class_names, npu.upstream.class_name]
    words += [code_digest("port", "lineage", "code")]
    for release in _older(releases_of(project), npu.side.tree, new):
        say(f"looking at the GPU side of {project} {release.version}")
        # what was published does not change
        content = [project, release.version, [one.hashes for one in release.files], words]
        place = cache_root() / "sides" / f"{sha256(msgspec.json.encode(content))[:24]}.json"
        found = kept(place, _Released) or keep(place, _read_release(project, release, npu))
        if found.gpu is None:
            return
        yield found


def _read_release(project: str, release: Release, npu: NpuSide) -> _Released:
    spec = f"pypi:{project}=={release.version}"
    tree = open_source(spec)
    try:
        side = read_gpu_side(tree, npu.side)
    except BadInput:  # a release from before the GPU runners had their present place
        return _Released(release.version, spec, None, {})
    return _Released(release.version, spec, _keys_of(side.modules), _keys_of(_npu_modules(side, npu)))


def _keys_of(modules: Mapping[str, Module]) -> _Keys:
    return {
        kind: {name: [s.key for s in statements(unit)] for name, unit in module.units.items()}
        for kind, module in modules.items()
    }


def _from_nearest(sides: Iterator[_Released], npu: NpuSide) -> Iterator[_Released]:
    """The sides without those of releases whose NPU runners are further on than these.

    Releases bring their NPU side along: the nearer it is to this one, the nearer are their dates.
    """
    nearest = list(itertools.islice(sides, 1))
    apart = _apart(nearest[0], npu) if nearest else 0
    for side in sides:
        nearer = _apart(side, npu)
        nearest = [*nearest, side] if nearer >= apart else [side]
        if nearer > apart:
            break
        apart = nearer
    yield from (*nearest, *sides)


def _apart(side: _Released, npu: NpuSide) -> int:
    """How many statements the NPU runners of a release's tree and these do not have in common."""
    there, here = _counted(side.npu), _counted(_keys_of(npu.modules))
    return ((there - here) | (here - there)).total()


def _counted(keys: _Keys) -> Counter[tuple[str, str, str]]:
    return Counter(
        (kind, name, key) for kind, units in keys.items() for name, found in units.items() for key in found
    )


def _npu_modules(side: GpuSide, npu: NpuSide) -> dict[str, Module]:
    """The NPU runners of a release's tree."""
    there = [runner for runner in npu.runners if side.tree.exists(runner.path)]
    return {runner.kind: parse_module(side.tree.read(runner.path)) for runner in there}


def _older(releases: Sequence[Release], omni: SourceTree, new: SourceTree) -> list[Release]:
    cap = omni.date or datetime.now(UTC)
    usable = [r for r in releases if not r.yanked and not (r.date and r.date > cap)]
    for tree, strict in ((omni, False), (new, True)):
        if limit := version_of(tree.version):
            usable = [
                r for r in usable if Number(r.version) < limit or (not strict and Number(r.version) == limit)
            ]
    return sorted(usable, key=lambda release: Number(release.version), reverse=True)


def _step(later: _Released, earlier: _Released, npu: NpuSide, upstream: frozenset[str]) -> Step:
    own = set(_counted(_keys_of(npu.modules)))
    units = [(kind, name) for kind, module in npu.modules.items() for name in module.units]
    after, before = (_facts(side, units, upstream) for side in (later, earlier))
    gained, dropped = after - before, before - after
    had, has = (_counted(side.npu) for side in (earlier, later))
    if had == has:  # nobody followed it then: what the NPU side never had shows nothing
        dropped &= set(had)
    return Step(later.version, len(gained) + len(dropped), len(gained & own) + len(dropped - own))


def _facts(side: _Released, units: Sequence[tuple[str, str]], upstream: frozenset[str]) -> _Facts:
    """The telling statements of omni's own in the units that the NPU side has too."""
    return {
        (kind, name, key)
        for kind, name in units
        for key in (side.gpu or {})[kind].get(name, ())
        if key not in upstream and weight(key) > TELLING
    }
