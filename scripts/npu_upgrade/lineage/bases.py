"""The base text of a copied method, with the neighbouring versions it is refined by."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion
from packaging.version import Version as Number

from npu_upgrade.code.statements import Statement, split_statements
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.history import History, Version
from npu_upgrade.lineage.inference import Lineage, MethodLineage
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.threeway.nearest_base import nearest_base


@dataclass(frozen=True)
class Bases:
    """Where base texts come from.

    ``forced`` is the version a person named (None: each method's own best one);
    ``target`` is the version upgraded to where the history knows it.
    """

    lineage: Lineage
    forced: Version | None = None
    target: Version | None = None

    def version(self, entry: MethodLineage) -> Version:
        version = self.forced or entry.best
        assert version is not None, "only asked for copied methods"
        return version

    def statements(self, entry: MethodLineage, ours: list[Statement]) -> list[Statement] | None:
        """The base of a method, None when upstream had no such method at that version."""
        version = self.version(entry)
        text = self.lineage.history.unit(version, entry.upstream)
        if text is None:
            return None
        older, newer = self.lineage.neighbours(entry.upstream, version, self.target)
        sides = [[split_statements(other) for other in texts] for texts in (older, newer)]
        return nearest_base(split_statements(text), *sides, ours)


def find_version(history: History, spec: str) -> Version:
    """The version of ``history`` that a base spec names; raises :class:`BadInput` when there is none."""
    name = spec.partition("@")[2] if spec.startswith("git:") else spec.partition("==")[2]
    matches = [v for v in history.versions if name and (v.label == name or (v.sha or "").startswith(name))]
    if not matches:
        raise BadInput(
            f"the base {spec} is not among the versions of {history.upstream.path}",
            expected="a release on the package index, or a commit that changed that file",
            try_="--base auto, or one of " + ", ".join(v.spec for v in history.versions[-3:]),
        )
    return matches[-1]


def check_direction(base: Version, target: SourceTree) -> None:
    """Raise :class:`BadInput` when the target is older than what the runners are based on."""
    if not _is_older(target, base):
        return
    raise BadInput(
        f"{target.spec} is older than the base of the runners, {base.label}",
        expected="a vllm-ascend that is newer than the version the runners were copied from",
        try_="name a newer --ascend, or --base where the inferred one is wrong (upgrade.py lineage)",
    )


def _is_older(target: SourceTree, base: Version) -> bool:
    try:
        return Number(target.version or "") < Number(base.version or "")
    except InvalidVersion:
        return bool(target.date and base.date and target.date < base.date and target.sha != base.sha)
