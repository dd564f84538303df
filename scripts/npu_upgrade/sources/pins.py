"""The lines of a source tree that pin another project: Dockerfiles, commit files, CI, docs, requirements.

A wheel carries none of these files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from npu_upgrade.ground.errors import UpgradeError
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
