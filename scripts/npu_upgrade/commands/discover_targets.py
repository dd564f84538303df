"""Which vllm-omni and vllm-ascend ``discover`` looks at, and the vllm they belong to."""

from __future__ import annotations

from pathlib import Path

from packaging.version import Version

from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.pairing import Pair, pair_of, resolve
from npu_upgrade.sources.pins import Pin, kind_of, pins_of_ascend
from npu_upgrade.sources.releases import Answer, Published
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.sources.tree import SourceTree, open_source


def newest_spec(answer: Answer, clones: dict[str, Path], pre: bool) -> str | None:
    """The spec of the highest version that is not yanked."""
    usable = [r for r in shown(answer, pre) if not r.yanked]
    return _published_spec(answer, usable[0], clones) if usable else None


def omni_for(pair: Pair, answer: Answer, clones: dict[str, Path], pre: bool) -> str | None:
    """The newest vllm-omni of the pair's vllm minor version (they share the number), else the newest."""
    usable = [r for r in shown(answer, pre) if not r.yanked]
    if pair.vllm and kind_of(pair.vllm) == "version":
        minor = Version(pair.vllm).release[:2]
        usable = [r for r in usable if Version(r.version).release[:2] == minor] or usable
    return _published_spec(answer, usable[0], clones) if usable else None


def _published_spec(answer: Answer, release: Published, clones: dict[str, Path]) -> str:
    """The spec of a release: the clone that named it, else the package index."""
    if answer.source == "git":
        return f"git:{clones[answer.project]}@{release.tag}"
    return f"pypi:{answer.project}=={release.version}"


def shown(answer: Answer, pre: bool) -> list[Published]:
    """The releases to look at: all, or the stable ones alone."""
    return [r for r in answer.releases if pre or not r.prerelease]


def open_or_why(spec: str | None, given: bool = False) -> tuple[SourceTree | None, str | None]:
    """The tree of a spec, or why it could not be read; a wrong spec that was ``given`` raises."""
    if spec is None:
        return None, "no release is known"
    say(f"reading {spec}")
    try:
        return open_source(spec), None
    except Blocked as error:
        return None, error.what
    except BadInput as error:
        if given:
            raise
        return None, error.what


def spec_of(tree: SourceTree | None, spec: str | None) -> str | None:
    """The exact spec of a tree that was read, else what was asked for."""
    return tree.spec if tree else spec


def resolved_pins(ascend: SourceTree | None, clones: dict[str, Path]) -> list[Pin]:
    """The pins of a vllm-ascend, its branches resolved by a clone of vllm when there is one."""
    if ascend is None:
        return []
    clone = Repo(clones["vllm"]) if "vllm" in clones else None
    return resolve(pins_of_ascend(ascend), clone)


def find_pair(spec: str | None, tree: SourceTree | None, pins: list[Pin], answers: dict[str, Answer]) -> Pair:
    """The vllm of a vllm-ascend; of one that could not be read, by its version and date alone."""
    vllm = answers["vllm"].releases
    if tree:
        return pair_of(pins, tree.version, tree.date, vllm)
    if spec is None:
        return Pair(None, "unresolved", "no vllm-ascend release is known")
    version = parse_spec(spec).version
    date = next((r.date for r in answers["vllm-ascend"].releases if r.version == version), None)
    return pair_of([], version, date, vllm)
