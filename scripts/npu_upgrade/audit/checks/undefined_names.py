"""Names that code reads and nothing binds: what is left of a parameter, a local or an import that went."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import device_files, functions_of, models_of
from npu_upgrade.audit.world import World
from npu_upgrade.code.flow import may_be_unbound
from npu_upgrade.code.names import ALWAYS_DEFINED, names_of
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.statements import split_statements
from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import File
from npu_upgrade.program.scope import Scope, scope_of

ABOUT = "names that a file reads and nothing in it binds, and locals that came to be read before they are set"


def check(world: World) -> Iterator[Finding]:
    for file in (*world.files, *device_files(world)):
        if "*" in file.imports or "globals()" in file.source:
            continue
        names = names_of(file.source)
        for name in sorted(names.run_time - names.bound - ALWAYS_DEFINED):
            yield _finding(file, name)
    yield from _too_early(world, world.old) if world.old else ()


def _too_early(world: World, before: World) -> Iterator[Finding]:
    """Locals that a path through a function reads before it binds them, where no path did in the old pair.

    What the GPU side's method does, or upstream's, from which it may be copied, is guarded in ways that no
    path shows.
    """
    for file in world.files:
        old = before.program.file(file.path)
        if old and old.source == file.source:
            continue
        known = {scope.name: scope for scope in functions_of(old)} if old else {}
        for scope in functions_of(file):
            was = known.get(scope.name)
            names = _unbound(scope) - (_unbound(was) if was else frozenset())
            for name in sorted(names - _unbound_elsewhere(scope, world) if names else ()):
                yield _early(scope, name)


def _unbound(scope: Scope) -> frozenset[str]:
    if not isinstance(scope.node, Function):
        return frozenset()
    lines = scope.file.lines[scope.node.lineno - 1 : scope.node.end_lineno]
    return may_be_unbound(split_statements("\n".join(lines)))


def _unbound_elsewhere(scope: Scope, world: World) -> frozenset[str]:
    """The same of what the function stands for, where it is a method."""
    last = scope.name.rpartition(".")[2]
    models = models_of(scope.owner, last, world) if scope.owner else ()
    return frozenset[str]().union(*(_unbound(scope_of(one.owner, one)) for one in models))


def _early(scope: Scope, name: str) -> Finding:
    reads = (node for node in walk(scope.node) if isinstance(node, ast.Name) and _reads(node, name))
    node = min(reads, key=lambda one: one.lineno, default=scope.node)
    return Finding(
        kind="unbound-local",
        owner=scope.name,
        subject=name,
        what=f"{scope.name} reads {name} on a path that has not set it",
        here=side(scope.file, node, name),
        there=None,
        incident="A",
        why="the statement raises UnboundLocalError on that path",
        todo=f"set {name} before, or see what it is called now",
    )


def _finding(file: File, name: str) -> Finding:
    scopes = [scope for scope in functions_of(file) if any(_reads(node, name) for node in walk(scope.node))]
    node = next(node for node in file.nodes if _reads(node, name))
    owner = scopes[0].name if scopes else ""
    return Finding(
        kind="undefined-name",
        owner=owner,
        subject=name,
        what=f"{owner or file.path} reads {name}, which nothing in the file binds",
        here=side(file, node, name),
        there=None,
        incident="A",
        why="the statement raises NameError when it is reached",
        todo=f"take {name} as a parameter, import it, or see what it is called now",
    )


def _reads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
