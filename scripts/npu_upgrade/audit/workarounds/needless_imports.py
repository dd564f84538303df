"""Second places to import a name from, for versions that the given trees are not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.workarounds.needless import needless
from npu_upgrade.audit.world import World
from npu_upgrade.code.definitions import catches_import_error
from npu_upgrade.code.exports import absolute
from npu_upgrade.code.names import Import, imports_in
from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import UNKNOWN, File


def needless_import_guards(world: World, file: File) -> Iterator[Finding]:
    """``try: import`` with another place to import the same from, when one of the places does not exist."""
    for node in walk(file.tree):
        if not isinstance(node, ast.Try) or not any(catches_import_error(h) for h in node.handlers):
            continue
        tried = _imports(node.body, file)
        other = _imports([s for handler in node.handlers for s in handler.body], file)
        for name in sorted(tried.keys() & other.keys()):
            places = tried[name], other[name]
            if not all(world.program.judges(item.module) for item in places):
                continue
            found = [world.program.imported(item) for item in places]
            exist = [symbol is not None for symbol in found]
            if UNKNOWN in found:
                continue
            if exist[0] != exist[1]:
                gone, there = places[exist.index(False)].module, places[exist.index(True)].module
                what = f"{name} has a second place to be imported from, and {gone} does not have it"
                here = Side(file.project, file.path, node.lineno, f"imports {name} from either place")
                yield needless(
                    "import-guard", "", name, what, here, None,
                    "the place that is gone is dead code", f"import it from {there} only",
                )  # fmt: skip


def _imports(body: list[ast.stmt], file: File) -> dict[str, Import]:
    nodes = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {item.bound: absolute(item, file.path) for node in nodes for item in imports_in(node) if item.name}
