"""Calls that a GPU method makes and its NPU counterpart, with all it calls, does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.parity.counterparts import Both, both_sides
from npu_upgrade.audit.parity.gaps import does, fact_text, facts_text, gaps, lacking
from npu_upgrade.audit.parity.lost import STEP, lost, lost_in
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import walk
from npu_upgrade.lineage.dialect import is_device_bound, is_replaced
from npu_upgrade.program.facts import MEMBER, METHOD, Fact, facts_of
from npu_upgrade.program.program import Method

ABOUT = "hooks and helpers that a GPU method calls and its NPU counterpart does not"


_WHY = "the step is not taken on the NPU, and nothing says so"
_LIKE = "vllm-ascend #7875"


def check(world: World) -> Iterator[Finding]:
    told = {fact.name for gap in gaps(world, "method", "own-way", "hook") for fact in gap.lacking}
    for gap in gaps(world, "hook"):
        method = gap.npu or gap.gpu
        what = f"{gap.gpu.qualname} calls {facts_text(gap.lacking)}, {method.qualname} does not"
        yield lacking(gap, "not called", what, _WHY, _LIKE)
    for item in lost(world, STEP):
        if item.name.removeprefix("self.") not in told:
            yield lost_in(item, f"calls {item.name}()", item.name.removeprefix("self."))
    for both in both_sides(world):
        if world.of_omni:
            yield from _of_locals(both)
            yield from _of_returns(both)
        else:
            yield from _of_vllm(both, world.own)


def _of_locals(both: Both) -> Iterator[Finding]:
    """Steps that the GPU method takes with a local object, and the NPU method, which has it too, does not."""
    made, theirs = _locals(both.npu.node), _local_steps(both.gpu.node)
    for (name, step), node in theirs.items() if both.npu.name == both.gpu.name else ():
        used = any(isinstance(one, ast.Attribute) and one.attr == step for one in walk(both.npu.node))
        if name in made and not used and not is_device_bound(step):
            what = f"{both.gpu.qualname} calls {name}.{step}(), and {both.npu.qualname} does not"
            there = side(both.gpu, node.lineno, unparse(node))
            todo = "take the step, or waive it with the reason"
            yield _not_called(both, f"{name}.{step}", what, side(both.npu), there, todo)


def _of_returns(both: Both) -> Iterator[Finding]:
    """What the NPU method returns as it is, and the GPU method only through a call of its own."""
    ours, theirs = _returned(both.npu.node), _returned(both.gpu.node)
    made = _locals(both.npu.node)  # what is returned then may have been through it already
    for text, node in ours.items() if both.npu.name == both.gpu.name else ():
        calls = [
            one for one in theirs.values() if isinstance(one, ast.Call) and text in map(unparse, one.args)
        ]
        through = unparse(calls[0].func) if calls and text not in theirs else ""
        done = through and any(text in map(unparse, one.args) for one in _calls(both.npu.node, through))
        if through and not done and text not in made and isinstance(node, (ast.Name, ast.Attribute)):
            what = f"{both.npu.qualname} returns {text}, {both.gpu.qualname} only {unparse(calls[0])}"
            here = side(both.npu, node.lineno, f"return {text}")
            there = side(both.gpu, calls[0].lineno, unparse(calls[0]))
            todo = f"return it through {through}, or waive it with the reason"
            yield _not_called(both, f"{through} for {text}", what, here, there, todo)


def _calls(node: Function, name: str) -> list[ast.Call]:
    return [one for one in walk(node) if isinstance(one, ast.Call) and unparse(one.func) == name]


def _returned(node: Function) -> dict[str, ast.expr]:
    values = [one.value for one in walk(node) if isinstance(one, ast.Return) and one.value]
    return {unparse(value): value for value in values}


def _locals(node: Function) -> set[str]:
    return {one.id for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _local_steps(node: Function) -> dict[tuple[str, str], ast.Expr]:
    """The calls, for their effect alone, of methods of what is in a local name."""
    made = _locals(node)
    steps = [one for one in walk(node) if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    called = ((one, one.value.func) for one in steps if isinstance(one.value, ast.Call))
    return {
        (func.value.id, func.attr): one
        for one, func in called
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in made
    }


def _of_vllm(both: Both, own: str) -> Iterator[Finding]:
    """Steps that vllm's method takes for their effect, and the plugin's override does not."""
    if both.goes_on or not both.is_copied:
        return
    for fact in facts_of(both.gpu.owner.file, both.gpu.node).of.values():
        bound = is_device_bound(fact.name) or is_replaced(fact.name)
        if fact.effect and not bound and _is_known(both, fact, own) and not _is_taken(both, fact, own):
            what = f"{both.gpu.qualname} of vllm calls {fact_text(fact)}, {both.npu.qualname} does not"
            todo = "add the step, or say in the override why it is not needed"
            yield _not_called(both, fact.name, what, side(both.npu), side(both.gpu, fact.node.lineno), todo)


def _not_called(both: Both, name: str, what: str, here: Side, there: Side, todo: str) -> Finding:
    return Finding(
        kind="not called",
        owner=both.npu.owner.name,
        subject=f"{name} in {both.gpu.name}",
        what=what,
        here=here,
        there=there,
        incident="P",
        why=_WHY,
        todo=todo,
        like=_LIKE,
    )


def _is_known(both: Both, fact: Fact, own: str) -> bool:
    """Whether the NPU class deals with it at all: it has the method, or uses the member."""
    if fact.kind == METHOD:
        return fact.name in both.pair.npu_side.methods
    member = (METHOD, fact.name.partition(".")[0])
    return fact.kind == MEMBER and any(does(method, member) for method in _methods_of(both, own))


def _is_taken(both: Both, fact: Fact, own: str) -> bool:
    """Whether the override takes the step, in what it calls or in a method made for it."""
    reached = any(fact.key in step.facts for step in both.pair.npu_side.reach(both.npu).values())
    return reached or any(
        does(method, fact.key)
        and not ((above := both.pair.gpu_side.methods.get(method.name)) and does(above, fact.key))
        for method in _methods_of(both, own)
    )


def _methods_of(both: Both, own: str) -> list[Method]:
    return [method for method in both.pair.npu_side.methods.values() if method.owner.project == own]
