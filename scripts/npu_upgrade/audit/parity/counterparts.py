"""Methods that correspond to one another on the GPU and the NPU side, each two once."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from npu_upgrade.audit.world import Pair, World, on_npu_side
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.code.walk import walk
from npu_upgrade.ground.held import held
from npu_upgrade.lineage.dialect import translate
from npu_upgrade.lineage.downstream import class_names_in
from npu_upgrade.program.conditions import text_of
from npu_upgrade.program.facts import FUNCTION, Effective, Fact, facts_of
from npu_upgrade.program.program import File, Method
from npu_upgrade.threeway.align import weight

_WRITTEN_OUT = 0.3
# The files of a platform plugin whose overrides are copies of vllm's methods; elsewhere one is a rewrite.
_COPYING = re.compile(r"\w+/(v1/)?(_310p|worker)/.*(model_runner|worker)\w*\.py")


@dataclass(frozen=True)
class Both:
    """A GPU method and the NPU method that stands for it, or that has its text written out."""

    pair: Pair
    gpu: Method
    npu: Method

    @property
    def goes_on(self) -> bool:
        """Whether the NPU method calls the GPU side's too, as constructors do."""
        return id(self.gpu.node) in self.pair.npu_side.reach(self.npu)

    @property
    def is_copied(self) -> bool:
        """Whether the NPU method is one of a platform plugin's that repeat vllm's."""
        return bool(_COPYING.match(self.npu.owner.file.path))


@held
def both_sides(world: World) -> list[Both]:
    """All corresponding methods whose text is the project's own on either side."""
    found: dict[tuple[int, int], Both] = {}
    for pair in sorted(world.pairs, key=lambda pair: len(pair.npu.mro)):
        for item in _of_pair(pair, world):
            found.setdefault((id(item.gpu.node), id(item.npu.node)), item)
    return list(found.values())


def upstream_of(side: Effective, name: str, project: str = "vllm") -> Method | None:
    """The method of that name that a project below vllm-omni brings to a class."""
    found = (cls.methods[name] for cls in side.cls.mro if cls.project == project and name in cls.methods)
    return next(found, None)


def _of_pair(pair: Pair, world: World) -> Iterator[Both]:
    gpu, npu = pair.gpu_side, pair.npu_side
    ours, theirs = ("vllm-omni", "vllm-omni") if world.of_omni else ("vllm", world.own)
    for method in gpu.methods.values():
        if method.owner.project != ours:
            continue
        other = npu.methods.get(method.name)
        if other is None and world.of_omni:
            yield from (Both(pair, method, caller) for caller in _written_out(method, gpu, npu))
        elif (
            other
            and other.owner.project == theirs
            and (id(method.node) not in npu.reach(other) or method.name == "__init__")
        ):
            yield Both(pair, method, other)


def _written_out(method: Method, gpu: Effective, npu: Effective) -> Iterator[Method]:
    """The NPU methods that have the text of a GPU helper where the GPU side calls it."""
    for caller in gpu.callers.get(method.name, []):
        other = npu.methods.get(caller.name)
        if other and on_npu_side(other.owner.file):
            place = [(other.owner.file, other.node)]
            if share_within(method.owner.file, method.node, place) >= _WRITTEN_OUT:
                yield other


_TELLING = 3


@held
def statements_of(file: File, node: Function) -> tuple[Statement, ...]:
    """The statements of a function's body in the words of the NPU side; empty where that cannot be told."""
    start = node.body[0].lineno - 1
    source = "\n".join(file.source.split("\n")[start : node.end_lineno])
    try:
        wrapped = translate("if 1:\n" + source, class_names_in(file.program))
        return tuple(s for s in split_statements(wrapped)[1:] if s.key != END)
    except (SyntaxError, ValueError):
        return ()


def share_within(file: File, node: Function, others: Iterable[tuple[File, Function]]) -> float:
    """The share of a function's telling statements that stand in one of the others too."""
    own = {s.key for s in statements_of(file, node) if weight(s.key) >= _TELLING}
    there = {s.key for other in others for s in statements_of(*other)}
    return len(own & there) / len(own) if own else 0.0


def is_written_out(fact: Fact, gpu: Method, npu: Iterable[Method]) -> bool:
    """Whether a function of one expression stands in the NPU methods as that expression.

    ``fact`` is its call in the method ``gpu``.
    """
    calls = [n for n in walk(gpu.node) if isinstance(n, ast.Call) and n is fact.node]
    symbols = facts_of(gpu.owner.file, gpu.node).symbols
    found = [symbol for symbol in symbols if fact.kind == FUNCTION and symbol.node.name == fact.name]
    if not calls or not found or not isinstance(last := found[0].node.body[-1], ast.Return):
        return False
    statements = [n for n in found[0].node.body if not isinstance(n, ast.Expr)]
    if len(statements) != 1 or last.value is None:
        return False
    names = [arg.arg for arg in found[0].node.args.args]
    given = dict(zip(names, calls[0].args, strict=False)) | {
        k.arg: k.value for k in calls[0].keywords if k.arg
    }
    text = unparse(_Replace(given).visit(copy.deepcopy(last.value)))
    return any(text in text_of(method.node) for method in npu)


class _Replace(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.given.get(node.id, node)
