"""Dictionaries of other packages that are asked by a key of another kind than they are declared with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import last_name, walk
from npu_upgrade.program.program import ClassSymbol, File, FunctionSymbol

ABOUT = "dictionaries of the projects below that are asked by a key of another kind than theirs"

_DICTS = {"dict", "Dict", "defaultdict", "DefaultDict", "OrderedDict", "Mapping", "MutableMapping"}
_ASKING = {"get", "pop", "setdefault"}
_TUPLES = {"tuple", "Tuple", "NamedTuple"}
_PLAIN = {"str", "int", "float", "bool", "bytes", "None"}


def check(world: World) -> Iterator[Finding]:
    for file in world.files:
        declared = {
            name: found
            for name, items in file.imports.items()
            if len(items) == 1 and items[0].name and (found := _declared(world, file, name))
        }
        for scope in file.nodes if declared else ():
            if isinstance(scope, Function):
                yield from _asked(file, scope, declared)


def _declared(world: World, file: File, name: str) -> tuple[File, ast.AnnAssign, ast.expr] | None:
    """Where an imported dictionary is declared, and the type of its keys."""
    item = file.imports[name][0]
    other = world.program.module(item.module)
    if other is None or other.project == file.project:
        return None
    for node in other.tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == item.name
            and isinstance(node.annotation, ast.Subscript)
            and last_name(node.annotation) in _DICTS
            and isinstance(node.annotation.slice, ast.Tuple)
        ):
            return other, node, node.annotation.slice.elts[0]
    return None


def _asked(
    file: File,
    scope: Function,
    declared: dict[str, tuple[File, ast.AnnAssign, ast.expr]],
) -> Iterator[Finding]:
    """The keys in a function that are no tuples where the dictionary has tuples, and the other way round."""
    values: dict[str, list[ast.expr | None]] = {}
    for node in walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                values.setdefault(ast.unparse(target), []).append(node.value)
        elif isinstance(node, ast.arg):
            values.setdefault(node.arg, []).append(None)
    for node in walk(scope):
        name, key = _question(node)
        if key is None or name not in declared or name in values:
            continue
        other, place, annotation = declared[name]
        wanted, given = _are_tuples(other, annotation), _is_tuple(file, key, values)
        if None in (wanted, given) or wanted == given:
            continue
        text = ast.unparse(annotation)
        yield Finding(
            kind="key-type",
            owner=scope.name,
            subject=f"{name}[{ast.unparse(key)}]",
            what=f"the keys of {name} are {text}, and {ast.unparse(key)} is {'a' if given else 'no'} tuple",
            here=side(file, node, ast.unparse(node)),
            there=side(other, place, ast.unparse(place.annotation)),
            incident="S",
            why="the key is never found: get() gives None without a word, and [] raises KeyError",
            todo=f"ask {name} by {text}, as {other.project} does",
        )


def _question(node: ast.AST) -> tuple[str, ast.expr | None]:
    """The name of the dictionary that an expression asks, and the key."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ASKING:
        return ast.unparse(node.func.value), node.args[0] if node.args else None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return ast.unparse(node.value), node.slice
    return "", None


def _is_tuple(file: File, key: ast.expr, values: dict[str, list[ast.expr | None]]) -> bool | None:
    """Whether a key is a tuple; None where that is not sure."""
    if isinstance(key, ast.Tuple):
        return True
    if isinstance(key, (ast.Constant, ast.JoinedStr)):
        return False
    if isinstance(key, ast.Call):
        symbol = file.resolve(key.func)
        if isinstance(symbol, FunctionSymbol) and symbol.node.returns:
            return _are_tuples(symbol.file, symbol.node.returns)
        return None
    assigned = values.get(ast.unparse(key), [])
    found = {_is_tuple(file, value, {}) if value else None for value in assigned}
    return found.pop() if len(found) == 1 else None


def _are_tuples(file: File, annotation: ast.expr) -> bool | None:
    """Whether all that a type stands for are tuples, or none; None where that is not sure."""
    if isinstance(annotation, ast.BinOp):
        found = {_are_tuples(file, part) for part in (annotation.left, annotation.right)}
        return found.pop() if len(found) == 1 else None
    inner = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    name = ast.unparse(inner).rpartition(".")[2]
    if name in _TUPLES:
        return True
    if name in _PLAIN:
        return False
    symbol = file.resolve(inner)
    if not isinstance(symbol, ClassSymbol):
        return None
    bases = {last_name(base) for one in symbol.mro for base in one.node.bases}
    return bool(bases & _TUPLES)
