"""Version pins: trees that do not belong together, contradictions, and guards that do not know the vLLM."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from npu_upgrade.audit.belonging import belonging, contradictions
from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.module import parse_module
from npu_upgrade.program.program import File
from npu_upgrade.program.version_guards import Guard, guards_in, may_guard

ABOUT = "pins that contradict each other or the given triple, and version guards that do not know the vLLM"


def check(world: World) -> Iterator[Finding]:
    yield from [*belonging(world.triple), *contradictions(world.triple)]
    vllm = world.vllm_version
    if vllm and not vllm.is_devrelease:
        yield from _unknown_guards(world, vllm)


def _unknown_guards(world: World, vllm: Version) -> Iterator[Finding]:
    """The versions that guards ask for and that make them take the wrong branch, one finding each."""
    found: dict[Version, list[tuple[File, Guard]]] = {}
    for file in _files(world):
        for guard in guards_in(parse_module(file.source).tree):
            if guard.names_one_version and _takes_wrong_branch(guard.version, vllm):
                found.setdefault(guard.version, []).append((file, guard))
    for version, places in sorted(found.items()):
        file, guard = places[0]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield Finding(
            kind="guard",
            owner="",
            subject=f"vllm {version}",
            what=f"{file.path}:{guard.node.lineno}{more} ask for vllm {version} and know no {vllm}",
            here=side(file, guard.node, f"asks for vllm {version}"),
            there=Side("vllm", "vllm/version.py", 0, str(vllm)),
            incident="V",
            why=f"the other branch was written for what came after {version}, and vllm {vllm} takes it",
            todo="say in the guard what this vllm does, or run the vllm it asks for",
            like="vllm-omni #6134",
        )


def _takes_wrong_branch(asked: Version, vllm: Version) -> bool:
    """A guard tells a release from what came after it: an older vllm, or a later patch, is neither."""
    if asked.release == vllm.release:
        return False
    return vllm < asked or vllm.release[:2] == asked.release[:2]


def _files(world: World) -> Iterator[File]:
    tree = world.triple.ascend
    yield from world.files if world.of_omni else []
    for path in tree.list(world.plugin):
        guarded = path.endswith(".py") and may_guard(world.program.text(path))
        if guarded and (file := world.program.file(path)):
            yield file
