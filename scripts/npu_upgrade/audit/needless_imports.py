"""Imports that are provided for failing, and cannot fail with the given trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.needless import around, needless
from npu_upgrade.audit.program import File
from npu_upgrade.audit.world import World
from npu_upgrade.pycode.exports import absolute
from npu_upgrade.pycode.names import Import, imports_in
from npu_upgrade.upgrade.definitions import catches_import_error


def needless_import_guards(world: World, file: File) -> Iterator[Finding]:
    """Second places to import from that are gone, and fallbacks for what is certainly there."""
    yield from _import_guards(file, world)
    yield from _sure_imports(file, world)


def _import_guards(file: File, world: World) -> Iterator[Finding]:
    """``try: import`` with another place to import the same from, when one of the places does not exist."""
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.Try) or not any(catches_import_error(h) for h in node.handlers):
            continue
        tried = _imports(node.body, file)
        other = _imports([s for handler in node.handlers for s in handler.body], file)
        for name in sorted(tried.keys() & other.keys()):
            places = tried[name], other[name]
            if not all(world.program.judges(item.module) for item in places):
                continue
            exist = [world.program.imported(item) is not None for item in places]
            if exist[0] != exist[1]:
                gone, there = places[exist.index(False)].module, places[exist.index(True)].module
                what = f"{name} has a second place to be imported from, and {gone} does not have it"
                here = Side(file.project, file.path, node.lineno, f"imports {name} from either place")
                yield needless(
                    "import-guard", "", name, what, here, None,
                    "the place that is gone is dead code", f"import it from {there} only",
                )  # fmt: skip


def _sure_imports(file: File, world: World) -> Iterator[Finding]:
    """``try: from module import name`` of what is there, where other files need the module anyway."""
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.Try) or not any(catches_import_error(h) for h in node.handlers):
            continue
        items = list(_imports(node.body, file).values())
        upstream = [item for item in items if item.module.partition(".")[0] in ("vllm", "vllm_ascend")]
        if not upstream or len(upstream) != len(items):
            continue
        sure = all(world.program.imported(item) is not None for item in items)
        if sure and all(_needed_anyway(item.module, file, world) for item in items):
            names = ", ".join(str(item.name) for item in items)
            what = f"{items[0].module} has {names}, and other files import from it without a guard"
            here = Side(file.project, file.path, node.lineno, f"imports {names} if it can")
            yield needless(
                "sure-import", around(file, node.lineno), names, what, here, None,
                "the fallback never runs, and hides that the name is gone, should it go", "import it plainly",
            )  # fmt: skip


def _needed_anyway(module: str, file: File, world: World) -> bool:
    """Whether another of the files imports from the module at its top level, unguarded."""
    for other in world.files:
        if other is not file:
            for node in other.tree.body:
                if isinstance(node, ast.ImportFrom) and node.module == module and not node.level:
                    return True
    return False


def _imports(body: list[ast.stmt], file: File) -> dict[str, Import]:
    nodes = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {item.bound: absolute(item, file.path) for node in nodes for item in imports_in(node) if item.name}
