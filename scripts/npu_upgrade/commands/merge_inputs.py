"""What a merge works on: the trees, the upstream runner, and where base texts come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version as Number

from npu_upgrade.audit.together import Together, is_known, look_together, vllms_of
from npu_upgrade.audit.triples import ascend_of, vllm_of
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Downstream, Upstream, omni_side
from npu_upgrade.lineage.history import Version
from npu_upgrade.lineage.inference import infer
from npu_upgrade.lineage.items import Item
from npu_upgrade.lineage.project import KNOWN, distribution, package_of
from npu_upgrade.lineage.records import Bases, check_direction, find_version
from npu_upgrade.merge.gone import vllm_tree
from npu_upgrade.merge.guards import Upstream as Conditions
from npu_upgrade.merge.guards import guard_items, settling
from npu_upgrade.merge.pinned import Move, Pinned, pin_items, pinned_in
from npu_upgrade.merge.runners import read_target
from npu_upgrade.sources.index import Published
from npu_upgrade.sources.pins import required
from npu_upgrade.sources.releases import PassedOver, published, vllm_beside
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.sources.tree import SourceTree, open_source
from npu_upgrade.threeway.pieces import Labels

_NEAR = timedelta(days=60)
"""So far apart are at most the releases of two projects that share their numbers."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of one merge; ``base`` is the joint base, or the one that was named.

    ``vllm`` is what the target is to run on, None where that cannot be told or had; ``together`` what was
    looked at to find it.
    """

    omni: SourceTree
    target: SourceTree
    upstream: Upstream
    bases: Bases
    base: Version
    vllm: SourceTree | None
    together: tuple[Together, ...] = ()

    @property
    def labels(self) -> Labels:
        """What conflict markers call ours, base and theirs."""
        return (
            f"ours: {distribution(package_of(self.omni))} {_short(self.omni)}",
            f"base: {distribution(self.upstream.package)} {self.base.label}",
            f"theirs: {distribution(self.upstream.package)} {_short(self.target)}",
        )

    @property
    def base_identity(self) -> dict[str, Any]:
        """The base as it is recorded, with how sure it is when it was inferred."""
        found = self.bases.lineage.base
        inferred = self.bases.forced is None
        version = self.base
        return {
            "spec": version.spec,
            "project": distribution(self.upstream.package),
            "version": version.version,
            "sha": version.sha,
            "date": version.date and version.date.isoformat(),
            "inferred": inferred,
            "score": found.score if found and inferred else None,
            "runner_up": found.runner_up if found and inferred else None,
            "confidence": found.confidence if found and inferred else None,
        }

    def base_tree(self) -> SourceTree | None:
        """The whole tree of the base, None where it cannot be had."""
        try:
            return open_source(self.base.spec)
        except UpgradeError as error:
            say(f"note: no base tree: {error.what}")
            return None


class ArchitectureChanged(BadInput):
    """The target does not have the class that the runners derive from: nothing can be merged."""

    def __init__(self, omni: SourceTree, target: SourceTree, error: BadInput) -> None:
        super().__init__(error.what, expected=error.expected, try_=error.try_)
        self.omni, self.target = omni, target


def read(omni_spec: str, ascend_spec: str, base_spec: str) -> Inputs:
    """Open the sources and find the bases; raises :class:`BadInput` for inputs that do not fit."""
    say(f"reading {omni_spec}")
    omni = open_source(omni_spec)
    package = omni_side(omni).upstream.package
    say(f"reading {ascend_spec}")
    target = open_source(ascend_spec)
    side = omni_side(omni, {package: target})
    upstream = side.upstream
    try:
        read_target(target, upstream)
    except BadInput as error:
        raise ArchitectureChanged(omni, target, error) from error
    say("finding the base of every copied method")
    lineage = infer(side, _history_spec(ascend_spec, target, package))
    forced = find_version(lineage.history, base_spec) if base_spec != "auto" else None
    base = forced or (lineage.base.version if lineage.base else None)
    if base is None:
        raise BadInput(
            f"no runner method of {omni.spec} is copied from {distribution(package)}",
            expected=f"runners that copy methods of {distribution(package)}",
            try_="upgrade.py lineage shows how close each method is",
        )
    check_direction(base, target)
    together = tuple(_together(omni, target))
    vllm = next((one.vllm for one in together if one.can), None) or vllm_tree(target)
    bases = Bases(lineage, forced, lineage.history.target)
    return Inputs(omni, target, upstream, bases, base, vllm, together)


def read_any(downstream: str, upstream: str, base: str) -> tuple[SourceTree, SourceTree, SourceTree | None]:
    """A project, the upstream to upgrade to, and the one that it is on now.

    None where neither its pins nor its number tell what it is on.
    """
    say(f"reading {downstream} and {upstream}")
    tree, target = open_source(downstream), open_source(upstream)
    spec = base if base != "auto" else own_upstream(tree, target)
    return tree, target, open_source(spec) if spec else None


def own_upstream(tree: SourceTree, target: SourceTree) -> str | None:
    """The spec of the upstream that a project is on now, older than ``target``; None where nothing tells."""
    upstream = distribution(package_of(target))
    if upstream == "vllm" and tree.project == "vllm-ascend":
        return vllm_of(tree)
    if upstream == "vllm" and tree.project == "vllm-omni":
        return vllm_beside(tree)
    allowed = required(tree, upstream)
    if allowed is None and tree.version is None:
        return None
    last = Number(target.version) if target.version else None
    known = [one for one in published(upstream) if not one.prerelease and not one.yanked]
    fitting = [Number(one.version) for one in known if _is_on(tree, one, allowed)]
    fitting = [one for one in fitting if last is None or one < last]
    return f"pypi:{upstream}=={max(fitting)}" if fitting else None


def _is_on(tree: SourceTree, release: Published, allowed: SpecifierSet | None) -> bool:
    """Whether a tree may run on a release, by what it requires, else by its number near that one's date."""
    if allowed is not None:
        return release.version in allowed
    near = bool(tree.date and release.date and abs(tree.date - release.date) < _NEAR)
    return near and Number(release.version) == Number(tree.version or "0")


