"""What a port works on: the NPU runners, the GPU sides before and after, and what is below both."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import omni_side, read_runner
from npu_upgrade.lineage.inference import infer
from npu_upgrade.lineage.items import Item
from npu_upgrade.merge.runners import read_target
from npu_upgrade.merge.surroundings import copied_units, override_items
from npu_upgrade.port.correspondence import Since, Step, check_order, find_since
from npu_upgrade.port.driven import Upstream
from npu_upgrade.port.npu_side import NpuSide, read_npu_side
from npu_upgrade.port.sides import (
    GpuSide,
    VllmRunner,
    keys_of,
    read_gpu_side,
    read_vllm_runner,
    statements,
)
from npu_upgrade.sources.index import Published
from npu_upgrade.sources.pins import pair_of, pins_of_ascend
from npu_upgrade.sources.releases import published
from npu_upgrade.sources.tree import SourceTree, open_source


@dataclass(frozen=True)
class Inputs:
    """The inputs of one port; ``since`` is None when no release shows which one it is."""

    npu: NpuSide
    new: GpuSide
    since: Since | None
    steps: list[Step]
    upstream: Upstream

    def versions(self) -> dict[str, Any]:
        """The identities of all trees, for the record."""
        trees = {
            "omni": self.npu.omni,
            "gpu": self.new.tree,
            "ascend": self.npu.ascend,
            "vllm": self.npu.vllm,
        }
        trees |= {"since": self.since.side.tree} if self.since else {}
        return {role: tree.identity() for role, tree in trees.items()}


def read(args: argparse.Namespace) -> Inputs:
    """Open the sources and find the correspondence; raises :class:`BadInput` for what does not fit."""
    say(f"reading {args.omni}")
    omni = open_source(args.omni)
    gpu = open_source(args.gpu) if args.gpu else omni
    side = omni_side(omni)
    upstream = side.upstream
    ascend = open_source(args.ascend)
    read_target(ascend, upstream)
    new = read_gpu_side(gpu, side)
    releases = published("vllm") if not args.vllm or args.since == "auto" else []
    vllm = open_source(args.vllm) if args.vllm else _vllm_of(gpu, ascend, releases)
    after = _keys(read_vllm_runner(vllm, gpu, side)) | _ascend_keys(ascend, upstream.path)
    npu = read_npu_side(side, gpu, ascend, vllm)
    since, steps = _since(args, npu, new, after)
    before = frozenset()
    if since:
        older = _older_vllm(since, vllm, releases)
        before = _keys(read_vllm_runner(older, since.side.tree, side))
    return Inputs(npu, new, since, steps, Upstream(before, after))


def upstream_items(inputs: Inputs) -> list[Item]:
    """The methods that the runners override without copying, where vllm-ascend changed below them.

    None, and a word on why, when the vllm-ascend they were made for cannot be told.
    """
    npu = inputs.npu
    history = "pypi:vllm-ascend" if npu.ascend.root and not npu.ascend.version else npu.ascend.spec
    try:
        lineage = infer(npu.omni, history)
        if lineage.base is None:
            say("note: skipped changes below overridden methods: no runner method is a copy")
            return []
        base, copied = open_source(lineage.base.spec), copied_units(lineage)
        return override_items(npu.omni, base, npu.ascend, copied)
    except UpgradeError as error:
        say(f"note: skipped changes below overridden methods: {error.what}")
        return []


def _since(
    args: argparse.Namespace,
    npu: NpuSide,
    new: GpuSide,
    after: frozenset[str],
) -> tuple[Since | None, list[Step]]:
    if args.since == "auto":
        say("finding the release whose GPU side the NPU runners correspond to")
        return find_since(npu, new, after)
    tree = open_source(args.since)
    check_order(tree, new.tree)
    before = read_gpu_side(open_source(args.before), npu.side) if args.before else None
    return Since(read_gpu_side(tree, npu.side), before), []


def _vllm_of(gpu: SourceTree, ascend: SourceTree, releases: list[Published]) -> SourceTree:
    """The vllm of the new side: by vllm-omni's number, else the one that vllm-ascend is made for."""
    pair = pair_of([], gpu.version, gpu.date, releases)
    if pair.vllm is None:
        pair = pair_of(pins_of_ascend(ascend), ascend.version, ascend.date, releases)
    if pair.vllm is None or not pair.vllm[0].isdigit() or "." not in pair.vllm:
        raise BadInput(
            f"the vllm for {gpu.spec} cannot be determined: {pair.why}",
            expected="a release of vllm-omni, or a vllm-ascend that pins a release of vllm",
            try_="--vllm pypi:vllm==VERSION, or --vllm git:PATH@REF",
        )
    say(f"the vllm of the GPU side is {pair.vllm}")
    return open_source(f"pypi:vllm=={pair.vllm}")


def _older_vllm(since: Since, vllm: SourceTree, releases: list[Published]) -> SourceTree:
    """The vllm of the side before; the same one where it cannot be told, so that it filters nothing."""
    tree = since.side.tree
    pair = pair_of([], tree.version, tree.date, releases) if tree.version else None
    return open_source(f"pypi:vllm=={pair.vllm}") if pair and pair.vllm else vllm


def _keys(runner: VllmRunner) -> frozenset[str]:
    return frozenset(runner.keys)


def _ascend_keys(ascend: SourceTree, path: str) -> frozenset[str]:
    units = read_runner(ascend, path).units.values()
    return frozenset(key for unit in units for key in keys_of(statements(unit)))
