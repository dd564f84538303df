"""What changed upstream below the methods that omni overrides or calls."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from npu_upgrade.code.definitions import functions
from npu_upgrade.code.module import Module, Unit
from npu_upgrade.code.signatures import (
    Function,
    misfits,
    not_taken,
    plain_text,
    signature,
    signature_change,
)
from npu_upgrade.lineage.items import Item, item_id

DIFF_LINES = 60
_CALLED = (
    "The override calls it (by super() or by class): upstream's change works where that call gets there."
)


@dataclass(frozen=True)
class ClassChange:
    """How one upstream class differs between two versions; methods by name."""

    before: Mapping[str, Function]
    after: Mapping[str, Function]

    @property
    def names(self) -> list[str]:
        """The methods of either version."""
        return [*self.before, *self.added]

    def differs(self, name: str) -> bool:
        """Whether a method was added, removed or changed."""
        return name in {*self.added, *self.removed, *self.changed}

    @property
    def added(self) -> list[str]:
        return [name for name in self.after if name not in self.before]

    @property
    def removed(self) -> list[str]:
        return [name for name in self.before if name not in self.after]

    @property
    def changed(self) -> list[str]:
        both = (name for name in self.before if name in self.after)
        return [name for name in both if plain_text(self.before[name]) != plain_text(self.after[name])]

    def text(self, name: str) -> str:
        """What changed about a method that both have, in a few words."""
        before, after = self.before[name], self.after[name]
        if signature(before) != signature(after):
            return f"signature changed: {signature_change(before, after)}"
        added, removed = (sum(line[0] == sign for line in self.lines(name)) for sign in "+-")
        return f"body changed (+{added} -{removed} lines)"

    def lines(self, name: str) -> list[str]:
        """The lines of a method that differ, with ``+`` and ``-``, comments left out."""
        old, new = (plain_text(side[name]).split("\n") for side in (self.before, self.after))
        return [line for line in difflib.ndiff(old, new) if line[0] in "+-"]


def method_items(
    omni: Module,
    class_name: str,
    base: Module,
    target: Module,
    upstream_class: str,
    copied: Iterable[str],
    path: str = "",
) -> list[Item]:
    """The methods of an NPU runner that are omni's own, where upstream's changed below them.

    ``copied`` names the methods (plain or qualified) that the merge takes care of. An item
    blocks when the override does not take what callers of upstream's new signature may give.
    """
    owner, before, after = (
        omni.class_def(class_name),
        base.class_def(upstream_class),
        target.class_def(upstream_class),
    )
    if owner is None or before is None or after is None:
        return []
    change, left_out = ClassChange(functions(before), functions(after)), set(copied)
    units = base.methods(upstream_class), target.methods(upstream_class)
    found = []
    for name, node in functions(owner).items():
        if name in left_out or f"{class_name}.{name}" in left_out:
            continue
        item = _override(change, f"{class_name}.{name}", node, units, upstream_class)
        if item:
            item.path = path
            found.append(item)
    return found


def _override(
    change: ClassChange,
    qualname: str,
    node: Function,
    units: tuple[Mapping[str, Unit], Mapping[str, Unit]],
    upstream_class: str,
) -> Item | None:
    name = node.name
    if name in change.removed:
        title = f"{qualname}: upstream removed {upstream_class}.{name}, which it overrides"
        detail = "Is the override still needed? Only omni and the parents of that class can call it now."
        texts = (qualname, plain_text(change.before[name]))
        return Item(item_id("upstream-gone", *texts), "upstream-gone", title, detail)
    if name in change.added:
        title = f"{qualname}: upstream now has a {name} of its own, which it overrides"
        detail = f"upstream: {signature(change.after[name])}\nomni:     {signature(node)}"
        texts = (qualname, plain_text(change.after[name]))
        return Item(item_id("upstream-new", *texts), "upstream-new", title, detail)
    if name in change.changed:
        return _changed(change, qualname, node, units, upstream_class)
    return None


def _changed(
    change: ClassChange,
    qualname: str,
    node: Function,
    units: tuple[Mapping[str, Unit], Mapping[str, Unit]],
    upstream_class: str,
) -> Item:
    before, after = change.before[node.name], change.after[node.name]
    wrong = misfits_of_override(before, after, node)
    lines = [change.text(node.name)]
    lines += [f"omni has {signature(node)}"] if signature(before) != signature(after) else []
    lines += [f"the override {reason}" for reason in wrong]
    if calls_overridden(node):
        lines.append(_CALLED)
    else:
        lines += _diff(units[0][node.name].source, units[1][node.name].source)
    what = "signature" if signature(before) != signature(after) else "body"
    title = f"{qualname}: the {what} of {upstream_class}.{node.name}, which it overrides, changed"
    key = item_id("overridden-changed", qualname, plain_text(before), plain_text(after))
    return Item(key, "overridden-changed", title, "\n".join(lines), blocking=bool(wrong))


def misfits_of_override(before: Function, after: Function, override: Function) -> list[str]:
    """What of an override fitted upstream's old signature and does not fit the new one."""
    known = not_taken(override, before)
    wrong = [f"does not take {name}" for name in not_taken(override, after) if name not in known]
    for bound in (True, False):
        calls = [call for call, by_super in _calls_upwards(override) if by_super is bound]
        wrong += misfits(calls, before, after, bound)
    return wrong


def calls_overridden(node: Function) -> bool:
    """Whether an override calls the method it overrides: by ``super()``, or by a class with ``self``."""
    return bool(_calls_upwards(node))


def _calls_upwards(node: Function) -> list[tuple[ast.Call, bool]]:
    """The calls of the method that ``node`` overrides, with whether they are by ``super()``."""
    found = []
    for call in ast.walk(node):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == node.name
        ):
            by_super = ast.unparse(call.func.value).startswith("super(")
            if by_super or (call.args and ast.unparse(call.args[0]) == "self"):
                found.append((call, by_super))
    return found


def _diff(before: str, after: str) -> list[str]:
    old, new = (textwrap.dedent(text).split("\n") for text in (before, after))
    lines = list(difflib.unified_diff(old, new, "base", "target", lineterm=""))
    if len(lines) <= DIFF_LINES:
        return lines
    return [*lines[:DIFF_LINES], f"... {len(lines) - DIFF_LINES} more lines"]


def calls_on_self(node: ast.AST) -> list[ast.Call]:
    """The calls ``self.name(...)`` and ``super().name(...)`` under a node."""
    return [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) in ("self", "super()")
    ]
