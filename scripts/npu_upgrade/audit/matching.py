"""Which vllm-ascend a vllm-omni runs on, and which vllm that one belongs to: the matched pair.

Read from the tree where it says so, else by number: releases of the three projects that belong
together share major and minor version.
"""

from __future__ import annotations

from collections.abc import Callable

from packaging.version import InvalidVersion, Version

from npu_upgrade.sources.index import releases_of
from npu_upgrade.sources.pairing import pair_of
from npu_upgrade.sources.pins import pins_of_ascend, pins_of_omni
from npu_upgrade.sources.releases import from_index, previous_release
from npu_upgrade.sources.tree import SourceTree


def ascend_of(omni: SourceTree) -> str | None:
    """The spec of the vllm-ascend release that a vllm-omni belongs with; None when nothing tells."""
    for pin in pins_of_omni(omni):
        if pin.kind == "version":
            return f"pypi:vllm-ascend=={Version(pin.value)}"
    return _same_minor("vllm-ascend", omni.version)


def vllm_of(ascend: SourceTree) -> str | None:
    """The spec of the vllm release that a vllm-ascend belongs with; None when it is no release."""
    pins = pins_of_ascend(ascend)
    pair = pair_of(pins, ascend.version, ascend.date)
    if pair.basis != "pinned" and ascend.version:
        pair = pair_of(pins, ascend.version, ascend.date, from_index("vllm"))
    try:
        return f"pypi:vllm=={Version(pair.vllm or '')}"
    except InvalidVersion:
        return None


def release_before(tree: SourceTree) -> str | None:
    """The spec of the release before a vllm-omni or vllm-ascend, of a lower major or minor version.

    Of vllm-omni the newest stable one; vllm-ascend publishes most versions as pre-releases only.
    """
    if not tree.version or not tree.project:
        return None
    if tree.project == "vllm-omni":
        stable = previous_release(tree.version, tree.date, from_index(tree.project))
        return f"pypi:{tree.project}=={stable}" if stable else None
    minor = Version(tree.version).release[:2]
    return _newest(tree.project, lambda version: version.release[:2] < minor)


def _same_minor(project: str, version: str | None) -> str | None:
    """The highest release of a project with the major and minor number of ``version``."""
    if version is None:
        return None
    minor = Version(version).release[:2]
    return _newest(project, lambda other: other.release[:2] == minor)


def _newest(project: str, wanted: Callable[[Version], bool]) -> str | None:
    versions = [Version(release.version) for release in releases_of(project) if not release.yanked]
    found = max(filter(wanted, versions), default=None)
    return f"pypi:{project}=={found}" if found else None
