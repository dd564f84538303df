"""What a new vllm-ascend touches around the merged methods.

What no longer works is asked of the audit's checks, over the merged files and without vLLM. What they do
not know is told here: that upstream's code below an override changed, or the signature of what omni calls.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from npu_upgrade.audit.checks.calls import Shifts
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.overrides import audited_scopes
from npu_upgrade.audit.run import run_checks
from npu_upgrade.audit.world import ASCEND, NO_TREE, Triple, World
from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.definitions import absolute, every_import
from npu_upgrade.code.signatures import misfits, plain_text, signature, signature_change
from npu_upgrade.code.walk import is_super, walk
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.lineage.records import Lineage
from npu_upgrade.merge.gone import GONE, look_for_gone
from npu_upgrade.merge.overridden import OVERRIDDEN, diff_of, repeated, source_of, taken_over
from npu_upgrade.program.absent import missing_import
from npu_upgrade.program.callees import resolver_of
from npu_upgrade.program.places import advice
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.scope import Callee, Scope
from npu_upgrade.sources.tree import SourceTree, overlay

_PROJECT = "vllm-ascend"
_CALLED = (
    "The override calls it (by super() or by class): upstream's change works where that call gets there."
)
_CHECKS = ("calls", "signatures")
_HINTS = {"return-type", "parameter-type"}
Units = Collection[tuple[str, str]]
"""Methods, each by its file and its qualified name."""


def surrounding_items(
    omni: SourceTree,
    merged: Mapping[str, str],
    base: SourceTree | None,
    target: SourceTree,
    copied: Units,
    vllm: SourceTree | None = None,
) -> list[Item]:
    """The items of the NPU worker files; ``merged`` are the texts of the runner files, conflicts and all.

    Without a ``base`` only the names that are missing are known. ``copied`` are the methods that the
    merge takes care of. Without the ``vllm`` of the target it is not known what the runner files inherit
    from there, and what may be gone in them is only to be looked at.
    """
    ours = {path: answers(text, path)[0].text for path, text in merged.items()}
    before = _world(omni, base) if base else None
    waiting = None
    if vllm:
        texts = {path: omni.read(path) for path in merged}
        waiting = look_for_gone(Triple(omni, target, vllm), merged, texts, base)
    after = _world(overlay(omni, ours), target, before)
    workers = {file.path for file in after.worker_files} - (set(merged) if vllm else set())
    found = [finding for finding in run_checks(after, _CHECKS) if finding.here.path in workers]
    items = [*_unreadable(after), *_missing_names(after, workers, merged)]
    if before:
        items += [*_misfits(before, found, merged), *_gone(before, after, workers, merged)]
        items += [*_overridden(before, after, copied), *_called(before, after, copied)]
    return _one_a_cause([*(waiting() if waiting else ()), *items])


def _one_a_cause(items: list[Item]) -> list[Item]:
    """An override or a call that does not fit is one item, which tells too what changed upstream."""
    wrong = [item for item in items if item.kind in ("misfit", GONE)]
    left = []
    for item in items:
        about = ""
        if item.kind == OVERRIDDEN:
            about = rf"\b{re.escape(item.title.partition(':')[0])} does not fit\b"
        elif item.kind == "signature-changed":
            about = rf"there: .*\b{item.title.split()[3].rpartition('.')[2]}\b"
        same = [one for one in wrong if about and re.search(about, f"{one.title}\n{one.detail}")]
        for one in same:
            one.detail += f"\n\n{item.title}\n{item.detail}"
        left += [] if same else [item]
    return left


def override_items(omni: SourceTree, base: SourceTree, target: SourceTree, copied: Units) -> list[Item]:
    """The items of the methods of ``omni`` that override vllm-ascend's and are no copies."""
    return list(_overridden(_world(omni, base), _world(omni, target), copied))


def copied_units(lineage: Lineage) -> Units:
    """The methods that the merge takes care of."""
    return {(entry.path, entry.name) for entry in lineage.copied}


def _world(omni: SourceTree, ascend: SourceTree, old: World | None = None) -> World:
    return World(Triple(omni, ascend, NO_TREE), old)


