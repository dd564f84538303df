"""Whether trees can be imported together at all: the imports of what is loaded, against the trees below.

Only imports are looked at, and only in the modules that are reached from the roots of a package: by imports,
in functions too, and by the dotted paths in strings by which vLLM loads classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from npu_upgrade.audit.checks.imports import FileImports
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import KeptFindings, no_collector
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.sources.tree import SourceTree

_CHECK = "together"


def not_together(ascend: SourceTree, vllm: SourceTree, omni: SourceTree | None = None) -> list[Finding]:
    """The imports that fail when vllm-ascend is loaded on a vllm.

    With ``omni``, those that fail when the main side of vllm-omni is loaded on that vllm; what its NPU side
    imports is for an upgrade to correct. What was found is kept by the content of the trees.
    """
    world = World(Triple(omni, ascend, vllm))
    kept = KeptFindings(world)
    found = kept.get(_CHECK)
    if found is None:
        with no_collector():
            found = list(_failing(world))
        kept.put(_CHECK, found)
    return found


def _failing(world: World) -> Iterator[Finding]:
    package = world.side.project.package
    for one in _reached(world, package):
        if not (world.of_omni and world.side.project.is_device(one.file.path)):
            yield from (found for found in one.imports() if found.kind == "missing-import")


def _reached(world: World, package: str) -> Iterator[FileImports]:
    """The files of a package that are loaded with it, with their imports."""
    program = world.program
    waiting = [file for path in _roots(world, package) if (file := program.file(path))]
    seen = {file.path for file in waiting}
    while waiting:
        one = FileImports(waiting.pop(), world)
        yield one
        for name in one.loads():
            for part in itertools.accumulate(name.split("."), "{}.{}".format):
                file = program.module(part) if part.partition(".")[0] == package else None
                if file and file.path not in seen:
                    seen.add(file.path)
                    waiting.append(file)


def _roots(world: World, package: str) -> list[str]:
    """What is loaded first: the package, its platform, and what runs models on its side."""
    first = [f"{package}/__init__.py", f"{package}/platform.py"]
    mirrored = (runner.gpu_path for runner in world.side.runners) if world.of_omni else ()
    return [*first, *mirrored]
