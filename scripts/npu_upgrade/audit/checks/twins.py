"""Classes for the device that stand in for another one of the project, and answer otherwise than that does.

A twin has the same name but for the words of devices, and neither derives from the other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set

from npu_upgrade.audit.checks.arity import ArityReader, differ, elements, method_arities
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import device_files, is_stub
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function, named_of, not_taken, places_of, signature
from npu_upgrade.code.walk import reached, string, walk
from npu_upgrade.ground.tables import cut
from npu_upgrade.lineage.dialect import is_device_bound, is_for_device, neutral
from npu_upgrade.program.callees import resolver_of
from npu_upgrade.program.places import files_with
from npu_upgrade.program.program import ClassSymbol, Method

ABOUT = "classes for the device that answer otherwise than those they stand in for"

_FIRST = 3  # statements of a method that may be conditions to leave it


def check(world: World) -> Iterator[Finding]:
    if not world.of_omni:
        return
    reader = ArityReader(resolver_of(world.program))
    paired = {id(pair.npu) for pair in world.pairs}
    for cls in _for_device(world):
        twin = _twin(cls, world) if id(cls) not in paired else None
        if twin is None:
            continue
        for method, other in _shared(cls, twin):
            yield from _answers(method, other, reader)
            yield from _takes(method, other)
            yield from _guards(method, other)
        yield from _asked(cls, twin, world)


def _for_device(world: World) -> list[ClassSymbol]:
    device = world.side.project.device
    beside = (cls for file in device_files(world) for cls in file.classes.values())
    return [cls for cls in (*world.side.classes, *beside) if is_for_device(cls.name, device)]


def _twin(cls: ClassSymbol, world: World) -> ClassSymbol | None:
    """The one class of the project with its name but for devices; None where there are several."""
    device, package = world.side.project.device, world.side.project.package
    name = neutral(cls.name, device)
    named = re.compile(rf"^class (\w*{name}\w*)\b", re.MULTILINE)
    found: list[ClassSymbol] = []
    for path, text in files_with(world.program, package, name):
        names = [one for one in named.findall(text) if one != cls.name and neutral(one, device) == name]
        file = world.program.file(path) if names else None
        found += [one for key in names if file and (one := file.classes.get(key))]
    found = [one for one in found if not is_for_device(one.name, device)]
    (twin,) = found if len(found) == 1 else (None,)
    return twin if twin and twin not in cls.mro and cls not in twin.mro else None


def _shared(cls: ClassSymbol, twin: ClassSymbol) -> Iterator[tuple[Method, Method]]:
    for name, method in cls.methods.items():
        other = twin.methods.get(name)
        if other and not name.startswith("__") and not is_stub(method.node) and not is_stub(other.node):
            yield method, other


def _answers(method: Method, other: Method, reader: ArityReader) -> Iterator[Finding]:
    own, theirs = (method_arities(reader, one, one.owner) for one in (method, other))
    if own and theirs and differ(own, [theirs]):
        what = f"{method.qualname} returns {elements(own)}, {other.qualname} returns {elements(theirs)}"
        yield _finding("returns", method, other, f"{elements(own, '')} for {elements(theirs, '')}", what)


def _takes(method: Method, other: Method) -> Iterator[Finding]:
    """Parameters that callers of the twin give and the other does not take, or that it asks for besides."""
    own, theirs = (len(places_of(one.node.args)) for one in (method, other))
    if own == theirs and len(named_of(method.node.args)) == len(named_of(other.node.args)):
        return  # the same ones, under other names
    if lacking := not_taken(method.node, other.node):
        what = f"{method.qualname} does not take what {other.qualname} does: {', '.join(lacking)}"
        yield _finding("takes", method, other, ", ".join(lacking), what)


def _guards(method: Method, other: Method) -> Iterator[Finding]:
    """Conditions under which the twin does nothing, of which the device's method asks for nothing."""
    asked = {word for test in _tests(method.node) for word in _words(test)}
    for stmt in reached(other.node.body)[:_FIRST]:
        leaves = isinstance(stmt, ast.If) and isinstance(stmt.body[0], ast.Return) and not stmt.orelse
        if isinstance(stmt, ast.If) and leaves and not is_device_bound(text := unparse(stmt.test)):
            words = _words(stmt.test)
            if words and not words & asked and _sets(method, words):
                what = f"{method.qualname} goes on where {other.qualname} leaves at once: if {cut(text, 80)}"
                yield _finding("guard", method, other, cut(text, 80), what)


def _sets(method: Method, words: Set[str]) -> bool:
    """Whether the method sets what the condition is about, as one does that is to run once."""
    targets = (one for node in walk(method.node) if isinstance(node, ast.Assign) for one in node.targets)
    return any(isinstance(one, ast.Attribute) and one.attr in words for one in targets)


def _tests(node: Function) -> Iterator[ast.expr]:
    for one in walk(node):
        if isinstance(one, (ast.If, ast.IfExp, ast.While)):
            yield one.test


def _words(node: ast.AST) -> set[str]:
    """The attributes that an expression asks for, by name or in a string."""
    found = walk(node)
    attributes = {one.attr for one in found if isinstance(one, ast.Attribute)}
    strings = {string(one) for one in found if string(one).isidentifier()}
    return (attributes | strings) - {"self"}


def _asked(cls: ClassSymbol, twin: ClassSymbol, world: World) -> Iterator[Finding]:
    """Methods of the twin that those who make both ask for, and the device's class has not."""
    package = world.side.project.package
    users = [text for path, text in files_with(world.program, package, cls.name) if path != cls.file.path]
    users = [text for text in users if twin.name in text and f"class {twin.name}" not in text]
    if cls.is_open or any(owner.outside for owner in cls.mro) or not users:
        return
    have = {name for owner in cls.mro for name in (*owner.methods, *owner.fields, *owner.assigned)}
    for name, method in twin.methods.items():
        asked = re.compile(rf"(?<!self)(?<!super\(\))\.{name}\b(?!\s*=[^=])")
        if name not in have and not name.startswith("__") and any(map(asked.search, users)):
            what = f"{cls.name} has no {name}, which users of {twin.name} ask for"
            yield _finding("asked", method, method, name, what, cls)


def _finding(
    kind: str, method: Method, other: Method, subject: str, what: str, cls: ClassSymbol | None = None
) -> Finding:
    return Finding(
        kind=kind,
        owner=cls.name if cls else method.qualname,
        subject=f"{method.name}: {subject}",
        what=what,
        here=side(cls) if cls else side(method, text=signature(method.node)),
        there=side(other, text=signature(other.node)),
        incident="S",
        why="whoever holds either of them fails on, or misses, what the other one does",
        todo=f"give {cls.name if cls else method.qualname} what {other.qualname} has",
    )
