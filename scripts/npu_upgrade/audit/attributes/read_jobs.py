"""Which functions an audit looks into for attributes of known objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.attributes.typed_reads import TypedRead, typed_reads
from npu_upgrade.audit.world import World
from npu_upgrade.program.program import ClassSymbol, File
from npu_upgrade.program.self_use import methods_on, self_use
from npu_upgrade.program.types import Frame, Types, frame_of


@dataclass(frozen=True)
class _Job:
    """A function to look at; ``only`` limits it to these attributes of ``self``."""

    frame: Frame
    only: frozenset[str] | None = None


def all_typed_reads(world: World, types: Types) -> Iterator[TypedRead]:
    """The reads that find nothing, each once, in the audited functions and in what they inherit."""
    seen: set[tuple[int, int, str]] = set()
    for job in _jobs(world, types):
        for read in typed_reads(job.frame, types, job.only):
            key = (id(job.frame.node), id(read.node), read.name)
            if key not in seen:
                seen.add(key)
                yield read


def _jobs(world: World, types: Types) -> Iterator[_Job]:
    ours = "vllm-omni" if world.of_omni else "vllm-ascend"
    covered: set[int] = set()
    for cls in world.concrete:
        for method in methods_on(cls, types.vllm):
            covered.add(id(method.node))
            frame = frame_of(cls, method)
            if method.owner.project == ours:
                yield _Job(frame)
            elif only := _set_below(cls, method.owner.project, types):
                yield _Job(frame, only)
    for file in world.files if world.of_omni else world.worker_files:
        for frame in _frames(file):
            if id(frame.node) not in covered:
                yield _Job(frame)


def _frames(file: File) -> Iterator[Frame]:
    yield from (Frame(file, function.node) for function in file.functions.values())
    for cls in file.classes.values():
        yield from (frame_of(cls, method) for method in cls.methods.values())


def _set_below(cls: ClassSymbol, project: str, types: Types) -> frozenset[str]:
    """The attributes that the NPU side of a class sets before its parents of ``project`` use them."""
    sides = {"vllm": ("vllm-omni", "vllm-ascend"), "vllm-ascend": ("vllm-omni",)}[project]
    owners = (owner for owner in cls.mro if owner.project in sides)
    methods = (method for owner in owners for method in owner.methods.values())
    return frozenset(name for method in methods for name in self_use(method.node, types.vllm).writes)
