"""What a project is: its package, the packages it builds on, and which of its files are for a device.

The table is all that this program knows of a project by name. What is not in it, and what differs
from it, is derived from the trees.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import KeysView, Sequence
from dataclasses import dataclass, replace

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.tree import SourceTree

_WORDS = re.compile(r"[a-z0-9]+")
TELLING = 0.5
"""A word that fits less than this does not tell which files are for the device."""

_ASIDE = {"tests", "test", "docs", "examples", "benchmarks", "tools", "scripts"}


@dataclass(frozen=True, slots=True)
class Project:
    """A downstream project.

    ``upstreams`` are the packages it builds on, the nearest first. ``device`` is the word in the
    paths of the files that build on the nearest one; empty when all files do. With ``others``,
    the files in question are those without that word.
    """

    package: str
    upstreams: tuple[str, ...]
    device: str = ""
    others: bool = False

    @property
    def name(self) -> str:
        """The name of the distribution."""
        return distribution(self.package)

    def holds(self, path: str) -> bool:
        """Whether a file belongs to the side in question."""
        return path.endswith(".py") and (not self.device or self.is_device(path) != self.others)

    def is_device(self, path: str) -> bool:
        """Whether a file is made for the device."""
        return bool(self.device) and self.device in words(path)


KNOWN = (Project("vllm_omni", ("vllm_ascend", "vllm"), "npu"), Project("vllm_ascend", ("vllm",)))


def project_of(tree: SourceTree, upstreams: Sequence[str] = ()) -> Project:
    """The project of a tree; ``upstreams`` are the packages to compare it with, the nearest first.

    Raises :class:`BadInput` when the tree holds no package.
    """
    package = package_of(tree)
    known = next((project for project in KNOWN if project.package == package), None)
    if known and tuple(upstreams) == known.upstreams[: len(upstreams)]:
        return known
    if known:
        return replace(known, upstreams=tuple(upstreams), others=upstreams[0] != known.upstreams[0])
    return Project(package, tuple(upstreams), _device(tree, package, upstreams))


def package_of(tree: SourceTree) -> str:
    """The package at the top of a tree: a known one, else the one with the most files."""
    for project in KNOWN:
        if tree.exists(f"{project.package}/__init__.py"):
            return project.package
    sizes = Counter(path.partition("/")[0] for path in tree.list() if path.endswith(".py") and "/" in path)
    found = [name for name, _ in sizes.most_common() if name not in _ASIDE and name.isidentifier()]
    packages = [name for name in found if tree.exists(f"{name}/__init__.py")] or found
    if not packages:
        raise BadInput(
            f"{tree.spec} holds no Python package",
            expected="the root of a project's checkout or release, with its package folder in it",
            try_="pypi:NAME==VERSION, git:PATH@REF or dir:PATH",
        )
    return packages[0]


def is_aside(path: str) -> bool:
    """Whether a file lies beside the package: tests, tools, documents."""
    return path.partition("/")[0] in _ASIDE


def distribution(package: str) -> str:
    """The name under which a package is published."""
    return package.replace("_", "-")


def words(path: str) -> KeysView[str]:
    """The words of a path, or of a name, in their order."""
    return dict.fromkeys(_WORDS.findall(path.lower())).keys()


def _device(tree: SourceTree, package: str, upstreams: Sequence[str]) -> str:
    """The word in a path that tells best which files build on the nearest of several upstreams."""
    if len(upstreams) < 2:
        return ""
    wanted = re.compile(rf"^\s*(?:from|import)\s+{re.escape(upstreams[0])}\b", re.MULTILINE)
    texts = {path: tree.read(path) for path in tree.list(package) if path.endswith(".py")}
    near = {path for path, text in texts.items() if wanted.search(text)}
    with_word: dict[str, set[str]] = {}
    for path in texts:
        for word in words(path.removesuffix(".py")) - {package}:
            with_word.setdefault(word, set()).add(path)
    if not near:
        return ""

    def fit(word: str) -> tuple[float, int]:
        paths = with_word[word]
        named = re.compile(rf"^class \w*{word}", re.MULTILINE | re.IGNORECASE)
        count = sum(len(named.findall(texts[path])) for path in paths)
        return 2 * len(paths & near) / (len(paths) + len(near)), count

    best = max(sorted(with_word), key=fit)
    return best if fit(best)[0] >= TELLING else ""
