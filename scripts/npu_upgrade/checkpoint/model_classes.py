"""Classes of a source tree by their syntax: what an attribute of a model class is, its bases followed.

vLLM asks a model class what it can do (``is_hybrid``, ``supports_multimodal``); the answer stands in class
bodies, often of a protocol it inherits.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from npu_upgrade.sources.tree import SourceTree

_MOST_BASES = 60


@dataclass(frozen=True)
class ModelClass:
    """A class and the module it stands in (``vllm.model_executor.models.qwen3``)."""

    module: str
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name


class ClassReader:
    """Finds classes in one or several trees; a tree's module is the first that has the file.

    ``models``: architecture -> (module, class) of a registry; ``text_architecture``: what the configuration
    at hand names for the text model inside of a multimodal one. Both may be left empty.
    """

    def __init__(self, *trees: SourceTree) -> None:
        self.trees = trees
        self.models: dict[str, tuple[str, str]] = {}
        self.text_architecture = ""
        self.modules: dict[str, ast.Module | None] = {}

    def module(self, name: str) -> ast.Module | None:
        """The parsed module; None where no tree has it or it does not parse."""
        if name not in self.modules:
            self.modules[name] = self._parse(name)
        return self.modules[name]

    def path(self, name: str) -> str:
        """The file of a module in the trees, empty when there is none."""
        stem = name.replace(".", "/")
        places = (f"{stem}.py", f"{stem}/__init__.py")
        return next((path for path in places for tree in self.trees if tree.exists(path)), "")

    def find(self, module: str, name: str, depth: int = 0) -> ModelClass | None:
        """The class ``name`` of ``module``, through imports."""
        parsed = self.module(module)
        if parsed is None or depth > 6:
            return None
        for node in statements(parsed.body):
            if isinstance(node, ast.ClassDef) and node.name == name:
                return ModelClass(module, node)
        origin = imported(parsed, module, self.path(module).endswith("__init__.py")).get(name)
        return self.find(*origin, depth + 1) if origin else None

    def registered(self, architecture: str) -> ModelClass | None:
        """The class a registry has for an architecture."""
        module, name = self.models.get(architecture, ("", ""))
        return self.find(module, name) if module else None

    def mro(self, one: ModelClass) -> Iterator[ModelClass]:
        """The class and all its bases the trees have, each before its bases, depth first."""
        todo, seen = [one], set()
        while todo and len(seen) < _MOST_BASES:
            current = todo.pop(0)
            key = (current.module, current.name)
            if key in seen:
                continue
            seen.add(key)
            yield current
            bases = [self._base(current, base) for base in current.node.bases]
            todo = [base for base in bases if base] + todo

    def attribute(self, one: ModelClass, name: str, default: Any = None) -> Any:
        """The literal a class attribute is set to, ``default`` when no class body sets it."""
        for owner in self.mro(one):
            value = own_attribute(owner.node, name)
            if value is not None:
                try:
                    return ast.literal_eval(value)
                except ValueError:
                    return default
        return default

    def expression(self, one: ModelClass, name: str) -> tuple[ModelClass, ast.expr] | None:
        """The expression a class attribute is set to, and the class that sets it."""
        for owner in self.mro(one):
            value = own_attribute(owner.node, name)
            if value is not None:
                return owner, value
        return None

    def methods(self, one: ModelClass, name: str) -> Iterator[tuple[ModelClass, ast.FunctionDef]]:
        """The definitions of a method along the bases, the one that runs first."""
        for owner in self.mro(one):
            for node in owner.node.body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    yield owner, node

    def _base(self, one: ModelClass, node: ast.expr) -> ModelClass | None:
        node = node.value if isinstance(node, ast.Subscript) else node
        name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
        return self.find(one.module, name) if name else None

    def _parse(self, name: str) -> ast.Module | None:
        path = self.path(name)
        for tree in self.trees:
            if path and tree.exists(path):
                try:
                    return ast.parse(tree.read(path))
                except SyntaxError:
                    return None
        return None


def own_attribute(node: ast.ClassDef, name: str) -> ast.expr | None:
    """The value a class body itself gives ``name``."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                return value
            case ast.Assign(targets=targets, value=value):
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    return value
    return None


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, those under ``if`` and ``try`` too."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from statements(node.body)
            yield from statements(node.orelse)


def imported(parsed: ast.Module, module: str, is_package: bool) -> dict[str, tuple[str, str]]:
    """Names a module imports from others: name -> (module, name there)."""
    return dict(_imports(parsed, module, is_package))


@functools.lru_cache(maxsize=512)
def _imports(parsed: ast.Module, module: str, is_package: bool) -> tuple[tuple[str, tuple[str, str]], ...]:
    found = []
    parts = module.split(".") if is_package else module.split(".")[:-1]
    for node in statements(parsed.body):
        if isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found += [(alias.asname or alias.name, (origin, alias.name)) for alias in node.names]
    return tuple(found)
