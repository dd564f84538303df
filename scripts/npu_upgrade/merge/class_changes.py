"""An upstream class that omni classes derive from: what changed in it, and what that touches."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from npu_upgrade.code.definitions import find_definition, functions
from npu_upgrade.code.names import Import
from npu_upgrade.code.signatures import is_bound, misfits, plain_text, signature
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.merge.override_changes import (
    ClassChange,
    calls_on_self,
    calls_overridden,
    misfits_of_override,
)
from npu_upgrade.merge.worker_files import Family
from npu_upgrade.sources.tree import SourceTree

_MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class _Touched:
    """An upstream method that differs and that omni overrides or calls."""

    text: str
    blocking: bool = False


def class_items(family: Family, base: SourceTree, target: SourceTree) -> list[Item]:
    """One item for an upstream class that omni derives from, when it changed."""
    item = family.upstream
    before, after = (_class(tree, item) for tree in (base, target))
    if before is None or after is None or plain_text(before) == plain_text(after):
        return []
    change = ClassChange(functions(before), functions(after))
    touched = [entry for name in change.names if (entry := _touched(change, family, name))]
    sizes = {"added": change.added, "removed": change.removed, "changed": change.changed}
    lines = [entry.text for entry in touched] + _bases(before, after)
    lines += [f"{word}: {', '.join(names)}" for word, names in sizes.items() if names]
    counts = ", ".join(f"{len(names)} {word}" for word, names in sizes.items())
    concern = f"omni overrides or calls {len(touched) or 'none'} of them"
    title = f"{family.path}: {item.name}, a base of {family.classes[0].name}: methods {counts}; {concern}"
    key = item_id("upstream-changed", family.path, item.statement(), plain_text(before), plain_text(after))
    blocking = any(entry.blocking for entry in touched)
    return [Item(key, "upstream-changed", title, "\n".join(lines), family.path, blocking)]


def _class(tree: SourceTree, item: Import) -> ast.ClassDef | None:
    found = find_definition(tree, item.module, item.name or "")
    return found.node if found and isinstance(found.node, ast.ClassDef) else None


def _bases(before: ast.ClassDef, after: ast.ClassDef) -> list[str]:
    old, new = (", ".join(map(ast.unparse, node.bases)) for node in (before, after))
    return [f"bases: {old} -> {new}"] if old != new else []


def _touched(change: ClassChange, family: Family, name: str) -> _Touched | None:
    """What omni does with an upstream method that was added, removed or changed; None for nothing."""
    overrides = [(owner, node) for owner, node in family.methods() if node.name == name]
    calls = [(where, call) for where, call in _self_calls(family) if _callee(call) == name]
    users = [f"overridden by {_listed(overrides)}"] if overrides else []
    users += [f"called by {_listed(calls)}"] if calls else []
    if not users or not change.differs(name):
        return None
    head = f"{name} ({', '.join(users)}): "
    if name in change.added:
        return _Touched(f"{head}new upstream, {signature(change.after[name])}")
    if name in change.removed:
        return _Touched(f"{head}removed upstream; does a parent have it?", blocking=not overrides)
    before, after = change.before[name], change.after[name]
    wrong = [
        f"{owner}.{name}: {reason}"
        for owner, node in overrides
        for reason in misfits_of_override(before, after, node)
    ]
    # A call on self reaches the override where there is one.
    wrong += [] if overrides else misfits([call for _, call in calls], before, after, is_bound(after))
    lines = [head + change.text(name), *wrong]
    if not all(calls_overridden(node) for _, node in overrides):
        lines += change.lines(name)[:_MOST_LINES]
    return _Touched("\n    ".join(lines), blocking=bool(wrong))


def _self_calls(family: Family) -> list[tuple[str, ast.Call]]:
    """The calls that the omni classes make on themselves, with the method each stands in."""
    return [
        (f"{owner}.{node.name}", call)
        for owner, node in family.methods()
        for call in calls_on_self(node)
        if _callee(call) != node.name
    ]


def _callee(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _listed(pairs: Sequence[tuple[str, ast.AST]]) -> str:
    return ", ".join(dict.fromkeys(name for name, _ in pairs))
