"""Keyword arguments that the GPU side passes to the same callee and the NPU side sets in no way."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.call_keywords import (
    Calls,
    calls_in,
    constructed,
    given_by_place,
    merged,
    renamed,
)
from npu_upgrade.audit.parity.counterparts import Both, both_sides, upstream_of
from npu_upgrade.audit.parity.gaps import PORT
from npu_upgrade.audit.parity.lost import KEYWORD, lost, lost_in
from npu_upgrade.audit.world import World, on_npu_side
from npu_upgrade.code.signatures import Function, named_of
from npu_upgrade.code.walk import string, walk
from npu_upgrade.lineage.dialect import is_device_bound, is_replaced
from npu_upgrade.program.program import ClassSymbol

ABOUT = "keyword arguments that the GPU side passes to the same callee and the NPU side does not"

_LOCAL = ("logger.", "np.", "torch.", "dict", "super", "record_function_or_nullcontext")


def check(world: World) -> Iterator[Finding]:
    found = list(_missing_now(world))
    yield from found
    told = {(finding.owner, finding.subject) for finding in found}
    for item in lost(world, KEYWORD):
        callee = item.among.removeprefix("self.")
        known = any(
            owner == item.npu.owner.name and subject.startswith(f"{callee}(") and f"{item.name}=" in subject
            for owner, subject in told
        )
        if not known and not item.among.startswith(_LOCAL):
            what = f"passes {item.name}= to {item.among}"
            yield lost_in(item, what, f"{callee}({item.name}=)")


def _missing_now(world: World) -> Iterator[Finding]:
    for both in both_sides(world):
        if world.of_omni:
            yield from _of_omni(both)
        else:
            yield from _of_constructors(both)
            yield from _of_methods(both)


def _of_omni(both: Both) -> Iterator[Finding]:
    if both.goes_on:
        return
    for name, calls in calls_in(both.gpu.node).items():
        if name.startswith(_LOCAL):
            continue
        # What ``replace`` makes belongs to the place where it is made.
        nodes = [both.npu.node] if "replace(" in name else _npu_nodes(both)
        there = merged(nodes, name)
        upstream = _of_upstream(both, name)
        missing = _missing(calls, there, _parameters(both, name), renamed(name))
        missing = [k for k in missing if k not in upstream and not _set_otherwise(nodes, k)]
        missing = [k for k in missing if not _is_handed_on(both, calls.keywords[k])]
        missing = [k for k in missing if not _is_no_parameter(both, name, k)]
        if missing:
            yield _finding(both, name, missing, calls, there)


def _of_upstream(both: Both, name: str) -> set[str]:
    """What vllm passes to the same callee, or the class above it, and vllm-ascend does not pass either."""
    made = both.gpu.owner.file.resolve(name) if not name.startswith("self.") else None
    names = {name} | ({cls.name for cls in made.mro} if isinstance(made, ClassSymbol) else set())
    passed = {project: set[str]() for project in ("vllm", "vllm-ascend")}
    for project, effective in (("vllm", both.pair.gpu_side), ("vllm-ascend", both.pair.npu_side)):
        # A helper split off from upstream's method is compared with that one.
        for method in {both.gpu.name, both.npu.name}:
            above = upstream_of(effective, method, project)
            for calls in (calls_in(above.node).get(n) for n in names) if above else ():
                passed[project] |= set(calls.keywords) if calls else set()
    same_method = name.startswith("self.")
    return passed["vllm"] if same_method else passed["vllm"] - passed["vllm-ascend"]


def _is_no_parameter(both: Both, name: str, keyword: str) -> bool:
    """Whether the NPU side's own version of the callee does not take it: the callee is what differs."""
    method = both.pair.npu_side.methods.get(name.removeprefix("self."))
    if method is None or not on_npu_side(method.owner.file):
        return False
    args = method.node.args
    taken = {arg.arg for arg in named_of(args)}
    return args.kwarg is None and keyword not in taken


def _is_handed_on(both: Both, value: ast.expr) -> bool:
    """Whether a helper that the NPU side has written out only hands on what it was given."""
    if both.gpu.name == both.npu.name or not isinstance(value, ast.Name):
        return False
    arguments = both.gpu.node.args
    given = {arg.arg for arg in [*arguments.args, *arguments.kwonlyargs]}
    names = (n for n in walk(both.gpu.node) if isinstance(n, ast.Name) and n.id == value.id)
    return value.id in given and not any(isinstance(name.ctx, ast.Store) for name in names)


