"""What a source is called on a command line: ``pypi:NAME==VERSION``, ``git:PATH@REF`` or ``dir:PATH``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NoReturn

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from npu_upgrade.ground.errors import BadInput

EXAMPLES = "pypi:vllm-ascend==0.22.1rc1, git:/path/to/clone@v0.22.0, dir:/path/to/folder"
_RANGE = re.compile(r"[<>~!*,;\[\]]|===")


@dataclass(frozen=True)
class Spec:
    """One parsed source.

    ``pypi``: ``project`` (normalized) and ``version`` (normalized; None when left open).
    ``git``: ``path`` and ``ref``. ``dir``: ``path``. Fields of the other kinds are empty.
    """

    kind: Literal["pypi", "git", "dir"]
    project: str = ""
    version: str | None = None
    path: str = ""
    ref: str = ""

    def __str__(self) -> str:
        if self.kind == "pypi":
            return f"pypi:{self.project}=={self.version}" if self.version else f"pypi:{self.project}"
        return f"git:{self.path}@{self.ref}" if self.kind == "git" else f"dir:{self.path}"


def parse_spec(text: str, *, allow_unversioned: bool = False) -> Spec:
    """Parse one source spec; ``allow_unversioned`` also takes ``pypi:NAME`` (version None).

    Raises :class:`BadInput` with an example for anything else.
    """
    kind, colon, rest = text.strip().partition(":")
    rest = rest.strip()
    if not colon or kind not in ("pypi", "git", "dir"):
        _refuse(text, "it names no source kind", "one of pypi:, git: or dir: in front")
    if not rest or any(ord(char) < 32 for char in rest):
        _refuse(text, f"nothing usable stands after {kind}:", "a name or a path")
    if kind == "pypi":
        return _parse_pypi(text, rest, allow_unversioned)
    if kind == "git":
        return _parse_git(text, rest)
    if "://" in rest:
        _refuse(text, "a URL is not a folder", "the path of a folder on this machine")
    return Spec("dir", path=rest)


def _parse_pypi(text: str, rest: str, allow_unversioned: bool) -> Spec:
    if _RANGE.search(rest):
        _refuse(text, "a range, extra or marker is not one release", "exactly one version after ==")
    name, pinned, version = (part.strip() for part in rest.partition("=="))
    try:
        project = canonicalize_name(name, validate=True)
    except InvalidName:
        _refuse(text, f"{name!r} is no package name", "letters, digits, '-', '_' and '.'")
    if not pinned and allow_unversioned:
        return Spec("pypi", project=project)
    if not version:
        _refuse(text, "the version is missing", f"pypi:{project}==VERSION")
    try:
        return Spec("pypi", project=project, version=str(Version(version)))
    except InvalidVersion:
        _refuse(text, f"{version!r} is no version", "a version such as 0.22.1rc1")


def _parse_git(text: str, rest: str) -> Spec:
    if "://" in rest or re.match(r"[\w.-]+@[\w.-]+:", rest):
        _refuse(
            text, "a remote is not read directly", "the path of a clone on this machine (git clone it first)"
        )
    path, at, ref = rest.rpartition("@")
    if not at or not path or not ref:
        _refuse(text, "the ref is missing", "git:PATH@REF, where REF is a tag, a branch or a commit SHA")
    if ref.startswith(("-", "{")) or re.search(r"[\s:?*\[\\]|\.\.", ref):
        _refuse(text, f"{ref!r} is no ref", "a tag, a branch or a commit SHA")
    return Spec("git", path=path, ref=ref)


def _refuse(text: str, why: str, expected: str) -> NoReturn:
    raise BadInput(f"not a source: {text!r}: {why}", expected=expected, try_=f"for example {EXAMPLES}")
