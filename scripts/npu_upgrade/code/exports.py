"""Which modules a source tree has, and which names one can import from them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import Import, all_imports, imports_of, names_of
from npu_upgrade.sources.tree import SourceTree


class Exports:
    """The importable names of one package of a tree, read on demand.

    ``texts`` replaces files of the tree; a file may have several texts (the two answers
    to a conflict), and a name of any of them counts.
    """

    def __init__(
        self, tree: SourceTree, package: str, texts: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.tree, self.package, self.texts = tree, package, dict(texts or {})
        self._read: dict[str, list[str]] = {}

    @cached_property
    def paths(self) -> list[str]:
        """The Python files of the package."""
        return [path for path in self.tree.list(self.package) if path.endswith(".py")]

    def judges(self, module: str) -> bool:
        """Whether ``module`` belongs to the package, so that its absence means something."""
        return module.partition(".")[0] == self.package

    def has_module(self, module: str) -> bool:
        """Whether the tree has this module or package (one without ``__init__.py`` counts)."""
        folder = module.replace(".", "/")
        return self._file(module) is not None or any(path.startswith(folder + "/") for path in self.paths)

    def has(self, item: Import) -> bool:
        """Whether the import works, as far as the sources tell; True when they cannot tell."""
        if item.name is None or item.name == "*":
            return self.has_module(item.module)
        if self.has_module(item.module) and self._has_name(item.module, item.name, set()):
            return True
        # What the package imports from itself without having it is made when it is built.
        return any(path not in self.texts for path in self.importers(item.module, item.name))

    def definitions(self, name: str) -> list[str]:
        """The modules of the package that define ``name`` at their top level."""
        start = re.compile(rf"^[ \t]*(?:(?:async\s+)?def\s+|class\s+)?{name}\b", re.MULTILINE)
        return [
            module_of(path)
            for path, text in self._texts_with(name)
            if start.search(text) and name in importable(text)
        ]

    def importers(self, module: str, name: str) -> list[str]:
        """The files of the package that import ``name`` from ``module``."""
        return [path for path, text in self._texts_with(name) if _imports(text, path, module, name)]

    def imports_binding(self, name: str) -> list[Import]:
        """How the files of the package import ``name``, one import for each file that does."""
        found = ((path, _import_of(text, name)) for path, text in self._texts_with(name))
        return [absolute(item, path) for path, item in found if item]

    def _texts_with(self, word: str) -> Iterator[tuple[str, str]]:
        for path in self.paths:
            yield from ((path, text) for text in self._texts(path) if word in text)

    def _has_name(self, module: str, name: str, seen: set[str]) -> bool:
        if self.has_module(f"{module}.{name}"):
            return True
        path = self._file(module)
        if path is None or module in seen:
            return False
        return any(self._text_has(text, path, name, {*seen, module}) for text in self._texts(path))

    def _text_has(self, text: str, path: str, name: str, seen: set[str]) -> bool:
        try:
            bound = names_of(text).bound
            items = [absolute(item, path) for item in all_imports(text)]
        except SyntaxError:
            return True
        if name in bound or "__getattr__" in bound:
            return True
        stars = [item.module for item in items if item.name == "*"]
        return any(not self.judges(star) or self._has_name(star, name, seen) for star in stars)

    def _file(self, module: str) -> str | None:
        folder = module.replace(".", "/")
        files = (f"{folder}.py", f"{folder}/__init__.py")
        return next((path for path in files if path in self.texts or self.tree.exists(path)), None)

    def _texts(self, path: str) -> list[str]:
        if path not in self._read:
            self._read[path] = list(self.texts[path]) if path in self.texts else [self.tree.read(path)]
        return self._read[path]


def absolute(item: Import, path: str) -> Import:
    """The import with a relative module written out, as seen from the file ``path``."""
    level = len(item.module) - len(item.module.lstrip("."))
    if not level:
        return item
    parts = path.split("/")[:-level]
    rest = item.module[level:]
    return Import(".".join([*parts, rest] if rest else parts), item.name, item.asname, item.typing_only)


def importable(source: str) -> set[str]:
    """Names that a module defines for others: not its imports, and nothing made for one module."""
    try:
        module = parse_module(source)
    except SyntaxError:
        return set()
    own = {
        target.id
        for node in module.tree.body
        if isinstance(node, ast.Assign) and "__name__" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return {name for name in module.top_level_names() - own if not name.startswith("__")}


def type_aliases(source: str) -> set[str]:
    """Names that a module defines as ``NAME: TypeAlias = ...``."""
    return {
        node.target.id
        for node in parse_module(source).tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and ast.unparse(node.annotation).rpartition(".")[2] == "TypeAlias"
    }


def _import_of(text: str, name: str) -> Import | None:
    try:
        return imports_of(text).get(name)
    except SyntaxError:
        return None


def _imports(text: str, path: str, module: str, name: str) -> bool:
    try:
        nodes = [node for node in ast.walk(parse_module(text).tree) if isinstance(node, ast.ImportFrom)]
    except SyntaxError:
        return False
    for node in nodes:
        source = absolute(Import("." * node.level + (node.module or ""), None), path).module
        if source == module and any(alias.name == name for alias in node.names):
            return True
    return False


def module_of(path: str) -> str:
    """The dotted name of the module in ``path``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
