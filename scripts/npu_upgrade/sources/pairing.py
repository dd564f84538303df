"""Which vllm belongs to a vllm-ascend: from its own pins, else inferred and marked so.

Version numbers alone are no proof, and a branch name is no pin until it is resolved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from packaging.version import Version

from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.pins import Pin
from npu_upgrade.sources.releases import Published


@dataclass(frozen=True)
class Pair:
    """The vllm that belongs to a vllm-ascend.

    ``basis`` is "pinned" (read from ``decided_by``), "inferred" or "unresolved"; ``main`` is
    the vllm main commit the target is verified with, when it names one.
    """

    vllm: str | None
    basis: str
    why: str
    main: str | None = None
    decided_by: Pin | None = None
    conflicts: tuple[Pin, ...] = ()


def resolve(pins: Iterable[Pin], clone: Repo | None) -> list[Pin]:
    """The pins with branches and short SHAs resolved by a clone of the project they name."""
    found = []
    for pin in pins:
        if clone and pin.kind in ("branch", "short-sha"):
            with contextlib.suppress(UpgradeError):
                pin = replace(pin, sha=clone.resolve(pin.value))
        found.append(pin)
    return found


def pair_of(
    pins: Sequence[Pin], version: str | None, date: datetime | None, vllm: Sequence[Published] = ()
) -> Pair:
    """The vllm of a vllm-ascend: from its pins, else from the releases nearest in number and date.

    ``version`` and ``date`` are the vllm-ascend's own; ``vllm`` are the published vllm releases.
    """
    main = next((p.exact for p in pins if p.role == "main" and p.exact and p.kind != "version"), None)
    release = [pin for pin in pins if pin.role == "release"]
    exact = [pin for pin in release if pin.exact]
    if exact:
        decided = exact[0]
        conflicts = tuple(p for p in release if p.exact != decided.exact)
        why = f"{decided.name}={decided.value} in {decided.file}:{decided.line}"
        return Pair(decided.exact, "pinned", why, main, decided, conflicts)
    if release:
        loose = release[0]
        why = f"{loose.file}:{loose.line} names {loose.value} ({loose.kind}): give --repo vllm=PATH"
        return Pair(None, "unresolved", why, main, loose)
    if main:
        return Pair(main, "pinned", "only a verified main commit is named", main)
    return _inferred(version, date, vllm)


def _inferred(version: str | None, date: datetime | None, vllm: Sequence[Published]) -> Pair:
    """The same release number when there is one, else the newest of the same minor version."""
    if version is None:
        return Pair(None, "unresolved", "no pins in the tree, and no version to infer from")
    wanted = Version(version)
    if not vllm:
        why = "no pins in the tree; the same number, its existence not checked"
        return Pair(wanted.base_version, "inferred", why)
    stable = sorted((r for r in vllm if not r.prerelease), key=lambda r: Version(r.version), reverse=True)
    minor = wanted.release[:2]
    rules = {
        "vllm has a release of the same number": lambda r: Version(r.version).release == wanted.release,
        "newest vllm of the same minor version": lambda r: Version(r.version).release[:2] == minor,
        "newest vllm at its date": lambda r: r.date and date and r.date <= date,
    }
    for why, holds in rules.items():
        for release in stable:
            if holds(release):
                return Pair(release.version, "inferred", f"no pins in the tree; {why}")
    return Pair(None, "unresolved", f"no pins in the tree, and no vllm release near {version}")
