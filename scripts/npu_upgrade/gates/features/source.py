"""The Python files of one package, wherever they are, and what stands in them: strings, options, log calls.

Nothing is imported or executed.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.checkpoint.registry import ModelSources, string_list
from npu_upgrade.code.definitions import module_of
from npu_upgrade.code.walk import walk
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

    def nodes(self, *words: str, below: str = "") -> Iterator[tuple[str, ast.AST]]:
        """Path and node, of all syntax in the files in which one of ``words`` stands."""
        for path, _text in self.holding(*words, below=below):
            if tree := self.parsed(path):
                yield from ((path, node) for node in walk(tree))

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


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def strings(package: Package, word: str, pattern: str, below: str = "") -> Iterator[tuple[str, Place]]:
    """Constants that match ``pattern`` as a whole, in files that hold ``word``."""
    matches = re.compile(pattern).fullmatch
    for path, node in package.nodes(word, below=below):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and matches(node.value):
            yield node.value, Place(path, node.lineno)


def listed(package: Package, name: str, below: str = "") -> tuple[tuple[str, ...], Place | None]:
    """The strings of a list or ``Literal`` called ``name``."""
    models = ModelSources(package.tree)
    for path, _text in package.holding(name, below=below):
        texts, line = string_list(models.module(module_of(path)), name)
        if texts:
            return tuple(texts), Place(path, line)
    return (), None


_BELOW = ("engine/", "entrypoints/")
_FIELDS = "FrontendArgs"  # its fields are options without an add_argument of their own


@functools.lru_cache(maxsize=8)
def flags(vllm: Package) -> dict[str, Place]:
    """Option of vLLM's command line -> where it is defined."""
    found: dict[str, Place] = {}
    for below in _BELOW:
        for path, node in vllm.nodes("add_argument", _FIELDS, below=below):
            for name, line in _options(node):
                found.setdefault(name, Place(path, line))
    return found


def _options(node: ast.AST) -> list[tuple[str, int]]:
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument"):
        texts = [one for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return [(str(one.value), one.lineno) for one in texts if str(one.value).startswith("--")]
    if isinstance(node, ast.ClassDef) and node.name.endswith(_FIELDS):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        return [
            ("--" + one.target.id.replace("_", "-"), one.lineno)
            for one in fields
            if isinstance(one.target, ast.Name)
        ]
    return []


_LEVELS = ("debug", "info", "warning", "error")
_PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]|%%")
_HOLE = "\0"
_SHORTEST = 12  # characters of fixed text; less would be found anywhere


@dataclass(frozen=True)
class LogCall:
    """One call of a logger; ``text`` has a NUL where a value goes."""

    place: Place
    level: str
    text: str

    @property
    def pattern(self) -> str:
        """A regular expression for the line it writes; further lines of the message are left out."""
        return ".*".join(re.escape(part) for part in self.text.strip().split("\n")[0].split(_HOLE))

    @property
    def shown(self) -> str:
        return self.text.replace(_HOLE, "…").strip().split("\n")[0]

    @property
    def is_telling(self) -> bool:
        """Whether enough of the line is fixed to be found by it."""
        return len(self.text.strip().split("\n")[0].replace(_HOLE, "")) >= _SHORTEST


def log_calls(package: Package, *words: str, below: str = "") -> Iterator[LogCall]:
    """The log calls of the files that hold one of ``words``."""
    for path, node in package.nodes(*words, below=below):
        if (call := log_call(node, path)) and call.is_telling:
            yield call


def log_call(node: ast.AST, path: str) -> LogCall | None:
    """``logger.info("...", ...)`` and its kin, with a text that stands there."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    level = node.func.attr.removesuffix("_once")
    if level not in _LEVELS or not ast.unparse(node.func.value).lower().endswith(
        ("logger", "log", "logging")
    ):
        return None
    text = _template(node.args[0])
    if text is None:
        return None
    if len(node.args) > 1:
        text = _PLACEHOLDER.sub(lambda found: "%" if found.group() == "%%" else _HOLE, text)
    return LogCall(Place(path, node.lineno), level, text)


def _template(node: ast.expr) -> str | None:
    """The text of a constant, an f-string or a sum of them."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) or _HOLE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _template(node.left), _template(node.right)
        return (left or _HOLE) + (right or _HOLE) if left or right else None
    return None
