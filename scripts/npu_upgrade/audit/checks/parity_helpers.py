"""Helpers of vllm-omni's own that stand on both sides under one name and no longer do the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.counterparts import Both, both_sides, statements_of, upstream_of
from npu_upgrade.audit.parity.gaps import PORT, told_lacking
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.statements import Statement
from npu_upgrade.ground.tables import cut, shortened
from npu_upgrade.lineage.dialect import is_device_bound
from npu_upgrade.program.conditions import text_of
from npu_upgrade.program.facts import functions_in
from npu_upgrade.program.program import File, Method
from npu_upgrade.program.scope import locals_of
from npu_upgrade.threeway.align import fine_changes, weight

ABOUT = "helpers of the same name on both sides whose bodies differ in meaning"

_WORD = re.compile(r"\w+")
_ASSIGNED = re.compile(r"(\w+) = (.+)", re.DOTALL)
_NO_MATTER = re.compile(r"(logger\.|log\.|assert |import |from |global |nonlocal |pass$|['\"]|raise )")
_WORDS_OF_ONE_SIDE = {"npu", "gpu", "cuda", "accelerator", "synchronize"}
_SHOWN = 70


@dataclass(frozen=True)
class _Helper:
    """One helper on both sides; ``told`` are names that other checks tell to be lacking in it.

    ``above`` is what the NPU side's goes on to by ``super()``.
    """

    owner: str
    name: str
    gpu_file: File
    gpu: Function
    npu_file: File
    npu: Function
    told: frozenset[str] = frozenset()
    above: Method | None = None


def check(world: World) -> Iterator[Finding]:
    if world.of_omni:
        for helper in _helpers(world):
            lost = _lost(helper)
            if lost:
                yield _finding(helper, lost)


def _helpers(world: World) -> Iterator[_Helper]:
    """Methods, module functions and nested functions that are omni's own, not copies of upstream's."""
    told = told_lacking(world)
    files: set[tuple[str, str]] = set()
    for both in both_sides(world):
        absent = {name for name in both.pair.gpu_side.own if name not in both.pair.npu_side.methods}
        names = frozenset(told.get(id(both.gpu.node), set()) | absent)
        yield from _methods(both, names)
        gpu, npu = both.gpu.owner.file, both.npu.owner.file
        if gpu is not npu and (gpu.path, npu.path) not in files:
            files.add((gpu.path, npu.path))
            for name in gpu.functions.keys() & npu.functions.keys():
                yield _Helper("", name, gpu, gpu.functions[name].node, npu, npu.functions[name].node)


def _methods(both: Both, told: frozenset[str]) -> Iterator[_Helper]:
    """The method itself, or the helpers inside it where the method is a copy of upstream's."""
    gpu, npu = both.gpu, both.npu
    files = (gpu.owner.file, npu.owner.file)
    if not _of_upstream(both):
        if gpu.name == npu.name:
            goes_on = f"super().{npu.name}(" in text_of(npu.node)
            above = both.pair.npu.after(npu.owner, npu.name) if goes_on else None
            yield _Helper(npu.owner.name, npu.name, files[0], gpu.node, files[1], npu.node, told, above)
        return
    inner = {function.name: function for function in functions_in(npu.node)}
    for function in functions_in(gpu.node):
        other = inner.get(function.name)
        if other and not _of_upstream(both, f"def {function.name}("):
            owner = f"{npu.owner.name}.{npu.name}"
            yield _Helper(owner, other.name, files[0], function, files[1], other, told)


def _of_upstream(both: Both, text: str = "") -> bool:
    """Whether upstream has the method, and in it the text."""
    sides = ((both.pair.gpu_side, "vllm"), (both.pair.npu_side, "vllm-ascend"))
    above = (upstream_of(side, both.gpu.name, project) for side, project in sides)
    return any(method and text in text_of(method.node) for method in above)


