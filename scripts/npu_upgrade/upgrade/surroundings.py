"""What else of vllm-omni's NPU worker folder a new vllm-ascend touches, beyond the merged methods.

Imports that the target does not have, upstream classes and functions that changed below
their users, and methods that omni overrides. Everything is read from source; without a base
only the missing names can be told.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from npu_upgrade.pycode.exports import Exports, absolute, module_of
from npu_upgrade.pycode.module import Module
from npu_upgrade.pycode.names import Import
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.upgrade.definitions import (
    Definition,
    every_import,
    find_definition,
    functions,
    read_module,
)
from npu_upgrade.upgrade.items import Item, item_id
from npu_upgrade.upgrade.layout import NPU_WORKER, RUNNERS, Upstream, find_upstream, read_runner
from npu_upgrade.upgrade.lineage import Lineage
from npu_upgrade.upgrade.override_changes import ClassChange, calls_on_self, method_items, signature_lines
from npu_upgrade.upgrade.signatures import Function, is_bound, misfit, plain_text, signature

__all__ = ["method_items", "surrounding_items", "worker_items"]

_RUNNER_PATHS = {runner.path for runner in RUNNERS}


@dataclass(frozen=True)
class _File:
    path: str
    module: Module
    imports: list[tuple[Import, bool]]

    @property
    def is_runner(self) -> bool:
        return self.path in _RUNNER_PATHS


@dataclass
class _Family:
    """The omni classes that derive from one upstream class, with their methods."""

    imported: Import
    path: str
    classes: list[ast.ClassDef] = field(default_factory=list)

    def methods(self) -> Iterator[tuple[str, Function]]:
        for owner in self.classes:
            yield from ((owner.name, node) for node in functions(owner).values())


def surrounding_items(
    omni: SourceTree, base: SourceTree | None, target: SourceTree, upstream: Upstream, lineage: Lineage
) -> list[Item]:
    """The items of the worker folder, and of the methods that the runners override."""
    found = worker_items(omni, base, target)
    before, after = (read_module(tree, upstream.path) if tree else None for tree in (base, target))
    if before is None or after is None:
        return found
    for runner in RUNNERS:
        copied = {entry.name for entry in lineage.copied if entry.path == runner.path}
        module = read_runner(omni, runner.path)
        found += method_items(
            module, runner.class_name, before, after, upstream.class_name, copied, runner.path
        )
    return found


def worker_items(omni: SourceTree, base: SourceTree | None, target: SourceTree) -> list[Item]:
    """The items of the NPU worker files of ``omni``.

    Of the three runner files only imports from elsewhere than the upstream runner module
    count. Raises as :func:`npu_upgrade.upgrade.layout.find_upstream`.
    """
    upstream = find_upstream(omni)
    found: list[Item] = []
    files = []
    for path in omni.list(NPU_WORKER):
        if path.endswith(".py"):
            file = _read(omni, path, upstream)
            if file:
                files.append(file)
            else:
                found.append(Item(item_id("unreadable", path), "unreadable", f"{path} is not Python", "", path, True))
    exports = Exports(target, "vllm_ascend")
    for file in files:
        found += _missing(file, exports)
    if base is not None:
        for family in _families(files):
            found += _class_items(family, base, target)
        for file in files:
            found += _call_items(file, base, target)
    return found


def _read(omni: SourceTree, path: str, upstream: Upstream) -> _File | None:
    module = read_module(omni, path)
    if module is None:
        return None
    found = []
    for item, guarded in every_import(module.tree):
        item = absolute(item, path)
        if path not in _RUNNER_PATHS or item.module != upstream.module:
            found.append((item, guarded))
    return _File(path, module, found)


def _missing(file: _File, exports: Exports) -> list[Item]:
    """Imports of vllm_ascend that the target does not have."""
    found = {}
    for item, guarded in file.imports:
        if exports.judges(item.module) and not exports.has(item):
            text = item.statement()
            title = f"{file.path}: the target has no `{text}`"
            detail = _where(item, exports)
            if file.is_runner:
                detail += "; the merge changes imports of the runner files, see there first"
            key = item_id("missing-name", file.path, text)
            found[key] = Item(key, "missing-name", title, detail, file.path, not guarded and not file.is_runner)
    return list(found.values())


def _where(item: Import, exports: Exports) -> str:
    if item.name is None:
        return "the module is gone"
    places = exports.definitions(item.name)
    if len(places) == 1:
        return f"{item.name} is now in {places[0]}"
    gone = "" if exports.has_module(item.module) else f"{item.module} is gone; "
    return gone + (f"{item.name} is defined in {', '.join(places)}" if places else f"nothing defines {item.name}")


def _families(files: list[_File]) -> list[_Family]:
    """The omni classes outside the runner files by the upstream class they derive from."""
    families: list[_Family] = []
    for file in files:
        for node in [] if file.is_runner else file.module.tree.body:
            for base in node.bases if isinstance(node, ast.ClassDef) else []:
                for item in _bound(file, ast.unparse(base)):
                    if item.module.startswith("vllm_ascend."):
                        families.append(_Family(item, file.path, [node]))  # type: ignore[list-item]
    for family in families:
        _add_heirs(family, files)
    return families


def _add_heirs(family: _Family, files: list[_File]) -> None:
    places = {(module_of(family.path), family.classes[0].name)}
    size = 0
    while size < len(places):
        size = len(places)
        for file in files:
            for node in file.module.tree.body:
                if isinstance(node, ast.ClassDef) and (module_of(file.path), node.name) not in places:
                    bases = {(module_of(file.path), ast.unparse(base)) for base in node.bases}
                    named = [item for base in node.bases for item in _bound(file, ast.unparse(base))]
                    if places & (bases | {(item.module, item.name or "") for item in named}):
                        places.add((module_of(file.path), node.name))
                        family.classes.append(node)


def _bound(file: _File, name: str) -> list[Import]:
    return [item for item, _ in file.imports if item.name and item.bound == name]


def _class_items(family: _Family, base: SourceTree, target: SourceTree) -> list[Item]:
    """One item for an upstream class that omni derives from, when it changed."""
    item = family.imported
    before, after = (find_definition(tree, item.module, item.name or "") for tree in (base, target))
    if not (before and after and isinstance(before.node, ast.ClassDef) and isinstance(after.node, ast.ClassDef)):
        return []
    change = ClassChange(functions(before.node), functions(after.node))
    used, blocking = _used(change, family)
    lines = used + _bases(before.node, after.node)
    lines += [
        f"{word}: {', '.join(names)}"
        for word, names in (("added", change.added), ("removed", change.removed), ("changed", change.changed))
        if names
    ]
    if not lines:
        return []
    counts = f"{len(change.added)} methods added, {len(change.removed)} removed, {len(change.changed)} changed"
    concern = f"; {len(used)} of that omni overrides or calls" if used else "; none that omni overrides or calls"
    title = f"{family.path}: {item.name}, a base of {family.classes[0].name}: {counts}{concern}"
    texts = (family.path, item.statement(), plain_text(before.node), plain_text(after.node))
    key = item_id("upstream-changed", *texts)
    return [Item(key, "upstream-changed", title, "\n".join(lines), family.path, blocking)]


def _bases(before: ast.ClassDef, after: ast.ClassDef) -> list[str]:
    old, new = (", ".join(map(ast.unparse, node.bases)) for node in (before, after))
    return [f"bases: {old} -> {new}"] if old != new else []


def _used(change: ClassChange, family: _Family) -> tuple[list[str], bool]:
    """What omni overrides or calls of what changed, one entry each; whether one of them cannot work."""
    own = {node.name for _, node in family.methods()}
    lines: list[str] = []
    blocking = False
    for owner, node in family.methods():
        where = f"{owner}.{node.name}"
        if node.name in change.removed:
            lines.append(f"{where} overrides a method that upstream removed")
        elif node.name in change.added:
            lines.append(f"{where} now overrides a new method: {signature(change.after[node.name])}")
        elif node.name in change.changed:
            details, wrong = signature_lines(change.before[node.name], change.after[node.name], node)
            lines.append("\n  ".join([f"{where} overrides: {change.text(node.name)}", *details[2:]]))
            blocking |= wrong
        for name, calls in _calls(node).items():
            if name in own - {node.name}:
                continue
            if name in change.removed:
                lines.append(f"{where} calls {name}, which upstream removed")
                blocking = True
            elif name in change.changed and name != node.name:
                lines.append(f"{where} calls {name}: {change.text(name)}")
                wrong_calls = _misfits(calls, change.before[name], change.after[name])
                lines[-1] += "".join(f"\n  {text}" for text in wrong_calls)
                blocking |= bool(wrong_calls)
    return lines, blocking


def _calls(node: Function) -> dict[str, list[ast.Call]]:
    found: dict[str, list[ast.Call]] = {}
    for call in calls_on_self(node):
        found.setdefault(call.func.attr, []).append(call)  # type: ignore[attr-defined]
    return found


def _misfits(calls: list[ast.Call], before: Function, after: Function, bound: bool | None = None) -> list[str]:
    """The calls that fitted the old signature and do not fit the new one."""
    bound = is_bound(after) if bound is None else bound
    found = [
        f"{_short(call)}: {reason}"
        for call in calls
        if (reason := misfit(call, after, bound=bound)) and not misfit(call, before, bound=bound)
    ]
    return list(dict.fromkeys(found))


def _call_items(file: _File, base: SourceTree, target: SourceTree) -> list[Item]:
    """Imported functions and classes that the file calls, whose signature changed."""
    found = {}
    for item, _ in file.imports:
        if not item.name or not item.module.startswith("vllm_ascend."):
            continue
        sides = [find_definition(tree, item.module, item.name) for tree in (base, target)]
        before, after = map(_callable, sides)
        calls = _calls_of(file.module.tree, item.bound)
        if not (before and after and calls) or signature(before) == signature(after):
            continue
        bound = isinstance(sides[1].node, ast.ClassDef) if sides[1] else False
        wrong = _misfits([call for _, call in calls], before, after, bound)
        places = ", ".join(dict.fromkeys(where for where, _ in calls))
        lines = [f"base:   {signature(before)}", f"target: {signature(after)}", f"called in {places}", *wrong]
        title = f"{file.path}: the signature of {item.name} changed" + (", a call does not fit it" if wrong else "")
        texts = (file.path, item.statement(), signature(before), signature(after))
        key = item_id("signature-changed", *texts)
        # The calls in copied methods of a runner file are brought up to date by the merge.
        blocking = bool(wrong) and not file.is_runner
        found[key] = Item(key, "signature-changed", title, "\n".join(lines), file.path, blocking)
    return list(found.values())


def _callable(definition: Definition | None) -> Function | None:
    if definition is None:
        return None
    node = definition.node
    return functions(node).get("__init__") if isinstance(node, ast.ClassDef) else node


def _calls_of(tree: ast.Module, name: str) -> list[tuple[str, ast.Call]]:
    """The calls of a name, with the unit each stands in."""
    found = []
    for node in tree.body:
        parts = node.body if isinstance(node, ast.ClassDef) else [node]
        for part in parts:
            owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            where = owner + getattr(part, "name", "the class body" if owner else "the module")
            for call in ast.walk(part):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name:
                    found.append((where, call))
    return found


def _short(call: ast.Call) -> str:
    text = ast.unparse(call)
    return text if len(text) <= 100 else text[:97] + "..."
