"""Operators that are called or taken apart otherwise than their schema says, or, where nothing declares
them, than everywhere else in the trees.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.operator_schemas import OPERATORS, Schema, Schemas
from npu_upgrade.audit.overrides import functions_of
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function, misfit
from npu_upgrade.code.walk import dotted, last_name, walk
from npu_upgrade.program.places import files_with
from npu_upgrade.program.program import File

ABOUT = "operators called or taken apart otherwise than their schema, or all other uses, say"

_FEWEST = 2  # other uses, all alike


@dataclass(frozen=True)
class Use:
    """A call of an operator; ``taken`` is the number of results it is taken apart into, 0 for none, 1 where
    what it gives is used as one tensor."""

    file: File
    call: ast.Call
    taken: int

    @property
    def keywords(self) -> frozenset[str]:
        return frozenset(keyword.arg for keyword in self.call.keywords if keyword.arg)

    @property
    def is_plain(self) -> bool:
        """Whether all that it gives is written out."""
        starred = any(isinstance(arg, ast.Starred) for arg in self.call.args)
        return not starred and all(keyword.arg for keyword in self.call.keywords)


def check(world: World) -> Iterator[Finding]:
    audited = {id(file) for file in world.files}
    schemas = Schemas(world)
    mine: list[tuple[str, Use]] = []
    for file in (*world.files, *_beside(world)):
        for name, use in ((name, use) for name, uses in _uses(file).items() for use in uses):
            if declared := schemas.of(name):
                yield from _against(name, use, declared)
            elif id(file) in audited:
                mine.append((name, use))
    others: dict[str, list[Use]] = {name: [] for name, _ in mine}
    for package in world.program.trees.keys() - {"vllm"}:
        for path in world.program.paths(package) if others else ():
            text = world.program.text(path)
            if any(f"{name.rpartition('.')[2]}(" in text for name in others):
                file = world.program.file(path)
                if file and id(file) not in audited:
                    for name, uses in _uses(file).items():
                        others.get(name, []).extend(uses)
    for name, use in mine:
        yield from _judged(name, use, others[name])


def _beside(world: World) -> Iterator[File]:
    """The project's other files that call operators of NPUs."""
    audited = {file.path for file in world.files}
    for path, text in files_with(world.program, world.side.project.package, "torch_npu"):
        file = world.program.file(path) if path not in audited and "torch_npu." in text else None
        yield from [file] if file else []


def _against(name: str, use: Use, schemas: Sequence[Schema]) -> Iterator[Finding]:
    """What no schema of the operator allows."""
    reasons = [misfit(use.call, schema.node, bound=False) for schema in schemas]
    numbers = {schema.results for schema in schemas}
    if all(reasons):
        yield _finding("schema", name, use, f"calls {name}(), which {reasons[0]}", schemas[0].place)
    elif use.taken and None not in numbers and use.taken not in numbers:
        takes = (
            f"{use.taken} results of {name}()" if use.taken > 1 else f"what {name}() returns for one tensor"
        )
        what = f"takes {takes}, and it returns {schemas[0].results}"
        yield _finding("results", name, use, what, schemas[0].place)


def _uses(file: File) -> dict[str, list[Use]]:
    """The calls of operators in a file, by their dotted names."""
    if not any(root in file.source for root in OPERATORS):
        return {}
    taken = {
        id(node.value): len(target.elts)
        for node in file.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in target.elts)
    }
    taken |= {id(value): 1 for value in _as_one(file)}
    found: dict[str, list[Use]] = {}
    for node in file.nodes:
        if isinstance(node, ast.Call) and (name := dotted(node.func)).startswith(OPERATORS):
            found.setdefault(name, []).append(Use(file, node, taken.get(id(node), 0)))
    return found


def _as_one(file: File) -> Iterator[ast.expr]:
    """What is used as one tensor: asked for an attribute, reckoned with, or returned by a hint."""
    for node in file.nodes:
        if isinstance(node, ast.Attribute):
            yield node.value
        elif isinstance(node, ast.BinOp):
            yield from (node.left, node.right)
        elif isinstance(node, Function) and last_name(node.returns) == "Tensor":
            yield from (one.value for one in walk(node) if isinstance(one, ast.Return) and one.value)


def _judged(name: str, use: Use, others: Sequence[Use]) -> Iterator[Finding]:
    numbers = {other.taken for other in others if other.taken > 1}
    apart = [other for other in others if other.taken > 1]
    if use.taken > 1 and len(apart) >= _FEWEST and len(numbers) == 1 and use.taken not in numbers:
        (number,) = numbers
        what = f"takes {use.taken} results of {name}(), and all others take {number}"
        yield _finding("results", name, use, what, _place(apart[0]))
    plain = [other for other in others if other.is_plain and other.keywords]
    if not use.is_plain or len(plain) < _FEWEST:
        return
    always = frozenset.intersection(*(other.keywords for other in plain)) - use.keywords
    never = use.keywords - frozenset.union(*(other.keywords for other in plain))
    given = len(use.call.args)
    if always and never and all(len(other.call.args) >= given for other in plain):
        what = f"gives {name}() {', '.join(sorted(never))}, and all others give {', '.join(sorted(always))}"
        yield _finding("keyword", name, use, what, _place(plain[0]))


def _place(use: Use) -> Side:
    return side(use.file, use.call, unparse(use.call))


def _finding(kind: str, name: str, use: Use, what: str, there: Side) -> Finding:
    scopes = functions_of(use.file)
    scope = next((one.name for one in scopes if any(node is use.call for node in walk(one.node))), "")
    return Finding(
        kind=kind,
        owner=scope,
        subject=f"{name}: {what.partition(', and ')[0]}",
        what=f"{scope or use.file.path} {what}",
        here=_place(use),
        there=there,
        incident="S",
        why="the operator has one schema, and the call raises where it does not fit that",
        todo="call it as its schema, or the others, say",
    )
