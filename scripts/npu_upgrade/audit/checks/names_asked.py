"""Names in strings that nothing has: what loops ask a module for, what layers are registered by, and keywords
that a method asks its ``**kwargs`` for and no caller gives.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from npu_upgrade.audit.checks.imports import FileImports
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import functions_of, overriding
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import is_spread, named_of
from npu_upgrade.code.walk import dotted, is_super, last_name, string, walk
from npu_upgrade.program.absent import lacks
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.places import calls_of, files_with
from npu_upgrade.program.program import ClassSymbol, File, Method

ABOUT = "names in strings that the module asked has not, no class has, no caller gives, or nothing reads"

_ASKS = {"getattr", "hasattr", "setattr"}
_REGISTER = "register_oot"


def check(world: World) -> Iterator[Finding]:
    for file in world.files:
        yield from _looped(file, world)
        if _REGISTER in file.source:
            yield from _registered(file, world)
        yield from _given_to_nobody(file, world)
        for cls in file.classes.values():
            for method, models in overriding(cls):
                if kwarg := method.node.args.kwarg:
                    yield from _ungiven(method, kwarg.arg, models, world)


def _given_to_nobody(file: File, world: World) -> Iterator[Finding]:
    """Keywords of a call, put under a string into a mapping that it spreads, which stand nowhere else."""
    for scope in functions_of(file):
        spread = {
            dotted(one.value)
            for call in walk(scope.node)
            if isinstance(call, ast.Call)
            for one in call.keywords
            if one.arg is None
        }
        for node in walk(scope.node):
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store):
                continue
            key = node.slice
            if dotted(node.value) not in spread or not string(key).isidentifier():
                continue
            mentions = itertools.islice(Mentions(world.program).of(string(key)), 2)
            if [one.path for one in mentions] == [file.path]:
                what = f"{scope.name} gives {string(key)} under that name, which stands nowhere else"
                yield _finding("given-to-nobody", file, key, scope.name, string(key), what)


def _ungiven(method: Method, kwargs: str, models: list[Method], world: World) -> Iterator[Finding]:
    """Keywords that an override asks for and no call of its name gives; all calls say what they give."""
    asked = [one[1] for one in map(_key, walk(method.node)) if one and one[0] == kwargs]
    if not asked or any(model.node.args.kwarg for model in models):
        return
    packages = {owner.file.path.partition("/")[0] for owner in method.owner.mro}
    calls = [call for package in packages for call in calls_of(world.program, package, method.name)]
    # a method that goes on to the one that it overrides gives what it was given
    outer = [call for call in calls if not is_super(getattr(call.func, "value", None))]
    if not outer or any(map(is_spread, outer)):
        return
    given = {one.arg for call in outer for one in call.keywords}
    takes = {arg.arg for model in models for arg in named_of(model.node.args)}
    for key in asked:
        if string(key) not in given | takes:
            what = f"{method.qualname} asks its keywords for {string(key)}, which no call of it gives"
            yield _finding("ungiven", method.owner.file, key, method.owner.name, string(key), what)


def _key(node: ast.AST) -> tuple[str, ast.expr] | None:
    """The mapping and the key of ``kwargs.get("key")``, ``kwargs.pop("key")`` and ``kwargs["key"]``."""
    called = node.func if isinstance(node, ast.Call) and node.args else None
    if isinstance(called, ast.Attribute) and isinstance(node, ast.Call) and called.attr in ("get", "pop"):
        return (dotted(called.value), node.args[0]) if string(node.args[0]) else None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and string(node.slice):
        return dotted(node.value), node.slice
    return None


def _looped(file: File, world: World) -> Iterator[Finding]:
    """Loops over names that ask a module or class for each; one that is missing is passed over in silence."""
    reader = FileImports(file, world)
    for loop in (node for node in file.nodes if isinstance(node, ast.For)):
        items = _strings(loop.iter, file)
        for owner, is_set in _owners(loop, reader, file).items() if items else ():
            missing = [item for item in items if lacks(world.program, owner, string(item))]
            # What has none of them may be another version's, unless the loop is there to replace them.
            for item in missing if is_set or len(missing) < len(items) else ():
                what = f"{owner} has no {string(item)}, which a loop asks it for"
                yield _finding("asked", file, item, owner.rpartition(".")[2], string(item), what)


def _strings(expr: ast.expr, file: File) -> list[ast.expr]:
    """The strings that a loop goes over, given there or in a constant of the file."""
    stmt = file.values.get(expr.id) if isinstance(expr, ast.Name) else None
    value = stmt.value if isinstance(stmt, (ast.Assign, ast.AnnAssign)) else expr
    items = value.elts if isinstance(value, (ast.Tuple, ast.List, ast.Set)) else []
    return list(items) if all(string(item) for item in items) else []


def _owners(loop: ast.For, reader: FileImports, file: File) -> dict[str, bool]:
    """The modules and classes that the loop asks for the names it goes over, with whether it sets them."""
    found: dict[str, bool] = {}
    for call in (node for stmt in loop.body for node in walk(stmt) if isinstance(node, ast.Call)):
        asks = last_name(call.func) in _ASKS and len(call.args) > 1 and isinstance(loop.target, ast.Name)
        named = asks and dotted(call.args[1]) == last_name(loop.target)
        if named and (owner := _owner(call.args[0], reader, file)):
            found[owner] = found.get(owner, False) or last_name(call.func) == "setattr"
    return found


def _owner(expr: ast.expr, reader: FileImports, file: File) -> str:
    """The module or class that an expression stands for, by import or by ``import_module``."""
    owners = set(reader.owners(expr, "_"))
    name = dotted(expr)
    for node in file.nodes:
        if isinstance(node, ast.Assign) and any(dotted(target) == name for target in node.targets):
            call = node.value
            by_name = isinstance(call, ast.Call) and last_name(call.func) == "import_module" and call.args
            owners.add(string(call.args[0]) if by_name and isinstance(call, ast.Call) else "")
    (owner,) = owners if len(owners) == 1 else ("",)
    return owner if owner and reader.program.judges(owner) else ""


def _registered(file: File, world: World) -> Iterator[Finding]:
    """Tables of classes to register in place of upstream's, by the name of a class that there is not."""
    for table in (node for node in file.nodes if isinstance(node, ast.Dict)):
        for key, value in zip(table.keys, table.values, strict=True):
            symbol = file.resolve(value) if dotted(value) else None
            upstream = isinstance(symbol, ClassSymbol) and any(
                one.project == "vllm" for one in symbol.mro[1:]
            )
            if key and string(key) and upstream and not _is_class(string(key), world):
                what = f"{last_name(value)} is registered as {string(key)}, and no class of vllm is called so"
                yield _finding("registered", file, key, last_name(value), string(key), what)


def _is_class(name: str, world: World) -> bool:
    """Whether vllm has a class of that name, by which one is replaced; it may be registered by another."""
    there = re.compile(rf"^\s*class {name}\b", re.MULTILINE)
    return any(there.search(text) for _, text in files_with(world.program, "vllm", name))


def _finding(kind: str, file: File, at: ast.expr, owner: str, name: str, what: str) -> Finding:
    return Finding(
        kind=kind,
        owner=owner,
        subject=name,
        what=what,
        here=side(file, at, string(at)),
        there=None,
        incident="A",
        why="nothing fails: what the name is for is left out without a word",
        todo="name what is there now",
    )
