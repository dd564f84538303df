"""Opens what a watch looks at: the downstream, the upstream since the last look, and what both run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npu_upgrade.audit.triples import vllm_of
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.history import open_newest
from npu_upgrade.lineage.project import distribution, package_of
from npu_upgrade.sources.tree import SourceTree, open_source
from npu_upgrade.watch.judge import Judge
from npu_upgrade.watch.line import Line, open_line
from npu_upgrade.watch.ties import Ours, read_ours


@dataclass(frozen=True)
class Asked:
    """What is watched: the downstream, the spec of the upstream up to where to look, and its package.

    ``newest`` is the upstream at that point, ``farther`` what else the downstream builds on, by package.
    """

    downstream: SourceTree
    spec: str
    package: str
    newest: SourceTree
    farther: dict[str, SourceTree]


def open_asked(downstream: str, upstreams: Sequence[str]) -> Asked:
    """Open the sources; the first upstream is the one that is watched."""
    say(f"reading {downstream}")
    tree = open_source(downstream)
    spec = upstreams[0]
    newest = open_newest(spec)
    farther = {package_of(one): one for one in map(open_newest, upstreams[1:])}
    return Asked(tree, spec, package_of(newest), newest, farther)


def open_judge(asked: Asked, since: str | None) -> Judge:
    """The judge of what came ``since``; None: since what ours were copied from.

    Raises :class:`BadInput` when nothing of ours hangs on that upstream.
    """
    if since is None:
        since = _ours(asked, asked.newest).base
        if since is None:
            name = distribution(asked.package)
            raise BadInput(
                f"nothing in {asked.downstream.spec} is a copy of {name}, so no version tells where to begin",
                expected="a downstream with copies, or a point to look from",
                try_="--since COMMIT, RELEASE or YYYY-MM-DD",
            )
    start = open_line(asked.spec, asked.package, since, ()).start
    ours = _ours(asked, open_source(start.spec))
    line: Line = open_line(
        asked.spec,
        asked.package,
        start.spec.rpartition("@")[2] if "@" in start.spec else start.label,
        ours.paths,
    )
    return Judge(ours, line, asked.spec, asked.farther.get("vllm") or _vllm(asked))


def _ours(asked: Asked, upstream: SourceTree) -> Ours:
    return read_ours(asked.downstream, {asked.package: upstream} | asked.farther, asked.package, asked.spec)


def _vllm(asked: Asked) -> SourceTree | None:
    """The vllm that the newest vllm-ascend belongs with; without it nothing is audited."""
    if asked.package != "vllm_ascend":
        return None
    try:
        spec = vllm_of(asked.newest)
        if spec:
            return open_source(spec)
        say(f"note: not audited: {asked.newest.spec} tells no release of vllm; --upstream SPEC names one")
    except UpgradeError as error:
        say(f"note: not audited: {error.what}")
    return None