def _together(omni: SourceTree, target: SourceTree) -> Iterator[Together]:
    """Whether all can be loaded on one vllm, until it is found.

    A release is made for the vllm that it names: of that, only what `discover` left is read.
    """
    try:
        for spec, why in vllms_of(target, omni).items():
            vllm = open_source(spec)
            if not target.version or is_known(target, vllm, omni):
                say(f"checking if all can be loaded on {spec}")
                found = look_together(target, vllm, why, omni)
                yield found
                if found.can:
                    return
    except (UpgradeError, PassedOver) as error:
        say(f"note: not checked whether all can be loaded together: {error}")


def identity(tree: SourceTree) -> dict[str, Any]:
    """What a result records of a source; a folder without a commit is pinned by the content of its side."""
    known = tree.identity() | {"project": tree.project or distribution(package_of(tree))}
    if tree.version or (tree.sha and not tree.dirty):
        return known
    listing = "".join(f"{path} {sha256(tree.read(path))}\n" for path in Downstream(tree).paths)
    return known | {"tree": sha256(listing)}


def proposals(
    tree: SourceTree, was: SourceTree | None, target: SourceTree, merged: Mapping[str, str]
) -> list[Item]:
    """What else of a checkout names the old version: pins, and conditions that the target settles."""
    say("looking for pins and conditions of the old version")
    upstream = settling(was, target)
    pins = pin_items(pins_of(tree, was, target, upstream))
    return [*pins, *(guard_items(tree, merged, upstream) if upstream else ())]


def pins_of(
    tree: SourceTree, was: SourceTree | None, target: SourceTree, upstream: Conditions | None
) -> list[Pinned]:
    """The lines that pin what the target, or the upstream below it, takes the place of."""
    moves = [_move(was, target, tree)]
    if upstream and upstream.target is not target:
        moves.append(_move(upstream.was, upstream.target))
    known = {one.project for one in moves}
    beside = {distribution(one) for one in (package_of(tree), *(p.package for p in KNOWN))} - known
    return pinned_in(tree, [*(one for one in moves if one.new), *(Move(name, (), "") for name in beside)])


def _move(was: SourceTree | None, target: SourceTree, tree: SourceTree | None = None) -> Move:
    """From the release, or the commit, that a project is on to the one that it gets."""
    project = distribution(package_of(target))
    if target.version:
        declared = ascend_of(tree) if tree and project == "vllm-ascend" else None
        old = {was and was.version, declared and parse_spec(declared).version} - {target.version, None}
        return Move(project, tuple(sorted(map(str, old))), target.version)
    return Move(project, (was.sha,) if was and was.sha and was.sha != target.sha else (), target.sha or "")


def _history_spec(ascend_spec: str, target: SourceTree, package: str) -> str:
    """Where the history is: with the target, or on the package index when the target is a plain folder."""
    if parse_spec(ascend_spec).kind == "dir" and target.sha is None:
        return f"pypi:{distribution(package)}"
    return ascend_spec


def _short(tree: SourceTree) -> str:
    return tree.version or (tree.sha or "working tree")[:12]