def _unreadable(world: World) -> Iterator[Item]:
    for path in world.side.paths:
        if world.program.file(path) is None:
            yield Item(item_id("unreadable", path), "unreadable", f"{path} is not Python", "", path, True)


def _missing_names(world: World, workers: set[str], merged: Collection[str]) -> Iterator[Item]:
    """Imports of vllm_ascend that the target does not have; those that may fail do not block."""
    found: dict[str, Item] = {}
    for file in (file for file in world.worker_files if file.path in workers):
        for item, guarded in every_import(file.tree):
            gone = missing_import(world.program, absolute(item, file.path))
            if gone and gone[0].partition(".")[0] == ASCEND:
                text = absolute(item, file.path).statement()
                key, title = (
                    item_id("missing-name", file.path, text),
                    f"{file.path}: the target has no `{text}`",
                )
                blocking = not guarded and file.path not in merged
                found[key] = Item(
                    key, "missing-name", title, advice(world.program, *gone), file.path, blocking
                )
    yield from found.values()


def _misfits(before: World, found: Sequence[Finding], merged: Collection[str]) -> Iterator[Item]:
    """Overrides and calls that no longer fit, and did before."""
    known = {finding.key for finding in run_checks(before, _CHECKS)} if found else set()
    for finding in found:
        if finding.key not in known:
            # The audit looks at the merged calls in the runner files again, when their conflicts are decided.
            blocking = finding.check == "signatures" or finding.here.path not in merged
            yield _misfit(finding, blocking and finding.kind not in _HINTS)


def _misfit(finding: Finding, blocking: bool) -> Item:
    detail = f"here: {finding.here}\nthere: {finding.there}\n{finding.todo}"
    id_, path = item_id("misfit", finding.key), finding.here.path
    return Item(id_, "misfit", finding.what, detail, path, blocking, finding=finding.key)


def _gone(before: World, after: World, workers: set[str], merged: Collection[str]) -> Iterator[Item]:
    """Methods that upstream removed and that omni still calls on its own objects."""
    told: set[tuple[str, str]] = set()
    for cls in after.concrete:
        old = before.program.find_class(cls.file.path, cls.name)
        for method in (method for owner in cls.mro for method in owner.methods.values()):
            for call in _calls_on_self(method) if old and method.owner.file.path in workers else ():
                was, path = _upstream(old, call) if old else None, method.owner.file.path
                if was and cls.lookup(call) is None and (path, call) not in told:
                    told.add((path, call))
                    title = f"{method.qualname} calls {was.qualname}, which upstream removed"
                    key = item_id("upstream-gone", path, call, plain_text(was.node))
                    detail = "Does a parent outside vllm-ascend have it? Else find what replaced it."
                    yield Item(key, "upstream-gone", title, detail, path, path not in merged)


def _calls_on_self(method: Method) -> Iterator[str]:
    for node in walk(method.node):
        func = node.func if isinstance(node, ast.Call) else None
        if isinstance(func, ast.Attribute) and (is_super(func.value) or _is_self(func.value)):
            yield func.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _upstream(cls: ClassSymbol, name: str) -> Method | None:
    """The method of vllm-ascend that one of ``cls`` stands for."""
    found = (base.methods[name] for base in cls.mro if base.project == _PROJECT and name in base.methods)
    return next(found, None)


def _overridden(before: World, after: World, copied: Units) -> Iterator[Item]:
    """The methods of omni's own that override one of vllm-ascend's which changed, came or went."""
    for cls in after.classes:
        old = before.program.find_class(cls.file.path, cls.name)
        for method in cls.methods.values():
            if old and (cls.file.path, method.qualname) not in copied:
                was, now = _upstream(old, method.name), _upstream(cls, method.name)
                if item := _override(method, was, now):
                    item.path = cls.file.path
                    yield item


def _override(method: Method, was: Method | None, now: Method | None) -> Item | None:
    name = method.qualname
    if was and now is None:
        title = f"{name}: upstream removed {was.qualname}, which it overrides"
        detail = "Is the override still needed? Only omni and the parents of that class can call it now."
        key = item_id("upstream-gone", name, plain_text(was.node))
        return Item(key, "upstream-gone", title, detail)
    if now and was is None:
        title = f"{name}: upstream now has a {now.name} of its own, which it overrides"
        detail = f"upstream: {signature(now.node)}\nomni:     {signature(method.node)}"
        return Item(item_id("upstream-new", name, plain_text(now.node)), "upstream-new", title, detail)
    if was and now and plain_text(was.node) != plain_text(now.node):
        return _changed(method, was, now)
    return None


