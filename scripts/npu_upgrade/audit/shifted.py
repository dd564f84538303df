"""Positional arguments that land on another parameter than in the matched old pair.

A parameter was put in front of others, or they changed places, and the count still fits. Only
an argument that stands at the same place in the old pair's call counts: a call that followed
the change has moved it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from npu_upgrade.audit.type_hints import lost_parameters
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function, last_name
from npu_upgrade.code.walk import dotted, walk
from npu_upgrade.program.constructors import constructor
from npu_upgrade.program.scope import Callee, Scope

_KINDS = {"staticmethod", "classmethod"}


@dataclass(frozen=True)
class Shift:
    """The first argument of a call that lands elsewhere: ``had`` was its parameter, ``has`` is."""

    argument: ast.expr
    had: ast.arg
    has: ast.arg
    before: Function


class Shifts:
    """Compares callees with those of the old world; what they were is kept."""

    def __init__(self, old: World) -> None:
        self.old = old
        self._before: dict[int, Function | None] = {}

    def of(self, call: ast.Call, callee: Callee, scope: Scope) -> Shift | None:
        """What shifted in a call that fits; None where nothing did, or the old pair does not tell."""
        before = self.before(callee) if call.args else None
        if before is None or _kinds(before) != _kinds(callee.node):
            return None
        now, then = (_places(node)[int(callee.bound) :] for node in (callee.node, before))
        named = {arg.arg for arg in [*_places(callee.node), *callee.node.args.kwonlyargs]}
        for place, (argument, has, had) in enumerate(zip(call.args, now, then, strict=False)):
            if isinstance(argument, ast.Starred):
                return None
            moved = has.arg != had.arg and (had.arg in named or _contradict(had, has, callee))
            if moved and not _is_meant(argument, has) and self._stood(call, place, scope):
                if _is_upstreams(call, callee, scope):
                    return None
                return Shift(argument, had, has, before)
        return None

    def before(self, callee: Callee) -> Function | None:
        """The old pair's function; None when it is not there or has the same text up to its body."""
        key = id(callee.node)
        if key not in self._before:
            self._before[key] = self._find(callee)
        return self._before[key]

    def _find(self, callee: Callee) -> Function | None:
        path = callee.file.path
        tree = self.old.program.trees.get(path.partition("/")[0])
        if tree is None or not tree.exists(path):
            return None
        text = tree.read(path)
        if text == callee.file.source or (not callee.makes and _head(callee) in text):
            return None
        file = self.old.program.file(path)
        if file is None:
            return None
        if callee.owner is None:
            found = file.functions.get(callee.node.name)
            return found.node if found else None
        cls = file.classes.get(callee.owner.name)
        if cls is None or callee.makes:
            return constructor(cls) if cls else None
        method = cls.lookup(callee.node.name)
        return method.node if method else None

    def _stood(self, call: ast.Call, place: int, scope: Scope) -> bool:
        """Whether the old pair's function gives the same argument to the same callee at this place."""
        text = (ast.unparse(call.func), ast.unparse(call.args[place]))
        node = self._same_scope(scope)
        calls = (inner for inner in walk(node) if isinstance(inner, ast.Call)) if node else ()
        given = (inner for inner in calls if len(inner.args) > place)
        return any(text == (ast.unparse(inner.func), ast.unparse(inner.args[place])) for inner in given)

    def _same_scope(self, scope: Scope) -> Function | ast.Module | None:
        file = self.old.program.file(scope.file.path)
        if file is None or isinstance(scope.node, ast.Module):
            return file.tree if file else None
        if scope.owner is None:
            found = file.functions.get(scope.node.name)
            return found.node if found else None
        cls = file.classes.get(scope.owner.name)
        method = cls.methods.get(scope.node.name) if cls else None
        return method.node if method else None


def _is_upstreams(call: ast.Call, callee: Callee, scope: Scope) -> bool:
    """Whether the files of the callee, or of the classes that are built upon, hold the same call."""
    files = [callee.file, *(cls.file for cls in (scope.cls.mro if scope.cls else ()))]
    text, name = ast.unparse(call), last_name(call.func)
    return any(
        text == ast.unparse(node)
        for file in dict.fromkeys(files)
        if file.project != scope.file.project
        for node in file.nodes
        if isinstance(node, ast.Call) and last_name(node.func) == name
    )


def _head(callee: Callee) -> str:
    """The source of a function up to its body."""
    first, last = callee.node.lineno - 1, callee.node.body[0].lineno - 1
    return "\n".join(callee.file.source.split("\n")[first : max(last, first + 1)])


def _places(node: Function) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args]


def _kinds(node: Function) -> set[str]:
    return {last_name(item) for item in node.decorator_list} & _KINDS


def _contradict(had: ast.arg, has: ast.arg, callee: Callee) -> bool:
    return bool(lost_parameters(had.annotation, has.annotation, (callee.file, callee.file)))


def _is_meant(argument: ast.expr, has: ast.arg) -> bool:
    """Whether an argument bears the name of the parameter it lands on."""
    name = dotted(argument).rpartition(".")[2].lstrip("_")
    return bool(name) and name == has.arg.lstrip("_")
