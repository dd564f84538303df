"""Whether a vllm-ascend, a vllm and a vllm-omni can be loaded together at all, and which neighbour can.

Only imports are looked at, and only in the modules that are reached from the roots of a package, and its
entry points: by imports, in functions too, and by the dotted paths in strings by which vLLM loads classes.
In a branch of a function only the roots and entry points themselves count: they dispatch, what is deeper
depends on an option or a model.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from packaging.version import Version

from npu_upgrade.audit.checks.imports import FileImports
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import ROOMS, KeptFindings
from npu_upgrade.audit.triples import vllm_of
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.ground.beside import beside
from npu_upgrade.ground.collector import no_collector
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.content import code_digest
from npu_upgrade.sources.git import clone_at
from npu_upgrade.sources.index import versions_of
from npu_upgrade.sources.pins import pair_of
from npu_upgrade.sources.releases import published
from npu_upgrade.sources.spec import Spec, parse_spec
from npu_upgrade.sources.tree import SourceTree, open_source

_COMMITS, _RELEASES = 256, 12
_TELLS = re.compile(r"pyproject\.toml|setup\.(py|cfg)|[^/]+\.(dist|egg)-info/entry_points\.txt")
_SECONDS = 20.0
"""So long the search for a neighbour goes on."""


@dataclass(frozen=True)
class Together:
    """What fails to be imported on ``vllm``: by vllm-ascend, and by the main side of the downstream.

    What its ``device`` side imports is for an upgrade to correct, and is told by the audit too. ``why`` says
    who names this vllm.
    """

    vllm: SourceTree
    why: str
    target: list[Finding]
    downstream: list[Finding]
    device: list[Finding]

    @property
    def can(self) -> bool:
        return not self.target and not self.downstream

    def as_json(self) -> dict[str, object]:
        sides = {"target fails": self.target, "downstream fails": self.downstream}
        sides["for the upgrade"] = self.device
        return {"vllm": self.vllm.spec, "why": self.why, "can": self.can} | {
            name: [f"{one.here.path}:{one.here.line}: {one.what}" for one in found]
            for name, found in sides.items()
        }


def vllms_of(ascend: SourceTree, omni: SourceTree | None) -> dict[str, str]:
    """The specs of the vllm that a vllm-ascend belongs with, and of the one of the downstream's number.

    Each with who names it.
    """
    own = vllm_of(ascend)
    found = {own: "the target's own"} if own else {}
    named = omni and omni.version and pair_of([], omni.version, omni.date, published("vllm")).vllm
    return found | ({f"pypi:vllm=={named}": "by the downstream's number"} if named else {}) | found


def is_known(ascend: SourceTree, vllm: SourceTree, omni: SourceTree | None) -> bool:
    """Whether the answer is kept already."""
    return all(KeptFindings(world).get(_kept_as(world)) is not None for world in _worlds(ascend, vllm, omni))


def look_together(ascend: SourceTree, vllm: SourceTree, why: str, omni: SourceTree | None) -> Together:
    """What fails when all is loaded; the answer is kept by the content of the trees."""
    target, *others = _worlds(ascend, vllm, omni)
    if is_known(ascend, vllm, omni):
        fails, found = _failing(target), [one for world in others for one in _failing(world)]
    else:
        waiting = beside(lambda: msgspec.json.encode([one for world in others for one in _failing(world)]))
        fails, found = _failing(target), msgspec.json.decode(waiting(), type=list[Finding])
    project = others[0].side.project if others else None
    device = [one for one in found if project and project.is_device(one.here.path)]
    return Together(vllm, why, fails, [one for one in found if one not in device], device)


def _worlds(ascend: SourceTree, vllm: SourceTree, omni: SourceTree | None) -> list[World]:
    """What is about the target, and what is about the downstream."""
    return [World(Triple(one, ascend, vllm)) for one in ((None, omni) if omni else (None,))]


def neighbour(ascend: SourceTree, vllm: SourceTree, failing: Sequence[Finding]) -> str | None:
    """The spec of the nearest vllm-ascend that can be loaded on ``vllm``, newer ones first; None without one.

    Of a clone it is a commit of its branch: the first one where nothing that fails now fails, found by
    halving, and looked at as a whole.
    """
    spec, end = parse_spec(ascend.spec), time.monotonic() + _SECONDS
    say(f"looking for the nearest vllm-ascend that can be loaded on {vllm.spec}")
    try:
        if spec.kind == "git" and spec.path and ascend.sha:
            older, newer = clone_at(spec.path).line_from(ascend.sha, _COMMITS)
            lines = [[str(Spec("git", path=spec.path, ref=sha)) for sha in line] for line in (newer, older)]
        else:
            lines = _releases(spec.project, ascend.version, vllm.version) if spec.kind == "pypi" else []
        asked = repr((ascend.spec, vllm.spec, lines, code_digest(*ROOMS)))
        known = cache_root() / "together" / f"{sha256(asked)[:24]}.json"
        if known.exists():
            return json.loads(known.read_text("utf-8"))
        found = next(filter(None, (_first(line, vllm, failing, end) for line in lines)), None)
        if found:
            write_atomic(known, json.dumps(found))
        return found
    except UpgradeError as error:
        say(f"note: no neighbour of {ascend.spec} was looked for: {error.what}")
    return None


def _releases(project: str, version: str | None, vllm: str | None) -> list[list[str]]:
    """The releases of the series of ``vllm``, newest first; then those beside ``version``, newer first."""
    numbers = versions_of(project)
    own, series = Version(version or "0"), Version(vllm or "0").release[:2]
    named = [number for number in numbers if number.release[:2] == series][::-1]
    newer = [number for number in numbers if number > own][:_RELEASES]
    older = [number for number in numbers if number < own][::-1][:_RELEASES]
    return [[f"pypi:{project}=={number}" for number in line] for line in (named, newer, older)]


def _first(line: Sequence[str], vllm: SourceTree, failing: Sequence[Finding], end: float) -> str | None:
    """The first spec of a line where all can be loaded, if it stays so once it is."""
    paths = {finding.here.path for finding in failing}
    low, step = 0, 1
    while low < len(line) and time.monotonic() < end:
        high = low
        while high < len(line) and _fails(line[high], vllm, paths):
            low, high, step = high + 1, high + step, 2 * step
        if high >= len(line):
            high = len(line) - 1
            if low > high or _fails(line[high], vllm, paths):
                return None
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if _fails(line[middle], vllm, paths) else (low, middle)
        left = _fails(line[high], vllm)
        if not left:
            return line[high]
        paths |= {finding.here.path for finding in left}
        low, step = high + 1, 1
    return None


def _fails(spec: str, vllm: SourceTree, only: set[str] | None = None) -> list[Finding]:
    """What fails in a vllm-ascend, or in some files of it."""
    world = World(Triple(None, open_source(spec), vllm))
    if only is None:
        return _failing(world)
    files = [file for path in sorted(only) if (file := world.program.file(path))]
    return [one for file in files for one in _fatal(FileImports(file, world)) if not _is_own(one)]


def _failing(world: World) -> list[Finding]:
    """What fails when the package that the world is about is loaded."""

    def find() -> list[Finding]:
        with no_collector():
            return [finding for one in _reached(world) for finding in _fatal(one)]

    return [one for one in KeptFindings(world).once(_kept_as(world), find) if not _is_own(one)]


def _kept_as(world: World) -> str:
    """The entry points stand in files that are not Python, which do not count as content otherwise."""
    return f"together-{sha256(repr(entry_points(world)))[:8]}"


def _fatal(one: FileImports) -> list[Finding]:
    return [found for found in one.imports() if found.kind == "missing-import"]


def _is_own(found: Finding) -> bool:
    """A project that lacks a name of its own lacks it beside every other: the audit tells it."""
    return found.subject.partition(".")[0].replace("_", "-") == found.here.project


def entry_points(world: World) -> list[str]:
    """The modules of a package that its distribution names: commands, and what vLLM loads as a plugin."""
    package = world.side.project.package
    tree = world.program.trees[package]
    told = [path for path in tree.list("") if _TELLS.fullmatch(path)]
    named = re.compile(rf"""=\s*["']?({package}(?:\.\w+)*)\s*:\s*\w""")
    return list(dict.fromkeys(name for path in told for name in named.findall(tree.read(path))))


def _reached(world: World) -> Iterator[FileImports]:
    """The files of a package that are loaded with it, with their imports."""
    program, package = world.program, world.side.project.package
    mirrored = [runner.gpu_path for runner in world.side.runners] if world.of_omni else []
    roots = [f"{package}/__init__.py", f"{package}/platform.py", *mirrored]
    entered = [program.module(name) for name in entry_points(world)]
    waiting = [file for file in (*map(program.file, roots), *entered) if file]
    seen = {file.path for file in waiting}
    dispatching = set(seen)
    while waiting:
        one = FileImports(waiting.pop(), world)
        yield one
        loads = one.loads(branches=one.file.path in dispatching)
        names = (name for name in loads if name.partition(".")[0] == package)
        for part in (
            part for name in names for part in itertools.accumulate(name.split("."), "{}.{}".format)
        ):
            file = program.module(part)
            if file and file.path not in seen:
                seen.add(file.path)
                waiting.append(file)
