"""Whether three trees belong together: what their own pins and numbers say, and contradictions in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import ASCEND, Triple
from npu_upgrade.program.version_guards import version_of
from npu_upgrade.sources.pins import Pair, Pin, pair_of, pins_of_ascend, pins_of_omni
from npu_upgrade.sources.tree import SourceTree

_OMNI_VERSION = "vllm_omni/version.py"
_ASCEND_INIT = "vllm_ascend/__init__.py"


_APART = "names, signatures and defaults differ between the two: imports and calls fail, or run wrongly"
_WHY = {
    "other-vllm": _APART,
    "other-minor": _APART,
    "other-ascend": "the code runs in an image that it was not written for",
    "contradiction": "what gets installed depends on which file is read",
}


def belonging(triple: Triple) -> list[Finding]:
    """What speaks against the triple; empty when nothing does, or nothing can be told."""
    if triple.plugin != ASCEND:
        return []
    pins = pins_of_ascend(triple.ascend)
    found = [*_other_vllm(triple, pair_of(pins, triple.ascend.version, triple.ascend.date))]
    if triple.omni:
        found += [*_other_minor(triple.omni, triple.vllm), *_other_ascend(triple.omni, triple.ascend)]
    return found


def contradictions(triple: Triple) -> Iterator[Finding]:
    """Pins of one tree that cannot all be kept."""
    if triple.plugin != ASCEND:
        return
    pins = pins_of_ascend(triple.ascend)
    pair = pair_of(pins, triple.ascend.version, triple.ascend.date)
    for pin in pair.conflicts:
        if pair.decided_by:
            yield _contradiction(pair.decided_by, pin, "vllm")
    required = [pin for pin in pins if pin.role == "dependency"]
    for place, pin in enumerate(required):
        for other in required[:place]:
            if other.name == pin.name and not _agree(other.value, pin.value):
                yield _contradiction(other, pin, pin.name)


def _other_vllm(triple: Triple, pair: Pair) -> Iterator[Finding]:
    """vllm-ascend's own pins name another vllm; without pins, another minor version."""
    given, ascend = triple.vllm, triple.ascend
    version, wanted = version_of(given.version), version_of(pair.vllm)
    if wanted is None or (given.sha and given.sha in (pair.vllm, pair.main)):
        return
    if version is None or version.is_devrelease:
        return
    same = version.base_version == wanted.base_version and version.pre == wanted.pre
    inferred = pair.basis != "pinned" and _minor(version) == _minor(wanted)
    if same or inferred:
        return
    pin = pair.decided_by
    here = Side("vllm-ascend", pin.file, pin.line, f"{pin.name}={pin.value}") if pin else None
    said = f"is built for vllm {wanted} ({pair.why})"
    what = f"vllm-ascend {_name(ascend)} {said}, and vllm {version} is given"
    there = Side("vllm", "vllm/version.py", 0, str(version))
    todo = f"audit against vllm {wanted}, or name the vllm-ascend built for vllm {version}"
    here = here or Side("vllm-ascend", _ASCEND_INIT, 0, _name(ascend))
    yield _finding("other-vllm", "vllm", what, here, there, todo)


def _other_minor(omni: SourceTree, vllm: SourceTree) -> Iterator[Finding]:
    """vllm-omni follows vllm's minor versions."""
    own, version = version_of(omni.version), version_of(vllm.version)
    if own is None or version is None or version.is_devrelease or _minor(own) == _minor(version):
        return
    what = f"vllm-omni {own} follows vllm {_text(own)}, and vllm {version} is given"
    there = Side("vllm", "vllm/version.py", 0, str(version))
    todo = f"take a vllm-omni of {_text(version)}, or upgrade this one before it runs on vllm {version}"
    yield _finding("other-minor", "vllm", what, Side("vllm-omni", _OMNI_VERSION, 0, str(own)), there, todo)


def _other_ascend(omni: SourceTree, ascend: SourceTree) -> Iterator[Finding]:
    """The image that vllm-omni's own Dockerfile builds on."""
    version = version_of(ascend.version)
    for pin in pins_of_omni(omni):
        wanted = version_of(pin.value) if pin.role in ("image", "dependency") else None
        if wanted and version and _minor(wanted) != _minor(version):
            what = (
                f"{pin.file}:{pin.line} of vllm-omni builds on vllm-ascend {wanted}, and {version} is given"
            )
            there = Side("vllm-ascend", _ASCEND_INIT, 0, str(version))
            here = Side("vllm-omni", pin.file, pin.line, f"{pin.name} {pin.value}")
            todo = "move the image with the code, or audit against the vllm-ascend of the image"
            yield _finding("other-ascend", "vllm-ascend", what, here, there, todo)
            return


def _contradiction(one: Pin, other: Pin, subject: str) -> Finding:
    what = (
        f"vllm-ascend pins {subject} twice: {one.value} in {one.file}:{one.line}, "
        f"{other.value} in {other.file}:{other.line}"
    )
    here, there = (Side("vllm-ascend", pin.file, pin.line, f"{pin.name} {pin.value}") for pin in (other, one))
    return _finding("contradiction", subject, what, here, there, "make the two pins agree")


def _finding(kind: str, subject: str, what: str, here: Side, there: Side | None, todo: str) -> Finding:
    why = _WHY[kind]
    return Finding(kind, "", subject, what, here, there, "V", why, todo, "vllm-omni #6134")


def _agree(one: str, other: str) -> bool:
    """Whether some version satisfies both; exact values count as ``==``."""
    try:
        both = SpecifierSet(f"{_specifier(one)},{_specifier(other)}")
    except InvalidSpecifier:
        return True
    named = [text for spec in both if (text := spec.version.removesuffix(".*"))]
    beside = [text for name in named for text in (name, f"{name}.1", f"{name}.0", f"{name}.post1")]
    below = [f"{Version(name).release[0]}.0" for name in named if version_of(name)]
    return any(both.contains(text, prereleases=True) for text in [*beside, *below, "0", "999999"])


def _specifier(value: str) -> str:
    return value if re.match(r"[<>=!~]", value) else f"=={value}"


def _minor(version: Version) -> tuple[int, ...]:
    return version.release[:2]


def _text(version: Version) -> str:
    return ".".join(map(str, _minor(version)))


def _name(tree: SourceTree) -> str:
    return tree.version or (tree.sha or tree.spec)[:12]
