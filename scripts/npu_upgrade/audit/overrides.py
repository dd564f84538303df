"""Methods with those they override."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence

from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import is_text, last_name, walk
from npu_upgrade.ground.held import held
from npu_upgrade.lineage.dialect import is_for_device
from npu_upgrade.program.callees import Resolver
from npu_upgrade.program.program import ClassSymbol, File, Method
from npu_upgrade.program.scope import Scope, scope_of
from npu_upgrade.program.self_use import methods_on


def overriding(cls: ClassSymbol) -> Iterator[tuple[Method, list[Method]]]:
    """The methods of a class's own body with the methods they stand for, nearest first.

    A parent's method that another parent overrides is left out: what that one lacks is its own affair.
    """
    for name, method in cls.methods.items():
        if not name.startswith("__"):
            above = [owner for owner in cls.mro[1:] if name in owner.methods]
            nearest = [owner for owner in above if not any(owner in other.mro[1:] for other in above)]
            if nearest:
                yield method, [owner.methods[name] for owner in nearest]


def models_of(cls: ClassSymbol, name: str, world: World) -> list[Method]:
    """What a method of a class stands for: all that it overrides, and the GPU side's."""
    mirror = world.side.mirror(cls)
    owners = [*cls.mro[1:], *(mirror.mro if mirror else ())]
    return [owner.methods[name] for owner in owners if name in owner.methods]


def is_stub(node: Function) -> bool:
    """Whether a method only says that subclasses have it."""
    done = [stmt for stmt in node.body if not is_text(stmt)]
    empty = all(isinstance(stmt, (ast.Raise, ast.Pass)) for stmt in done)
    return empty or "abstractmethod" in map(last_name, node.decorator_list)


def may_fall_off(body: Sequence[ast.stmt]) -> bool:
    """Whether the end of a block may be reached, so that a function that ends there returns nothing."""
    last = body[-1]
    if isinstance(last, (ast.Return, ast.Raise)):
        return False
    if isinstance(last, ast.If):
        return not last.orelse or may_fall_off(last.body) or may_fall_off(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return may_fall_off(last.body)
    if isinstance(last, ast.Try):
        ends = [last.orelse or last.body, *(handler.body for handler in last.handlers)]
        return any(map(may_fall_off, ends)) and (not last.finalbody or may_fall_off(last.finalbody))
    if isinstance(last, ast.Match):
        return not any(ast.unparse(case.pattern) == "_" for case in last.cases) or any(
            may_fall_off(case.body) for case in last.cases
        )
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return any(isinstance(node, ast.Break) for node in walk(last))
    return True


def forgets(new: Function, original: Function, resolver: Resolver) -> bool:
    """Whether a function returns something and may end without it, where the original always returns."""
    given = (resolver.gives(node) and not resolver.body(node).yields for node in (new, original))
    return all(given) and may_fall_off(new.body) and not may_fall_off(original.body)


def audited_scopes(world: World, resolver: Resolver) -> Iterator[Scope]:
    """Every function of the audited files; methods once per class on whose objects they run. With those
    that are named for the device, wherever they are."""
    for file in world.files:
        functions = (Scope(file, function.node) for function in file.functions.values())
        yield from filter(world.concerns, (Scope(file, file.tree), *functions))
    yield from _methods(world, resolver, True)
    yield from filter(world.concerns, device_scopes(world))


@held
def device_scopes(world: World) -> tuple[Scope, ...]:
    """What the project's other files have for the device: functions and methods that are named for it, and
    all methods of a class that is."""
    device = world.side.project.device
    if not world.looks_beside or not device:
        return ()
    program, package = world.program, world.side.project.package
    audited = {file.path for file in world.files}
    paths = {path for word in (device, device.upper()) for path in program.holding(package, word)} - audited
    texts = ((path, program.text(path)) for path in sorted(paths))
    wanted = (
        path
        for path, text in texts
        if _names_something(text, device) and (not world.words or world.words.search(text))
    )
    files = map(program.file, wanted)
    found = (scope for file in files if file for scope in functions_of(file))
    return tuple(scope for scope in found if any(is_for_device(name, device) for name in _names(scope)))


@functools.lru_cache(maxsize=4096)
def _names_something(text: str, device: str) -> bool:
    """Whether a text has a function or a class that is named for the device; asked of many trees."""
    named = rf"^\s*(?:async )?(?:class|def) \w*(?:{device}|{device.upper()})"
    return re.search(named, text, re.MULTILINE) is not None


def device_files(world: World) -> list[File]:
    """The other files of the project that have something for the device."""
    return list({scope.file.path: scope.file for scope in device_scopes(world)}.values())


def _names(scope: Scope) -> tuple[str, ...]:
    own = scope.node.name if isinstance(scope.node, Function) else ""
    return (own, scope.owner.name) if scope.owner else (own,)


def inherited_scopes(world: World, resolver: Resolver) -> Iterator[Scope]:
    """The methods of other files that run on objects of audited classes, once per class."""
    yield from _methods(world, resolver, False)


def _methods(world: World, resolver: Resolver, own: bool) -> Iterator[Scope]:
    audited = {id(file) for file in world.files}
    for cls in world.side.classes:
        for method in methods_on(cls):
            if (id(method.owner.file) in audited) is own and world.concerns(scope := scope_of(cls, method)):
                yield scope


def functions_of(file: File) -> Iterator[Scope]:
    """The functions of a file and the methods of its classes."""
    yield from (Scope(file, function.node) for function in file.functions.values())
    for cls in file.classes.values():
        yield from (scope_of(cls, method) for method in cls.methods.values())


def users_of(world: World) -> Iterator[Scope]:
    """The functions of the project's other files that name a package of the audited ones."""
    for file in _users(world) if world.looks_beside else ():
        yield from filter(world.concerns, functions_of(file))


@held
def _users(world: World) -> list[File]:
    """The files that name a package of the audited ones, which are none of these."""
    program, top = world.program, world.side.project.package
    audited = {file.path for file in world.files}
    packages = {path.rpartition("/")[0].replace("/", ".") for path in audited} - {top}
    outer = [one for one in packages if not any(one.startswith(f"{other}.") for other in packages)]
    named = re.compile("|".join(rf"\b{re.escape(package)}\b" for package in sorted(outer)) or "$^")
    holding = {path for package in outer for path in program.holding(top, package)} - audited
    found = (path for path in sorted(holding) if named.search(program.text(path)))
    return [file for path in found if (file := program.file(path))]
