"""What became of the things of upstream's that a downstream puts its own in place of."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping

from npu_upgrade.code.module import parse_module
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.history import keys_of
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.lineage.origins import Origins
from npu_upgrade.lineage.patches import patches_in
from npu_upgrade.lineage.project import package_of
from npu_upgrade.lineage.units import UnitLineage
from npu_upgrade.program.program import Program
from npu_upgrade.sources.tree import SourceTree

DIFF_LINES = 200


def diff_lines(before: list[str], after: list[str], *names: str, around: int = 3) -> list[str]:
    """What changed, without the names above it where there are none; a long one is cut."""
    found = list(difflib.unified_diff(before, after, *names, n=around, lineterm=""))[0 if names else 2 :]
    more = [f"... {len(found) - DIFF_LINES} more lines"] if len(found) > DIFF_LINES else []
    return [*found[:DIFF_LINES], *more]


def patch_items(origins: Origins, target: SourceTree) -> list[Item]:
    """An item for each thing patched over that is gone at the target, changed, or has what the patch adds.

    A patch that is a copy of what it replaces is merged, and not asked about.
    """
    package = package_of(target)
    was = origins.side.upstreams[package]
    by_target: dict[str, list[UnitLineage]] = {}
    for unit in origins.units:
        for place in unit.patches if unit.kind != "module" else ():
            if place.startswith(f"{package}/") and not (unit.copied and unit.upstream == place):
                by_target.setdefault(place, []).append(unit)
    then = _places(origins, target) if by_target else {}
    return [
        item
        for place, units in sorted(by_target.items())
        for item in _items(place, units, origins, was, target, then)
    ]


def _places(origins: Origins, target: SourceTree) -> dict[str, set[str]]:
    """What each unit replaces at the target: a condition on its version may choose another place."""
    package, own = package_of(target), origins.side.project.package
    program = Program({package: target, own: origins.side.tree})
    found: dict[str, set[str]] = {}
    for path in origins.side.paths:
        file = program.file(path)
        for patch in patches_in(file, {}, lambda place: place.startswith(f"{package}/")) if file else ():
            found.setdefault(patch.by, set()).add(patch.target)
    return found


def _items(
    place: str,
    units: list[UnitLineage],
    origins: Origins,
    was: SourceTree,
    target: SourceTree,
    then: Mapping[str, set[str]],
) -> Iterator[Item]:
    before, now = text_at(was, place), text_at(target, place)
    where = ", ".join(f"{unit.path}:{unit.line} {unit.name}" for unit in units)
    if before is None or before == now:
        return
    if now is None:
        name = place.rpartition(":")[2]
        new = {one for unit in units for one in then.get(f"{unit.path}:{unit.name}", set()) - {*unit.patches}}
        if any(one.rpartition(":")[2] == name and text_at(target, one) for one in new):
            return  # the file itself chooses what the target has in its stead
        title = f"{place} is patched over, and the target does not have it"
        detail = f"patched in {where}; without it, nothing reads what is put there"
        yield Item(item_id("patch-gone", place), "patch-gone", title, detail, units[0].path, True)
        return
    old, new = _inside(before), _inside(now)
    for unit in units:
        added = _inside(text_at(origins.side.tree, f"{unit.path}:{unit.name}") or "") - old
        if added and not added - (new - old):
            title = f"{unit.path}: {unit.name}: the target has what this patch of {place} adds"
            detail = f"its {added.total()} own statements stand in the target: can it go?"
            yield Item(item_id("patch-there", unit.path, unit.name), "patch-there", title, detail, unit.path)
    if old != new:
        lines = diff_lines(_lines(before), _lines(now), "before", "target")
        title = f"the original that {units[0].name} replaces gained this: {place}"
        detail = "\n".join([f"patched in {where}", *lines])
        key = item_id("patch-changed", place, before, now)
        yield Item(key, "patch-changed", title, detail, units[0].path)


def text_at(tree: SourceTree, place: str) -> str | None:
    """The text of what stands at ``path:name`` or ``path:Class.name``; None where nothing does."""
    path, _, name = place.partition(":")
    path = path if path.endswith(".py") else f"{path}.py"
    try:
        module = parse_module(tree.read(path))
    except (BadInput, SyntaxError):
        return None
    if name in module.units:
        return module.units[name].source
    owner, _, attribute = name.rpartition(".")
    scope = module.class_def(owner) if owner else module.tree
    nodes = [node for node in scope.body if attribute in _bound(node)] if scope else []
    return "\n".join(ast.get_source_segment(module.source, node) or "" for node in nodes) or None


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement of a module or a class gives something."""
    if isinstance(node, ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [one.id for one in targets if isinstance(one, ast.Name)]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names += [alias.asname or alias.name for alias in node.names]
    return names


def _inside(text: str) -> Counter[int]:
    """The statements of a function or a class without its head: a patch bears another name."""
    try:
        node = ast.parse(textwrap.dedent(text)).body[0]
    except (SyntaxError, IndexError):
        return Counter()
    return Counter(keys_of("\n".join(map(ast.unparse, getattr(node, "body", [node])))))


def _lines(text: str) -> list[str]:
    return textwrap.dedent(text).split("\n")
