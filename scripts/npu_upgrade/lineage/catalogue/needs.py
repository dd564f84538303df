"""What a block uses of omni: modules, helpers and attributes that upstream does not have."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from npu_upgrade.code.definitions import absolute, every_import
from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.code.names import Import, imports_in
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import dotted, string
from npu_upgrade.lineage.catalogue.syntax import nodes
from npu_upgrade.program.program import Program

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


def omni_names(program: Program, folders: Iterable[str], upstream: Iterable[str]) -> OmniNames:
    """The names of all classes below ``folders``; ``upstream`` are the texts whose names are not omni's."""
    known = frozenset(a or b or c for text in upstream for a, b, c in _ATTRIBUTE.findall(text))
    names = OmniNames(known)
    every = (file for folder in folders for file in program.files(folder))
    for cls in (cls for file in every for cls in file.classes.values()):
        for name in {*cls.methods, *cls.assigned}:
            owners = names.homes.setdefault(name, [])
            if cls.name not in owners:
                owners.append(cls.name)
    return names


def needs(keys: Sequence[str], module: Module, path: str, names: OmniNames) -> tuple[str, ...]:
    """What statements of a file use of omni, sorted: modules, helpers and attributes, model attributes."""
    found: dict[str, None] = {}
    # all imports of the file, inside functions too
    imports = (absolute(item, path) for item, _ in every_import(parse_module(module.source).tree))
    items, own = {item.bound: item for item in imports if _is_own(item, path)}, _definitions(module)
    for node in nodes(keys):
        if isinstance(node, ast.Name) and node.id in items:
            found[_plain(items[node.id])] = None
        elif isinstance(node, ast.Name) and node.id in own:
            found[f"`{node.id}` (same file)"] = None
        elif isinstance(node, ast.Attribute):
            _note(found, dotted(node.value), node.attr, names)
        elif isinstance(node, ast.Call) and dotted(node.func) in _ASKS and len(node.args) > 1:
            if asked := string(node.args[1]):  # getattr(self, "x") uses x as self.x does
                _note(found, dotted(node.args[0]), asked, names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            every = (absolute(item, path) for item in imports_in(node))
            found |= {_plain(item): None for item in every if _is_own(item, path)}
    return tuple(sorted(found))


def _note(found: dict[str, None], owner: str, name: str, names: OmniNames) -> None:
    """Note that an attribute of the runner, or of its model, is used."""
    if owner == "self" and (home := names.home(name)) is not None:
        found[f"`self.{name}`" + (f" ({home})" if home else "")] = None
    elif owner in ("self.model", "model") and name not in names.known:
        found[f"`model.{name}`"] = None


@functools.lru_cache(maxsize=256)
def _is_own(item: Import, path: str) -> bool:
    return item.module.partition(".")[0] == path.partition("/")[0]


def _definitions(module: Module) -> set[str]:
    """The functions and classes at the top level of a file."""
    kinds = (Function, ast.ClassDef)
    return {node.name for node in module.tree.body if isinstance(node, kinds)}


def _plain(item: Import) -> str:
    return f"`{item.module}.{item.name}`" if item.name else f"`{item.module}`"