def _npu_nodes(both: Both) -> list[Function]:
    """The NPU methods where the same call may stand: this one, and what it calls that is NPU code."""
    reached = both.pair.npu_side.reach(both.npu).values()
    return [both.npu.node] + [r.node for r in reached if r.node is not both.npu.node and on_npu_side(r.file)]


def _parameters(both: Both, name: str) -> list[str]:
    """The parameters of a method of the NPU class, less ``self``."""
    method = both.pair.npu_side.methods.get(name.removeprefix("self.")) if name.startswith("self.") else None
    return [arg.arg for arg in method.node.args.args[1:]] if method else []


def _missing(gpu: Calls, npu: Calls, parameters: list[str], words: dict[str, str]) -> list[str]:
    """The keywords of the GPU side's calls that those of the NPU side do not pass; [] when not known."""
    if not npu.calls or npu.spread - gpu.spread:
        return []
    by_place = given_by_place(npu.positional, parameters)
    if len(npu.positional) > len(gpu.positional) and not parameters and not by_place - {""}:
        return []
    return _not_passed(gpu.keywords, npu, parameters, words)


def _not_passed(
    gpu: Mapping[str, ast.expr], npu: Calls, parameters: list[str], words: Mapping[str, str]
) -> list[str]:
    passed = set(npu.keywords) | given_by_place(npu.positional, parameters)
    return [
        keyword
        for keyword, value in gpu.items()
        if words.get(keyword, keyword) not in passed
        and not isinstance(value, ast.Constant)
        and not is_device_bound(f"{keyword} {ast.unparse(value)}")
        and not is_replaced(keyword)
    ]


def _set_otherwise(nodes: list[Function], keyword: str) -> bool:
    """Whether an attribute or a key of that name is set anywhere in these functions."""
    return any(
        (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == keyword)
        or (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and string(node.slice) == keyword
        )
        or (isinstance(node, ast.Dict) and keyword in map(string, node.keys))
        for function in nodes
        for node in walk(function)
    )


def _of_constructors(both: Both) -> Iterator[Finding]:
    """Objects that vllm-ascend makes of its own class where vllm makes one of the class above it."""
    made = constructed(both.npu.owner.file, both.npu.node)
    for name, (cls, calls) in constructed(both.gpu.owner.file, both.gpu.node).items():
        for other, there in made.values():
            if cls in other.mro:
                taken = _taken(other)
                missing = [k for k in _missing(calls, there, taken, {}) if k in taken]
                if missing:
                    yield _finding(both, name, missing, calls, there)


def _of_methods(both: Both) -> Iterator[Finding]:
    """Calls of methods that vllm-ascend inherits from vllm as they are."""
    for name, calls in {} if both.goes_on else calls_in(both.gpu.node).items():
        method = (
            both.pair.npu_side.methods.get(name.removeprefix("self.")) if name.startswith("self.") else None
        )
        there = merged([both.npu.node], name)
        if method and method.owner.project == "vllm" and there.calls and not there.spread:
            parameters = _parameters(both, name)
            passed = calls.keywords | dict(zip(parameters, calls.positional, strict=False))
            missing = _not_passed(passed, there, parameters, {})
            if missing:
                yield _finding(both, name, missing, calls, there)


def _taken(cls: ClassSymbol) -> list[str]:
    made = cls.lookup("__init__")
    args = [*made.node.args.args[1:], *made.node.args.kwonlyargs] if made else []
    return [arg.arg for arg in args]


def _finding(both: Both, name: str, missing: list[str], gpu: Calls, npu: Calls) -> Finding:
    names = ", ".join(f"{keyword}=" for keyword in missing)
    extra = [k for k in npu.keywords if k not in gpu.keywords and k not in renamed(name).values()]
    instead = f", but {', '.join(f'{keyword}=' for keyword in extra[:3])}" if extra else ""
    lines = [c.lineno for c in gpu.calls if any(k.arg in missing for k in c.keywords)]
    return Finding(
        kind="not passed",
        owner=both.npu.owner.name,
        subject=f"{name.removeprefix('self.')}({names}) in {both.gpu.name}",
        what=f"{both.npu.qualname} calls {name} without {names}{instead}",
        here=side(both.npu, npu.calls[0].lineno),
        there=side(both.gpu, lines[0] if lines else gpu.calls[0].lineno),
        incident="P",
        why="the callee falls back to its default, or gets the value where it no longer looks",
        todo=PORT,
        like="vllm-omni #4447",
    )
