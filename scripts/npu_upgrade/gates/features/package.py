"""The Python files of one package, wherever they are: a release, a checkout, an installation.

Nothing is imported or executed.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.tree import SourceTree, open_source


@dataclass(frozen=True, order=True)
class Place:
    """A line of a source file; the path is relative to the top of its tree."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, eq=False)
class Package:
    """``name`` is the importable name, such as ``vllm_ascend``."""

    name: str
    tree: SourceTree

    @property
    def label(self) -> str:
        """The project and its version, for people."""
        version = self.tree.version or (self.tree.sha or "of unknown version")[:18]
        return f"{self.name.replace('_', '-')} {version}"

    def holding(self, *words: str, below: str = "") -> Iterator[tuple[str, str]]:
        """Path and text of the files in which one of ``words`` stands, whatever its case."""
        wanted = [word.lower() for word in words]
        for path, text in self._texts.items():
            if path.startswith(f"{self.name}/{below}") and any(word in self._lower[path] for word in wanted):
                yield path, text

    def parsed(self, path: str) -> ast.Module | None:
        """The syntax tree of a file; None when it is no Python of this interpreter."""
        return _parsed(self._texts[path])

    @functools.cached_property
    def _texts(self) -> dict[str, str]:
        paths = [path for path in self.tree.list(self.name) if path.endswith(".py")]
        return {
            path: data.decode("utf-8", errors="replace") for path, data in self.tree.contents(paths).items()
        }

    @functools.cached_property
    def _lower(self) -> dict[str, str]:
        return {path: text.lower() for path, text in self._texts.items()}


def given(spec: str, name: str) -> Package:
    """The package ``name`` of a source; raises :class:`BadInput` when it has none."""
    tree = open_source(spec)
    if not tree.exists(f"{name}/__init__.py"):
        raise BadInput(
            f"{spec} holds no package {name}",
            expected=f"a source with {name}/__init__.py at its top",
            try_=f"pypi:{name.replace('_', '-')}==VERSION, or dir:PATH of a checkout",
        )
    return Package(name, tree)


def installed_package(folder: Path, name: str) -> Package:
    """The package ``name`` whose files are in ``folder``."""
    return Package(name, open_source(f"dir:{folder.parent}"))


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None
