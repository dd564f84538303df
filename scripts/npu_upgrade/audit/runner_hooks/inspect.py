"""What a source tree says about a hook: a method's parameters, or that a class has an attribute."""

from __future__ import annotations

import ast
import functools

from npu_upgrade.audit.runner_hooks.catalogue import Hook
from npu_upgrade.sources.tree import SourceTree

ABSENT, INHERITED, PRESENT = "absent", "inherited", "present"


class Sources:
    """One release, each file parsed once."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._classes = functools.cache(self._read_classes)

    def says(self, hook: Hook) -> str:
        """The parameters ``(a, b=…)`` of a method, ``present``, ``inherited`` or ``absent``."""
        owner = self._classes(hook.path).get(hook.owner)
        if owner is None:
            return ABSENT
        if hook.kind == "attribute":
            return PRESENT if hook.name in _attributes(owner) else ABSENT
        found = _method(owner, hook.name)
        if found is None:
            return INHERITED if hook.inherited else ABSENT
        return f"({', '.join(_parameters(found))})"

    def problem(self, hook: Hook) -> str:
        """Why the runners cannot rely on the hook in this release, or nothing."""
        said = self.says(hook)
        if said in (PRESENT, INHERITED):
            return ""
        if said == ABSENT:
            return f"{hook.path}: {hook.owner} has no {hook.name}"
        owner = self._classes(hook.path).get(hook.owner)
        found = _method(owner, hook.name) if owner else None
        names = _names(found.args) if found else []
        lacking = [name for name in hook.needs if name not in names]
        return f"{hook.path}: {hook.owner}.{hook.name}{said} lacks {', '.join(lacking)}" if lacking else ""

    def _read_classes(self, path: str) -> dict[str, ast.ClassDef]:
        """The classes of a file by name, of two the first; none when there is no such file."""
        if not self._tree.exists(path):
            return {}
        found: dict[str, ast.ClassDef] = {}
        for node in ast.walk(ast.parse(self._tree.read(path))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, node)
        return found


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    methods = (node for node in owner.body if isinstance(node, ast.FunctionDef))
    return next((node for node in methods if node.name == name), None)


def _attributes(owner: ast.ClassDef) -> set[str]:
    """Annotated fields, assigned class attributes, properties, and what methods assign to ``self``."""
    found = {node.name for node in owner.body if isinstance(node, ast.FunctionDef)}
    for node in owner.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


def _names(arguments: ast.arguments) -> list[str]:
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _parameters(method: ast.FunctionDef) -> list[str]:
    """Names without ``self`` and annotations; ``=…`` stands for a default."""
    given = method.args
    positional = [*given.posonlyargs, *given.args]
    without = len(positional) - len(given.defaults)
    shown = [one.arg + ("=…" if index >= without else "") for index, one in enumerate(positional)][1:]
    if given.vararg:
        shown.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        shown.append("*")
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        shown.append(one.arg + ("=…" if default else ""))
    return [*shown, f"**{given.kwarg.arg}"] if given.kwarg else shown
