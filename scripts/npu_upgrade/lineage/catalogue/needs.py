"""What a block uses of omni: modules, helpers and attributes that upstream does not have."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from npu_upgrade.code.definitions import absolute, every_import, functions, read_module
from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.code.names import Import, imports_in
from npu_upgrade.code.walk import dotted
from npu_upgrade.lineage.catalogue.syntax import nodes
from npu_upgrade.sources.tree import SourceTree

_ATTRIBUTE = re.compile(r"\.\s*([A-Za-z_]\w*)|\bdef\s+(\w+)|^\s*([A-Za-z_]\w*)\s*[:=]", re.MULTILINE)
_ASKS = {"getattr", "hasattr", "setattr"}


@dataclass
class OmniNames:
    """Which class of vllm-omni's workers has which name; ``known`` are the names upstream has too."""

    known: frozenset[str]
    homes: dict[str, list[str]] = field(default_factory=dict)

    def home(self, name: str) -> str | None:
        """The class or classes of omni that define an attribute; None for upstream's."""
        if name in self.known:
            return None
        owners = self.homes.get(name)
        return ", ".join(owners[:2]) + (" and others" if len(owners) > 2 else "") if owners else ""


def omni_names(omni: SourceTree, folders: Iterable[str], upstream: Iterable[str]) -> OmniNames:
    """The names of all classes below ``folders``; ``upstream`` are the texts whose names are not omni's."""
    known = frozenset(a or b or c for text in upstream for a, b, c in _ATTRIBUTE.findall(text))
    names = OmniNames(known)
    for folder in folders:
        for path in omni.list(folder):
            module = read_module(omni, path) if path.endswith(".py") else None
            for node in module.tree.body if module else []:
                if isinstance(node, ast.ClassDef):
                    _learn(names, node)
    return names


def needs(keys: Sequence[str], module: Module, path: str, names: OmniNames) -> tuple[str, ...]:
    """What statements of a file use of omni, sorted: modules, helpers and attributes, model attributes."""
    found: dict[str, None] = {}
    items, own = _omni_imports(module, path), _definitions(module)
    for node in nodes(keys):
        if isinstance(node, ast.Name) and node.id in items:
            found[_imported(items[node.id])] = None
        elif isinstance(node, ast.Name) and node.id in own:
            found[f"`{node.id}` (same file)"] = None
        elif isinstance(node, ast.Attribute):
            _note_attribute(found, node, names)
        elif isinstance(node, ast.Call):
            _note_question(found, node, names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {f"`{item}`": None for item in _imported_here(node, path)}
    return tuple(sorted(found))


def _note_attribute(found: dict[str, None], node: ast.Attribute, names: OmniNames) -> None:
    owner = dotted(node.value)
    if owner == "self" and (home := names.home(node.attr)) is not None:
        found[f"`self.{node.attr}`" + (f" ({home})" if home else "")] = None
    elif owner in ("self.model", "model") and node.attr not in names.known:
        found[f"`model.{node.attr}`"] = None


def _note_question(found: dict[str, None], node: ast.Call, names: OmniNames) -> None:
    """``getattr(self, "x")`` and its like use x as ``self.x`` does."""
    if dotted(node.func) not in _ASKS or len(node.args) < 2:
        return
    name, owner = node.args[1], dotted(node.args[0])
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return
    if owner == "self" and (home := names.home(name.value)) is not None:
        found[f"`self.{name.value}`" + (f" ({home})" if home else "")] = None
    elif owner in ("self.model", "model") and name.value not in names.known:
        found[f"`model.{name.value}`"] = None


def _learn(names: OmniNames, node: ast.ClassDef) -> None:
    own = set(functions(node))
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and dotted(inner.value) == "self"
        ):
            own.add(inner.attr)
    for name in own:
        owners = names.homes.setdefault(name, [])
        if node.name not in owners:
            owners.append(node.name)


@functools.lru_cache(maxsize=256)
def _file_imports(source: str, path: str) -> tuple[Import, ...]:
    """All imports of a file, inside functions too, absolute."""
    return tuple(absolute(item, path) for item, _ in every_import(parse_module(source).tree))


def _omni_imports(module: Module, path: str) -> dict[str, Import]:
    items = _file_imports(module.source, path)
    return {item.bound: item for item in items if _is_own(item, path)}


def _is_own(item: Import, path: str) -> bool:
    return item.module.partition(".")[0] == path.partition("/")[0]


def _definitions(module: Module) -> set[str]:
    """The functions and classes at the top level of a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in module.tree.body if isinstance(node, kinds)}


def _imported_here(node: ast.Import | ast.ImportFrom, path: str) -> list[str]:
    items = (absolute(item, path) for item in imports_in(node))
    return [_plain(item) for item in items if _is_own(item, path)]


def _imported(item: Import) -> str:
    return f"`{_plain(item)}`"


def _plain(item: Import) -> str:
    return f"{item.module}.{item.name}" if item.name else item.module
