"""Attributes that the NPU side sets and never reads, while the GPU side acts on them."""

from __future__ import annotations

from collections.abc import Iterator

from npu_upgrade.audit.attributes.runners import nearest_common
from npu_upgrade.audit.attributes.unread import Unread, is_read_from_outside, unread_on
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import World
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.version_guards import version_of

NAME = "unread-attributes"
ABOUT = "attributes that are set on an NPU class and that only its GPU counterpart reads"


def check(world: World) -> Iterator[Finding]:
    vllm = version_of(world.triple.vllm.version)
    found: dict[str, list[Unread]] = {}
    for pair in world.pairs:
        if pair.npu in world.concrete:
            for one in unread_on(pair, world, vllm):
                found.setdefault(one.name, []).append(one)
    mentions = Mentions(world.program, found)
    for several in found.values():
        if not any(is_read_from_outside(one, mentions, world) for one in several):
            yield _finding(several, world)


def _finding(found: list[Unread], world: World) -> Finding:
    one = found[0]
    owner = nearest_common([other.cls for other in found], world)
    writer, reader = one.writer, one.reader
    return Finding(
        check=NAME,
        kind="unread",
        owner=owner.name,
        subject=one.name,
        what=(
            f"{writer.qualname} sets self.{one.name}, which {reader.qualname} reads on the GPU side "
            f"and nothing that {owner.name} runs does"
        ),
        here=Side(writer.owner.project, writer.owner.file.path, one.write.lineno, f"sets {one.name}"),
        there=Side(reader.owner.project, reader.owner.file.path, one.read_line, f"read in {reader.qualname}"),
        incident="P",
        why="what the GPU side decides by it is decided otherwise, or not at all, on NPUs",
        todo=f"port what {reader.qualname} does with {one.name}, or stop setting it",
    )
