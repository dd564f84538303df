"""Opens the trees of an audit and of the matched old pair it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from packaging.version import InvalidVersion, Version

from npu_upgrade.audit.world import ASCEND, Triple
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import omni_side, read_runner
from npu_upgrade.lineage.inference import infer
from npu_upgrade.lineage.ran_with import at_last_change, released_as
from npu_upgrade.sources.index import releases_of, versions_of
from npu_upgrade.sources.pins import pair_of, pins_of_ascend, pins_of_omni
from npu_upgrade.sources.tree import SourceTree, open_source

_EXAMPLES = {
    "vllm-omni": "pypi:vllm-omni==0.30.0, git:PATH@REF or dir:PATH",
    "vllm-ascend": "pypi:vllm-ascend==0.30.0rc2, git:PATH@REF or dir:PATH",
    "vllm": "pypi:vllm==0.30.0, git:PATH@REF or dir:PATH",
}


def open_project(spec: str, project: str) -> SourceTree:
    """The tree of a spec; :class:`BadInput` when it is another project's."""
    say(f"reading {spec}")
    tree = open_source(spec)
    if tree.project != project:
        raise BadInput(
            f"{spec} is {tree.project or 'none of the three projects'}, not {project}",
            expected=f"the sources of {project}",
            try_=_EXAMPLES[project],
        )
    return tree


def open_triple(omni: SourceTree | None, ascend_spec: str, vllm_spec: str | None) -> Triple:
    """The triple with a given vllm-omni; without ``vllm_spec`` the vllm that vllm-ascend belongs with."""
    if omni:
        check_parses(omni)
    ascend = open_project(ascend_spec, "vllm-ascend")
    return Triple(omni, ascend, open_project(vllm_spec or _vllm_spec(ascend), "vllm"))


def check_parses(omni: SourceTree) -> None:
    """Raise :class:`BadInput` for a tree without NPU runners, conflict markers, and what is not Python."""
    side = omni_side(omni)
    for path in side.paths:
        read_runner(omni, path)
    _ = side.upstream  # raises where there is none


def old_triple(triple: Triple, tracked: str | None = None) -> Triple | None:
    """The matched old pair of a triple; None when none can be told.

    It is the last one that the NPU side really ran with: the release that its runners equal byte for byte,
    with that release's GPU side and pair; else the pair that the same vllm-omni declares; else the tree at
    the last change of its runners, with what they were copied from (``tracked``, where that is known). Of a
    triple that belongs together already, and of copies older than the release before, it is that release
    with its own pair. Which vllm another platform plugin ran with is not known here.
    """
    if triple.omni is None:
        return _old_ascend(triple) if triple.plugin == ASCEND else None
    if (same := released_as(triple.omni)) and (released := _released(same)) and not _same(released, triple):
        return released
    omni, spec = triple.omni, ascend_of(triple.omni)
    if spec is None:
        omni = at_last_change(omni)
        spec = ascend_of(omni) or tracked
    if spec is None:
        say("finding the vllm-ascend that the runners track")
        base = infer(omni, "pypi:vllm-ascend").base
        spec = base.spec if base else None
        if spec and (newer := _before_on_newer(triple.omni, spec)):
            return newer
    matched = _opened(omni, spec) if spec else None
    if matched and not _same(matched, triple):
        return matched
    before = release_before(triple.omni)
    return _released(before) if before else None


def _before_on_newer(omni: SourceTree, spec: str) -> Triple | None:
    """The release before with its own pair, where that has a newer vllm-ascend than the one of ``spec``.

    Copies that were never synced are as old as they are; what builds on that release never ran with it.
    """
    before = release_before(omni)
    released = _released(before) if before else None
    tracked = spec.partition("==")[2]
    newer = released and tracked and Version(released.ascend.version or "0") > Version(tracked)
    return released if newer else None


def named_triple(specs: Sequence[str], triple: Triple) -> Triple:
    """The old triple of specs in any order; what is left out is what belongs with what is named."""
    trees: dict[str, SourceTree] = {}
    for spec in specs:
        say(f"reading {spec}")
        tree = open_source(spec)
        if tree.project not in _EXAMPLES or tree.project in trees:
            raise BadInput(
                f"--baseline {spec} is {tree.project or 'none of the three projects'}",
                expected="at most one each of vllm-omni, vllm-ascend and vllm",
                try_="--baseline " + " ".join(text.partition(",")[0] for text in _EXAMPLES.values()),
            )
        trees[tree.project] = tree
    omni = trees.get("vllm-omni", triple.omni)
    ascend = trees.get("vllm-ascend")
    if ascend is None:
        spec = ascend_of(omni) if omni else None
        ascend = open_project(spec, "vllm-ascend") if spec else triple.ascend
    vllm = trees.get("vllm") or open_project(_vllm_spec(ascend), "vllm")
    return Triple(omni if triple.omni else None, ascend, vllm)


def _old_ascend(triple: Triple) -> Triple | None:
    """The same vllm-ascend on its own vllm; when it has that already, the release before."""
    own = vllm_of(triple.ascend)
    if own and triple.vllm.version and own != f"pypi:vllm=={triple.vllm.version}":
        return Triple(None, triple.ascend, open_project(own, "vllm"))
    before = release_before(triple.ascend)
    return _opened(None, before) if before else None


def _released(spec: str) -> Triple | None:
    omni = open_project(spec, "vllm-omni")
    ascend = ascend_of(omni)
    return _opened(omni, ascend) if ascend else None


def _opened(omni: SourceTree | None, spec: str) -> Triple | None:
    ascend = open_project(spec, "vllm-ascend")
    vllm = vllm_of(ascend)
    return Triple(omni, ascend, open_project(vllm, "vllm")) if vllm else None


def _same(one: Triple, other: Triple) -> bool:
    return (one.ascend.spec, one.vllm.spec) == (other.ascend.spec, other.vllm.spec)


def _vllm_spec(ascend: SourceTree) -> str:
    spec = vllm_of(ascend)
    if spec is None:
        raise BadInput(
            f"{ascend.spec} does not tell which vllm release it belongs with",
            expected="a vllm-ascend that pins a vllm release, or --vllm",
            try_=f"--vllm SPEC, such as {_EXAMPLES['vllm']}",
        )
    return spec


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
        pair = pair_of(pins, ascend.version, ascend.date, releases_of("vllm"))
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
    own = Version(tree.version).release
    if tree.project == "vllm-omni":
        return _newest(tree.project, lambda other: not other.is_prerelease and other.release < own)
    return _newest(tree.project, lambda other: other.release[:2] < own[:2])


def _same_minor(project: str, version: str | None) -> str | None:
    """The highest release of a project with the major and minor number of ``version``."""
    if version is None:
        return None
    minor = Version(version).release[:2]
    return _newest(project, lambda other: other.release[:2] == minor)


def _newest(project: str, wanted: Callable[[Version], bool]) -> str | None:
    found = max(filter(wanted, versions_of(project)), default=None)
    return f"pypi:{project}=={found}" if found else None
