"""The lines of a source tree that pin another project: Dockerfiles, commit files, CI, docs, requirements.

A wheel carries none of these files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.index import Published
from npu_upgrade.sources.tree import SourceTree


@dataclass(frozen=True)
class Pin:
    """One line that names a version of another project.

    ``role`` is what the line decides: "release" (the vllm release the target is built for),
    "main" (the vllm main commit it is verified with), "ci" and "docs" (often behind),
    "dependency" (an installed package) or "image" (a container the project is built on).
    ``kind`` is "version", "sha", "short-sha", "range", "branch" (any other name of a ref) or
    "tag" (of an image, which may be moved). ``sha`` is the commit of a branch or short SHA
    once resolved.
    """

    file: str
    line: int
    name: str
    value: str
    role: str
    kind: str
    sha: str | None = None

    @property
    def exact(self) -> str | None:
        """The value to record: a version without its "v", or a full SHA; None for anything looser."""
        if self.kind == "version":
            return str(Version(self.value))
        return self.sha or (self.value if self.kind == "sha" else None)


_ARG = re.compile(r"^\s*ARG\s+(\w+)=(.*)$", re.IGNORECASE)
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)?(\S+)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{?(\w+)(?::-[^}]*)?\}?")
_FULL_SHA = re.compile(r"[0-9a-f]{40}")
_SHORT_SHA = re.compile(r"(?=.*\d)[0-9a-f]{7,39}")
_DOC_LINE = re.compile(r"""^\s*["']?(\w*vllm_(?:version|commit|tag))["']?\s*:\s*["']?([\w.]+)""")
_CI_LINE = re.compile(r"^\s*(vllm_version|vllm|VLLM_COMMIT)\s*[:=]\s*(.+)$")
_CI_VALUE = re.compile(r"(?<![\w./-])(main|v\d+(?:\.\w+)+|[0-9a-f]{40})(?![\w./-])")
_ASCEND_TEXT = re.compile(r"vllm[-_]ascend(?::|==|@)\s*([\w.][\w.\-/]*)", re.IGNORECASE)
_DEPENDENCIES = {"vllm", "vllm-ascend", "vllm-omni", "torch", "torch-npu", "transformers", "triton-ascend"}
_IMAGE_SUFFIX = re.compile(r"-(?:a\d|\d{3}[a-z]?|openeuler|ubuntu[\d.]*|py3[\d.]*).*$", re.IGNORECASE)


def kind_of(value: str) -> str:
    """What a pinned value is: "version", "sha", "short-sha", or "branch" for any other git ref."""
    if _FULL_SHA.fullmatch(value):
        return "sha"
    if _SHORT_SHA.fullmatch(value):
        return "short-sha"
    try:
        Version(value)
    except InvalidVersion:
        return "branch"
    return "version"


def pins_of_ascend(tree: SourceTree) -> list[Pin]:
    """Every line of a vllm-ascend tree that pins vllm or the torch stack (none in a wheel)."""
    return [
        *_commit_files(tree),
        *_dockerfile_args(tree, ("VLLM_COMMIT", "VLLM_TAG", "VLLM_VERSION")),
        *_ci_lines(tree),
        *_doc_lines(tree),
        *_requirement_lines(tree),
        *_image_lines(tree, "cann"),
    ]


def pins_of_omni(tree: SourceTree) -> list[Pin]:
    """Every line of a vllm-omni tree that names a vllm-ascend (none in a wheel)."""
    images = list(_image_lines(tree, "vllm-ascend"))
    texts = list(_ascend_mentions(tree))
    return images + texts + [pin for pin in _requirement_lines(tree) if pin.name == "vllm-ascend"]


def required(tree: SourceTree, project: str) -> SpecifierSet | None:
    """The versions of ``project`` that a tree requires, by the first of its files that limits them."""
    metadata = [path for path in tree.list() if re.fullmatch(r"[^/]+\.dist-info/METADATA|PKG-INFO", path)]
    listed = [path for path in tree.list() if re.fullmatch(r"[\w.-]*requirements[\w.-]*\.txt", path)]
    listed += tree.list("requirements")
    for path in ("pyproject.toml", "setup.py", "setup.cfg", *metadata, *listed):
        for _, line in _lines(tree, path):
            text = line.split("#")[0].removeprefix("Requires-Dist:").strip().rstrip(",").strip("\"'")
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            if requirement.specifier and requirement.name.lower().replace("_", "-") == project:
                return SpecifierSet(re.sub(r"\+[\w.]+", "", str(requirement.specifier)))
    return None


def _commit_files(tree: SourceTree) -> Iterator[Pin]:
    for path in tree.list(".github"):
        if not re.fullmatch(r"\.github/[^/]*vllm[^/]*\.commit", path):
            continue
        if value := tree.read(path).strip():
            role = "main" if "main" in path or "verified" in path else "release"
            yield _pin(path, 1, Path(path).stem, value.split()[0], role)


def _dockerfiles(tree: SourceTree) -> list[str]:
    """The Dockerfiles at the top and in docker/, the plain one first."""
    return sorted(path for path in tree.list() if re.fullmatch(r"(docker/)?Dockerfile[^/]*", path))


def _dockerfile_args(tree: SourceTree, names: tuple[str, ...]) -> Iterator[Pin]:
    """ARGs with a value; VLLM_COMMIT wins over VLLM_TAG in the build, so it comes first."""
    for path in _dockerfiles(tree):
        found = {}
        for number, line in _lines(tree, path):
            match = _ARG.match(line)
            if match and match[1] in names and (value := _unquoted(match[2])):
                found.setdefault(match[1], _pin(path, number, match[1], value, "release"))
        yield from (found[name] for name in names if name in found)


def _ci_lines(tree: SourceTree) -> Iterator[Pin]:
    """The vllm of CI matrices: before the commit files existed, the only place with the main commit."""
    for path in tree.list(".github/workflows"):
        if not path.endswith((".yml", ".yaml")):
            continue
        for number, line in _lines(tree, path):
            if match := _CI_LINE.match(line):
                for value in _CI_VALUE.findall(match[2]):
                    role = "main" if kind_of(value) == "sha" else "ci"
                    yield _pin(path, number, match[1], value, role)


def _doc_lines(tree: SourceTree) -> Iterator[Pin]:
    for path in ("docs/source/conf.py", "docs/conf.py", "mkdocs.yml"):
        for number, line in _lines(tree, path):
            match = _DOC_LINE.match(line)
            if match and kind_of(match[2]) != "branch":
                yield _pin(path, number, match[1], match[2], "docs")


def _requirement_lines(tree: SourceTree) -> Iterator[Pin]:
    for path in ("pyproject.toml", "requirements.txt", *tree.list("requirements")):
        for number, line in _lines(tree, path):
            text = line.split("#")[0].strip().rstrip(",").strip("\"'")
            if pin := _requirement(path, number, text):
                yield pin


def _requirement(path: str, number: int, text: str) -> Pin | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    name = requirement.name.lower().replace("_", "-")
    specifiers = list(requirement.specifier)
    if name not in _DEPENDENCIES or not specifiers:
        return None
    if len(specifiers) == 1 and specifiers[0].operator in ("==", "===") and "*" not in specifiers[0].version:
        return Pin(path, number, name, specifiers[0].version, "dependency", "version")
    return Pin(path, number, name, str(requirement.specifier), "dependency", "range")


def _image_lines(tree: SourceTree, image: str) -> Iterator[Pin]:
    """The tag of ``image`` each Dockerfile is built on, with ARG defaults filled in."""
    for path in _dockerfiles(tree):
        defaults: dict[str, str] = {}
        for number, line in _lines(tree, path):
            if match := _ARG.match(line):
                defaults[match[1]] = _unquoted(match[2])
            elif match := _FROM.match(line):
                name, _, tag = _filled(match[1], defaults).rpartition("/")[2].partition(":")
                if name == image and tag:
                    pin = _pin(path, number, f"FROM {image}", _without_suffix(tag), "image")
                    yield pin if pin.kind == "version" else replace(pin, kind="tag")


def _ascend_mentions(tree: SourceTree) -> Iterator[Pin]:
    """The vllm-ascend that documentation and CI scripts tell people to use."""
    paths = [path for folder in ("README.md", "docs", ".buildkite") for path in tree.list(folder)]
    for path in sorted(p for p in paths if p.endswith((".md", ".rst", ".sh", ".yml", ".yaml"))):
        for number, line in _lines(tree, path):
            for tag in _ASCEND_TEXT.findall(line):
                value = _without_suffix(tag.rstrip(".-/"))
                if kind_of(value) != "branch" or "/" in value or value == "main":
                    yield _pin(path, number, "vllm-ascend", value, "docs")


def _pin(file: str, line: int, name: str, value: str, role: str) -> Pin:
    return Pin(file, line, name, value, role, kind_of(value))


def _lines(tree: SourceTree, path: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of a file; none when it is missing or no text."""
    with contextlib.suppress(UpgradeError):
        yield from enumerate(tree.read(path).splitlines(), 1)


def _unquoted(text: str) -> str:
    return text.split(" #")[0].strip().strip("\"'")


def _filled(text: str, defaults: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda match: defaults.get(match[1], ""), text)


def _without_suffix(tag: str) -> str:
    """An image tag without the device, system and Python it was built for ("v0.18.0-a3" -> "v0.18.0")."""
    return _IMAGE_SUFFIX.sub("", tag)


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
