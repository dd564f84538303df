"""Which release's GPU side the NPU runners correspond to.

Between one release and the next the GPU side gains and drops statements of omni's own. The
NPU runners correspond to the newest release of whose changes they show a fair share; what
came later nobody has looked at for the NPU side yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from packaging.version import InvalidVersion
from packaging.version import Version as Number

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.port.driven import TELLING
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.sides import GpuSide, read_gpu_side, statements
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
    when no release shows; the steps looked at come with it.
    """
    sides = _older_sides(npu.side, new.tree)
    units = [(kind, name) for kind, module in npu.modules.items() for name in module.units]
    own = {(k, n, s.key) for k, n in units for s in statements(npu.modules[k].units[n])}
    steps: list[Step] = []
    later = next(sides, None)
    while later is not None and len(steps) < MOST_STEPS:
        earlier = next(sides, None)
        if earlier is None:
            break
        step = _step(later, earlier, units, own, upstream)
        steps.append(step)
        if step.changed >= FEWEST and step.share >= SHARE:
            return Since(later, earlier, steps), steps
        later = earlier
    return None, steps


def check_order(since: SourceTree, new: SourceTree) -> None:
    """Raise :class:`BadInput` when ``since`` is newer than the GPU side."""
    try:
        newer = Number(since.version or "") > Number(new.version or "")
    except InvalidVersion:
        newer = bool(since.date and new.date and since.date > new.date)
    if newer:
        raise BadInput(
            f"--since {since.spec} is newer than the GPU side, {new.spec}",
            expected="the older release whose GPU side the NPU runners correspond to",
            try_="--since auto, or name an older vllm-omni",
        )


def _older_sides(side: Downstream, new: SourceTree) -> Iterator[GpuSide]:
    """The GPU sides of the releases before ``new`` and not after the tree of ``side``, newest first."""
    project = side.project.name
    for release in _older(releases_of(project), side.tree, new):
        say(f"looking at the GPU side of {project} {release.version}")
        try:
            yield read_gpu_side(open_source(f"pypi:{project}=={release.version}"), side)
        except BadInput:  # a release from before the GPU runners had their present place
            return


def _older(releases: Sequence[Release], omni: SourceTree, new: SourceTree) -> list[Release]:
    cap = omni.date or datetime.now(UTC)
    usable = [r for r in releases if not r.yanked and not (r.date and r.date > cap)]
    for tree, strict in ((omni, False), (new, True)):
        if limit := _number(tree.version):
            usable = [
                r for r in usable if Number(r.version) < limit or (not strict and Number(r.version) == limit)
            ]
    return sorted(usable, key=lambda release: Number(release.version), reverse=True)


def _number(version: str | None) -> Number | None:
    try:
        return Number(version or "")
    except InvalidVersion:
        return None


def _step(
    later: GpuSide, earlier: GpuSide, units: Sequence[tuple[str, str]], own: _Facts, upstream: frozenset[str]
) -> Step:
    after, before = (_facts(side, units, upstream) for side in (later, earlier))
    gained, dropped = after - before, before - after
    name = later.tree.version or later.tree.spec
    return Step(name, len(gained) + len(dropped), len(gained & own) + len(dropped - own))


def _facts(side: GpuSide, units: Sequence[tuple[str, str]], upstream: frozenset[str]) -> _Facts:
    """The telling statements of omni's own in the units that the NPU side has too."""
    return {
        (kind, name, s.key)
        for kind, name in units
        for s in statements(side.unit(kind, name))
        if weight(s.key) > TELLING and s.key not in upstream
    }
