"""Which vllm-omni and vllm-ascend an upgrade looks at, the vllm they belong to, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.index import Published
from npu_upgrade.sources.installed import Package
from npu_upgrade.sources.pins import Pair, Pin, kind_of, pair_of, pins_of_ascend, pins_of_omni, resolve
from npu_upgrade.sources.releases import Answer
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.sources.tree import SourceTree, open_source

NOT_DECLARED = "no Dockerfile, document or requirement names a vllm-ascend (a wheel carries none of them)"

_SHOWN = 5


@dataclass(frozen=True)
class Looked:
    """A source that was looked at: its ``tree``, or ``why`` there is none. ``spec`` is exact for a tree."""

    spec: str | None
    tree: SourceTree | None = None
    why: str | None = None

    @property
    def identity(self) -> dict[str, Any] | None:
        return self.tree.identity() if self.tree else None


def look(spec: str | None, given: bool = False) -> Looked:
    """Open a source; a wrong spec that was ``given`` raises, any other trouble is the reason why not."""
    if spec is None:
        return Looked(None, why="no release is known")
    say(f"reading {spec}")
    try:
        tree = open_source(spec)
    except Blocked as error:
        return Looked(spec, why=error.what)
    except BadInput as error:
        if given:
            raise
        return Looked(spec, why=error.what)
    return Looked(tree.spec, tree)


def shown(answer: Answer, pre: bool) -> list[Published]:
    """The releases to look at: all, or the stable ones alone."""
    return [r for r in answer.releases if pre or not r.prerelease]


def newest_spec(answer: Answer, clones: dict[str, Path], pre: bool, vllm: str | None = None) -> str | None:
    """The spec of the highest version that is not yanked, by the clone that named it or by the package index.

    With ``vllm``, one of the same minor version comes first: vllm-omni shares its number.
    """
    usable = [r for r in shown(answer, pre) if not r.yanked]
    if vllm and kind_of(vllm) == "version":
        minor = Version(vllm).release[:2]
        usable = [r for r in usable if Version(r.version).release[:2] == minor] or usable
    if not usable:
        return None
    if answer.source == "git":
        return f"git:{clones[answer.project]}@{usable[0].tag}"
    return f"pypi:{answer.project}=={usable[0].version}"


def pins_of(ascend: SourceTree | None, clones: dict[str, Path]) -> list[Pin]:
    """The pins of a vllm-ascend, its branches resolved by a clone of vllm when there is one."""
    return resolve(pins_of_ascend(ascend), _clone(clones, "vllm")) if ascend else []


def find_pair(ascend: Looked, pins: list[Pin], answers: dict[str, Answer]) -> Pair:
    """The vllm of a vllm-ascend; of one that could not be read, by its version and date alone."""
    vllm = answers["vllm"].releases
    if ascend.tree:
        return pair_of(pins, ascend.tree.version, ascend.tree.date, vllm)
    if ascend.spec is None:
        return Pair(None, "unresolved", "no vllm-ascend release is known")
    version = parse_spec(ascend.spec).version
    date = next((r.date for r in answers["vllm-ascend"].releases if r.version == version), None)
    return pair_of([], version, date, vllm)


def releases_section(answer: Answer, pre: bool) -> dict[str, Any]:
    """One project's answer: who gave it, who did not and why, and the newest releases."""
    return {
        "source": answer.source,
        "where": answer.where,
        "passed_over": answer.passed_over,
        "newest_stable": answer.newest(pre=False),
        "newest_prerelease": answer.newest(pre=True) if pre else None,
        "last_uploaded": answer.last_uploaded(),
        "known": len(answer.releases),
        "releases": shown(answer, pre)[:_SHOWN],
        "notes": answer.notes,
    }


def omni_section(omni: Looked, ascend: Answer, clones: dict[str, Path]) -> dict[str, Any]:
    """What a vllm-omni declares of the vllm-ascend it runs on."""
    if omni.tree is None:
        return {"spec": omni.spec, "why": omni.why}
    declared = resolve(pins_of_omni(omni.tree), _clone(clones, "vllm-ascend"))
    known = {r.version for r in ascend.releases}
    wanted = {pin.exact for pin in declared if pin.kind == "version" and pin.exact}
    return {
        "spec": omni.spec,
        "why": None,
        "identity": omni.identity,
        "declared": declared,
        "declared_why": None if declared else NOT_DECLARED,
        "unpublished": sorted(wanted - known) if known else [],  # an upgrade cannot fetch them
    }


def notes(
    pair: Pair, omni: SourceTree | None, unpublished: list[str], packages: list[Package], pins: list[Pin]
) -> list[str]:
    """What does not fit together; ``packages`` are installed, ``pins`` are those of the target."""
    found = [
        f"{pin.file}:{pin.line} says {pin.name}={pin.value}, against vllm {pair.vllm}"
        for pin in pair.conflicts
    ]
    wanted = {pin.name: pin.value for pin in pins if pin.role == "dependency" and pin.kind == "version"}
    if pair.vllm and kind_of(pair.vllm) == "version":
        wanted["vllm"] = pair.vllm
        own = Version(omni.version).release[:2] if omni and omni.version else None
        if omni and own and own != Version(pair.vllm).release[:2]:
            follows = f"vllm-omni {omni.version} follows vllm {own[0]}.{own[1]} by number"
            found.append(f"{follows}; the target belongs to vllm {pair.vllm}")
    found += [
        f"vllm-omni declares vllm-ascend {version}, which is not among the published releases"
        for version in unpublished
    ]
    return found + [
        f"installed {one.name} {one.version}, the target pins {wanted[one.name]}"
        for one in packages
        if one.name in wanted and not _same_version(one.version, wanted[one.name])
    ]


def _same_version(one: str, other: str) -> bool:
    """Equal but for a local suffix such as "+cpu"; a version that is none equals nothing."""
    try:
        return Version(one).public == Version(other).public
    except InvalidVersion:
        return False


def _clone(clones: dict[str, Path], project: str) -> Repo | None:
    return Repo(clones[project]) if project in clones else None
