"""Results and states with another number of elements than the code that takes them apart expects."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.calls.arities import Arities, ArityReader, method_arities
from npu_upgrade.audit.calls.overrides import overriding
from npu_upgrade.audit.calls.state_use import StateProblem, state_problems
from npu_upgrade.audit.calls.unpackings import Unpacking, wrong_unpackings
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import World
from npu_upgrade.program.callees import resolver_of
from npu_upgrade.program.program import Method
from npu_upgrade.program.scope import Scope

NAME = "arity"
ABOUT = "tuples and states with another number of elements than where they are unpacked"
_LONG = 120


def check(world: World) -> Iterator[Finding]:
    reader = ArityReader(resolver_of(world.program))
    told: set[int] = set()  # what a place that takes it apart has judged already
    for wrong in wrong_unpackings(world, reader, told):
        told.add(id(wrong.source.node) if wrong.source else 0)
        yield _unpacked(wrong)
    for cls in world.classes:
        for method, parents in overriding(cls):
            if id(method.node) not in told:
                yield from _overridden(method, parents, reader)
    for problem in state_problems(world, reader):
        yield _state(problem)


def _unpacked(wrong: Unpacking) -> Finding:
    scope, source = wrong.scope, wrong.source
    text = ast.unparse(wrong.value)
    gives = f"{source.name if source else text} gives {_numbers(wrong.arities)}"
    here = _side(scope, wrong.line, f"takes {wrong.count} from {text}")
    there = Side(source.file.project, source.file.path, source.node.lineno, gives) if source else None
    if wrong.inherited and there:
        here, there = there, here
    return Finding(
        check=NAME,
        kind="index" if wrong.index else "unpack",
        owner=scope.name,
        subject=f"{wrong.count} of {_numbers(wrong.arities)}: {text.partition('(')[0]}",
        what=f"{scope.name or scope.file.path} takes {wrong.count} elements from {text}, and {gives}",
        here=here,
        there=there,
        incident="S",
        why="The statement raises ValueError or IndexError as soon as it runs.",
        todo="Take apart what is returned now; see what the element that came or went is for.",
        like="vllm-omni #2157",
    )


def _overridden(method: Method, parents: list[Method], reader: ArityReader) -> Iterator[Finding]:
    """An override whose tuples have another length than those of every parent."""
    own = method_arities(reader, method, method.owner)
    theirs = [method_arities(reader, parent, method.owner) for parent in parents]
    if not own or not all(theirs) or any(own & (arities or set()) for arities in theirs):
        return
    given, expected = _numbers(own), _numbers(frozenset().union(*filter(None, theirs)))
    parent = parents[0]
    yield Finding(
        check=NAME,
        kind="override",
        owner=method.owner.name,
        subject=f"{method.name}: {given} for {expected}",
        what=f"{method.qualname} returns {given} elements, {parent.qualname} returns {expected}",
        here=_method_side(method, f"returns {given} elements"),
        there=_method_side(parent, f"returns {expected} elements"),
        incident="S",
        why="A caller that takes the parent's result apart fails on the override's.",
        todo="Return what the parent returns now, in its order.",
        like="vllm-ascend #10188",
    )


def _state(problem: StateProblem) -> Finding:
    return Finding(
        check=NAME,
        kind=problem.kind,
        owner=problem.owner,
        subject=problem.subject,
        what=problem.what,
        here=problem.here,
        there=problem.there,
        incident="S",
        why="A state is made by one method and taken apart by another; both have to mean the same fields.",
        todo="Bring the state's fields, where it is made and where it is taken apart into line.",
        like="vllm-ascend #6331",
    )


def _numbers(arities: Arities) -> str:
    return " or ".join(map(str, sorted(arities)))


def _side(scope: Scope, line: int, text: str) -> Side:
    return Side(scope.file.project, scope.file.path, line, text[:_LONG])


def _method_side(method: Method, text: str) -> Side:
    return Side(method.owner.file.project, method.owner.file.path, method.node.lineno, text)
