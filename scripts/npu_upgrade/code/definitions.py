"""What stands in a module: its imports, its classes and functions, and what it has for others."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence

from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.code.names import Import, imports_in
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import dotted, last_name, string, walk
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.tree import SourceTree

_CAUGHT = ("ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException")


def read_module(tree: SourceTree, path: str) -> Module | None:
    """The parsed file; None when it is not there or not Python."""
    try:
        return parse_module(tree.read(path))
    except (BadInput, SyntaxError):
        return None


def functions(node: ast.ClassDef) -> dict[str, Function]:
    """The methods of a class by name; the later of two definitions wins."""
    return {item.name: item for item in node.body if isinstance(item, Function)}


def every_import(tree: ast.Module) -> Iterator[tuple[Import, bool]]:
    """All imports of a file, inside functions too, and whether its failing is provided for."""
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.Try) and any(catches_import(handler.type) for handler in block.handlers)
        for part in block.body
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((item, id(node) in guarded) for item in imports_in(node))


def catches_import(caught: ast.expr | None) -> bool:
    """Whether ``except caught:`` provides for an import or an attribute that fails."""
    return caught is None or any(name in ast.unparse(caught) for name in _CAUGHT)


def top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those in ``if`` and ``try`` blocks included."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from top_level(
                [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
            )


def importable(source: str) -> set[str]:
    """Names that a module defines for others: not its imports, and nothing made for one module."""
    try:
        module = parse_module(source)
    except SyntaxError:
        return set()
    own = {
        target.id
        for node in module.tree.body
        if isinstance(node, ast.Assign) and "__name__" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return {name for name in module.top_level_names() - own if not name.startswith("__")}


def type_aliases(source: str) -> set[str]:
    """Names that a module defines as ``NAME: TypeAlias = ...``."""
    return {
        node.target.id
        for node in parse_module(source).tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and last_name(node.annotation) == "TypeAlias"
    }


def absolute(item: Import, path: str) -> Import:
    """The import with a relative module written out, as seen from the file ``path``."""
    level = len(item.module) - len(item.module.lstrip("."))
    if not level:
        return item
    parts = path.split("/")[:-level]
    rest = item.module[level:]
    return Import(".".join([*parts, rest] if rest else parts), item.name, item.asname, item.typing_only)


def module_of(path: str) -> str:
    """The dotted name of the module in ``path``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def shared_parts(module: str, other: str) -> int:
    """How many leading parts two dotted names have in common."""
    pairs = zip(module.split("."), other.split("."), strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def lazy_names(getter: Function, values: Mapping[str, ast.stmt]) -> frozenset[str] | None:
    """The names that a ``__getattr__`` knows; None when its source does not tell.

    It knows the keys and items of the module's tables it reads (``values`` holds the
    module's assignments), and the strings in its own body; what it asks another module for by
    whatever name it got, nobody knows.
    """
    places = [*getter.args.posonlyargs, *getter.args.args]
    if places and _hands_on(getter.body, places[-1].arg):
        return None
    read = {node.id for node in walk(getter) if isinstance(node, ast.Name)}
    found = set(_literals([node for stmt in getter.body for node in walk(stmt)]))
    tables = [_table(values[name]) for name in sorted(read & values.keys())]
    for table in tables:
        if table is None:
            return None
        found |= table
    return frozenset(found) or None


def _hands_on(body: Sequence[ast.stmt], name: str) -> bool:
    """Whether statements ask something by ``getattr`` for what ``name`` holds, before that is known."""
    for stmt in body:
        told = _is_told(stmt.test, name) if isinstance(stmt, ast.If) else None
        if isinstance(stmt, ast.If):
            parts = [stmt.body, stmt.orelse] if told is None else [stmt.orelse if told else stmt.body]
        elif any(isinstance(node, ast.Subscript) and dotted(node.slice) == name for node in walk(stmt)):
            return False  # a table that does not have it raises
        elif isinstance(stmt, ast.Try):
            parts = [stmt.body, *(handler.body for handler in stmt.handlers), stmt.orelse]
        else:
            parts = [getattr(stmt, "body", [])]
            if not parts[0] and any(_asks_for(node, name) for node in walk(stmt)):
                return True
        if any(_hands_on(part, name) for part in parts):
            return True
        if told is False:
            return False
    return False


def _is_told(test: ast.expr, name: str) -> bool | None:
    """Whether a test is that a name is among some, or (False) is not; None where it is another one."""
    if not isinstance(test, ast.Compare) or dotted(test.left) != name:
        return None
    return isinstance(test.ops[0], (ast.In, ast.Eq))


def _asks_for(node: ast.AST, name: str) -> bool:
    by_name = isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) > 1
    return by_name and dotted(node.args[1]) == name


def _table(statement: ast.stmt) -> set[str] | None:
    """The strings of a dict (its keys), list, tuple or set; None for anything made another way."""
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    if isinstance(value, ast.Dict):
        items: list[ast.expr | None] = list(value.keys)
    elif isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        items = list(value.elts)
    else:
        return None
    strings = _literals([item for item in items if item])
    return set(strings) if len(strings) == len(items) else None


def _literals(nodes: list[ast.expr] | list[ast.AST]) -> list[str]:
    return [text for node in nodes if (text := string(node))]