def _lost(helper: _Helper) -> list[Statement]:
    """The statements of the GPU side whose meaning the NPU side lacks."""
    npu = list(statements_of(helper.npu_file, helper.npu))
    gpu = _telling(_in_names_of(npu, statements_of(helper.gpu_file, helper.gpu), helper))
    above = statements_of(helper.above.owner.file, helper.above.node) if helper.above else ()
    keys = {_key(statement) for statement in (*npu, *above)}
    folded = _folded(gpu, keys)
    return [
        statement
        for change in fine_changes(gpu, npu)
        for statement in gpu[change.a0 : change.a1]
        if weight(statement.key) > 1
        and _key(statement) not in keys
        and statement not in folded
        and not _is_contained(statement, npu[change.b0 : change.b1])
        and helper.told.isdisjoint(_WORD.findall(statement.key))
    ]


def _in_names_of(npu: Sequence[Statement], gpu: Sequence[Statement], helper: _Helper) -> list[Statement]:
    """The GPU side's statements with those locals renamed that the NPU side has under other names."""
    here, there = locals_of(helper.npu).names.keys(), locals_of(helper.gpu).names.keys()
    words = {word for statement in npu for word in _WORD.findall(statement.key)}
    theirs = {word for statement in gpu for word in _WORD.findall(statement.key)}
    old, new = there - words, here - theirs
    names: dict[str, str] = {}
    if old and new:
        shapes: dict[str, list[list[str]]] = {}
        for statement in npu:
            shapes.setdefault(_WORD.sub("_", statement.key), []).append(_WORD.findall(statement.key))
        for statement in gpu:
            own = _WORD.findall(statement.key)
            for other in shapes.get(_WORD.sub("_", statement.key), ()):
                pairs = {(a, b) for a, b in zip(own, other, strict=True) if a != b}
                fit = all(a in old and b in new and names.get(a, b) == b for a, b in pairs)
                if fit and len({b for _, b in pairs}) == len(pairs):
                    names |= dict(pairs)
    return [
        replace(statement, key=_WORD.sub(lambda word: names.get(word[0], word[0]), statement.key))
        for statement in gpu
    ]


def _folded(statements: Sequence[Statement], keys: set[str]) -> list[Statement]:
    """``x = a`` and ``x = f(x)`` where the other side has ``x = f(a)``."""
    first: dict[str, tuple[str, Statement]] = {}
    found: list[Statement] = []
    for statement in statements:
        if assigned := _ASSIGNED.match(statement.key):
            name, value = assigned[1], assigned[2]
            before, where = first.setdefault(name, (value, statement))
            pattern = rf"(?<![\w.]){name}\b(?!=)"
            one = re.sub(pattern, lambda _, text=before: text, value)
            if where is not statement and f"{name} = {one}" in keys:
                found += [where, statement]
    return found


def _telling(statements: Sequence[Statement]) -> list[Statement]:
    return [s for s in statements if not _NO_MATTER.match(s.key) and not is_device_bound(s.key)]


def _key(statement: Statement) -> str:
    """The text of a statement, whether it opens a chain of conditions or goes on with one."""
    return statement.key.removeprefix("el")


def _is_contained(statement: Statement, others: Sequence[Statement]) -> bool:
    """Whether the NPU side's version of a statement has all its words, and maybe more."""
    words = set(_WORD.findall(statement.key)) - _WORDS_OF_ONE_SIDE
    return any(words <= set(_WORD.findall(other.key)) for other in others)


def _finding(helper: _Helper, lost: Sequence[Statement]) -> Finding:
    shown = shortened((f"`{cut(statement.key, _SHOWN)}`" for statement in lost), 2, "; ")
    return Finding(
        kind="diverged",
        owner=helper.owner,
        subject=helper.name,
        what=f"{helper.name} of the NPU side lacks {shown}",
        here=side(helper.npu_file, helper.npu, helper.name),
        there=side(helper.gpu_file, helper.gpu, helper.name),
        incident="P",
        why="a helper of one name answers differently on the two sides",
        todo=PORT,
    )
