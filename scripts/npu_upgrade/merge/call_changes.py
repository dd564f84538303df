"""Upstream functions and classes that omni calls, and whose signature changed."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from npu_upgrade.code.definitions import Definition, find_definition, functions
from npu_upgrade.code.names import Import
from npu_upgrade.code.signatures import Function, misfits, signature, signature_change
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.merge.worker_files import WorkerFile
from npu_upgrade.sources.tree import SourceTree

Users = list[tuple[WorkerFile, Import]]


def call_items(files: Sequence[WorkerFile], base: SourceTree, target: SourceTree) -> list[Item]:
    """One item for each imported function or class that is called and has another signature now."""
    users: dict[str, Users] = {}
    for file in files:
        for item, _ in file.imports:
            if item.name and item.module.startswith("vllm_ascend."):
                users.setdefault(f"{item.module}.{item.name}", []).append((file, item))
    found = (_item(name, entries, base, target) for name, entries in users.items())
    return [item for item in found if item]


def _item(name: str, users: Users, base: SourceTree, target: SourceTree) -> Item | None:
    module, _, short = name.rpartition(".")
    before, after = (find_definition(tree, module, short) for tree in (base, target))
    old, new = _callable(before), _callable(after)
    if before is None or after is None or not old or not new or signature(old) == signature(new):
        return None
    places: list[str] = []
    wrong: list[str] = []
    blocking = False
    for file, imported in {(file.path, item.bound): (file, item) for file, item in users}.values():
        calls = _calls_of(file, imported.bound)
        places += dict.fromkeys(f"called in {file.name}: {where}" for where, _ in calls)
        reasons = misfits([call for _, call in calls], old, new, isinstance(after.node, ast.ClassDef))
        wrong += [f"{file.name}: {reason}" for reason in reasons]
        # The calls in copied methods of a runner file are brought up to date by the merge.
        blocking |= bool(reasons) and not file.is_runner
    if not places:
        return None
    title = f"the signature of {name} changed; {'a call does not fit it' if wrong else 'all calls fit it'}"
    key = item_id("signature-changed", name, signature(old), signature(new), *wrong)
    paths = {file.path for file, _ in users}
    path = paths.pop() if len(paths) == 1 else "vllm_omni/platforms/npu/worker"
    lines = [signature_change(old, new), *places, *wrong]
    return Item(key, "signature-changed", title, "\n".join(lines), path, blocking)


def _callable(definition: Definition | None) -> Function | None:
    """What a call of the definition gives its arguments to."""
    node = definition.node if definition else None
    return functions(node).get("__init__") if isinstance(node, ast.ClassDef) else node


def _calls_of(file: WorkerFile, name: str) -> list[tuple[str, ast.Call]]:
    """The calls of a name, with the method or function each stands in."""
    found = []
    for node in file.module.tree.body:
        owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            where = owner + getattr(part, "name", "(outside functions)")
            calls = (call for call in ast.walk(part) if isinstance(call, ast.Call))
            found += [(where, call) for call in calls if ast.unparse(call.func) == name]
    return found
