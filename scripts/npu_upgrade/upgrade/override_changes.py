"""What changed upstream below the methods that omni overrides or calls."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from npu_upgrade.pycode.module import Module, Unit
from npu_upgrade.upgrade.definitions import functions
from npu_upgrade.upgrade.items import Item, item_id
from npu_upgrade.upgrade.signatures import Function, new_parameters, not_taken, plain_text, signature

DIFF_LINES = 60


@dataclass(frozen=True)
class ClassChange:
    """How one upstream class differs between two versions; methods by name."""

    before: Mapping[str, Function]
    after: Mapping[str, Function]

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
            return f"{signature(before)} -> {signature(after)}"
        return f"body changed ({_size(plain_text(before), plain_text(after))})"


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
    owner, before, after = omni.class_def(class_name), base.class_def(upstream_class), target.class_def(upstream_class)
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
        text = "Nothing in this class calls it any more, unless a parent of it does: is the override still needed?"
        texts = (qualname, plain_text(change.before[name]))
        return Item(item_id("upstream-gone", *texts), "upstream-gone", title, text)
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
    lines, blocking = signature_lines(before, after, node)
    what = "signature" if lines else "body"
    title = f"{qualname}: the {what} of {upstream_class}.{node.name}, which it overrides, changed"
    lines += _diff(units[0][node.name].source, units[1][node.name].source)
    key = item_id("overridden-changed", qualname, plain_text(before), plain_text(after))
    return Item(key, "overridden-changed", title, "\n".join(lines), blocking=blocking)


def signature_lines(before: Function, after: Function, override: Function) -> tuple[list[str], bool]:
    """How a signature changed, and whether the override does not fit the new one; empty when it did not."""
    if signature(before) == signature(after):
        return [], False
    lines = [f"signature: {signature(before)}", f"      now: {signature(after)}"]
    lines += [f"     omni: {signature(override)}"]
    fresh = new_parameters(before, after)
    if fresh:
        lines.append(f"new parameters: {', '.join(fresh)}")
    wrong = [name for name in not_taken(override, after) if name not in not_taken(override, before)]
    if wrong:
        lines.append(f"the override does not fit: {', '.join(wrong)}")
    return lines, bool(wrong)


def _diff(before: str, after: str) -> list[str]:
    sides = (textwrap.dedent(text).split("\n") for text in (before, after))
    lines = list(difflib.unified_diff(*sides, "base", "target", lineterm=""))
    if len(lines) <= DIFF_LINES:
        return lines
    return [*lines[:DIFF_LINES], f"... {len(lines) - DIFF_LINES} more lines"]


def _size(before: str, after: str) -> str:
    lines = list(difflib.ndiff(before.split("\n"), after.split("\n")))
    return f"+{sum(line[:2] == '+ ' for line in lines)} -{sum(line[:2] == '- ' for line in lines)} lines"


def calls_on_self(node: ast.AST) -> list[ast.Call]:
    """The calls ``self.name(...)`` and ``super().name(...)`` under a node."""
    return [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) in ("self", "super()")
    ]