def _changed(method: Method, was: Method, now: Method) -> Item:
    old, new = signature(was.node), signature(now.node)
    calls = _calls_upwards(method)
    wrong = [
        reason
        for bound in (True, False)
        for reason in misfits([c for c, by_super in calls if by_super is bound], was.node, now.node, bound)
    ]
    if old != new:
        lines = [f"signature changed: {signature_change(was.node, now.node)}"]
        lines += [f"omni has {signature(method.node)}"]
    else:
        texts = [plain_text(side.node).split("\n") for side in (was, now)]
        signs = [line[0] for line in list(difflib.unified_diff(texts[0], texts[1], n=0))[2:]]
        lines = [f"body changed (+{signs.count('+')} -{signs.count('-')} lines)"]
    lines += [f"the override {reason}" for reason in wrong]
    itself = repeated(method, was, now) if calls else []
    lines += [_CALLED] if calls else []
    lines += [
        f"But it does this itself, where upstream changed what stands beside it: {one}" for one in itself
    ]
    lines += diff_of(source_of(was), source_of(now)) if itself or not calls else []
    what = "signature" if old != new else "body"
    title = f"{method.qualname}: the {what} of {now.qualname}, which it overrides, changed"
    key = item_id(OVERRIDDEN, method.qualname, plain_text(was.node), plain_text(now.node))
    item = Item(key, OVERRIDDEN, title, "\n".join(lines), blocking=bool(wrong))
    if not calls and old == new and (taken := taken_over(method, was, now)):
        item.changes, item.imports = [taken.change], list(taken.imports)
        item.detail = f"{lines[0]}, and fits here: accept makes this edit\n{taken.text}"
    if calls and old == new and not wrong and not itself:
        item.state, item.note = "done", "nothing to decide: as with a method that is inherited"
    return item


def _calls_upwards(method: Method) -> list[tuple[ast.Call, bool]]:
    """The calls of the method that ``method`` overrides, with whether they are by ``super()``."""
    found = []
    for call in walk(method.node):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == method.name
        ):
            by_super = ast.unparse(call.func.value).startswith("super(")
            if by_super or (call.args and ast.unparse(call.args[0]) == "self"):
                found.append((call, by_super))
    return found


@dataclass
class _Calls:
    """The calls in omni's own code of one thing of vllm-ascend."""

    callee: Callee
    places: dict[str, Scope]


def _called(before: World, after: World, copied: Units) -> Iterator[Item]:
    """What omni calls of vllm-ascend and what has another signature now, be it that all calls fit."""
    resolver, shifts = resolver_of(after.program), Shifts(before)
    found: dict[int, _Calls] = {}
    for scope in audited_scopes(after, resolver):
        own = (scope.file.path, scope.name) not in copied and scope.file in after.worker_files
        for call in resolver.body(scope.node).calls if own else ():
            for callee in resolver.callees(call, scope):
                if callee.file.project == _PROJECT and not _is_upwards(callee, scope):
                    places = found.setdefault(id(callee.node), _Calls(callee, {})).places
                    places[f"{scope.file.path.rpartition('/')[2]}: {scope.name}"] = scope
    for calls in found.values():
        node, was = calls.callee.node, shifts.before(calls.callee)
        if was and signature(was) != signature(node):
            name = f"{calls.callee.file.module}.{calls.callee.name}"
            paths = {scope.file.path for scope in calls.places.values()}
            lines = [signature_change(was, node), *(f"called in {place}" for place in calls.places)]
            key = item_id("signature-changed", name, signature(was), signature(node))
            path = paths.pop() if len(paths) == 1 else ""
            title = f"the signature of {name} changed"
            yield Item(key, "signature-changed", title, "\n".join(lines), path)


def _is_upwards(callee: Callee, scope: Scope) -> bool:
    """Whether a call in an override is of what it overrides."""
    return callee.by == "super" or (callee.makes is None and scope.name.endswith(f".{callee.node.name}"))
