"""Code that stands twice: methods defined twice, blocks pasted twice, one helper in sibling runners."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from npu_upgrade.audit.copies import Copy
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import World
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.positions import line_numbers
from npu_upgrade.code.signatures import plain_text
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import ClassSymbol, File, Method
from npu_upgrade.threeway.align import weight
from npu_upgrade.threeway.shifts import parents

NAME = "duplicates"
ABOUT = "methods defined twice, blocks pasted twice, helpers repeated in sibling runners"

PASTED = 3
"""So many equal statements in a row, in one block of one method, are a block pasted twice."""
PASTED_WORDS = 18
SIBLING_STATEMENTS = 6
SIBLING_BLOCK = 8
"""So many omni statements in a row that two runners share ask for a method."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_REBINDS = {"setter", "getter", "deleter", "overload", "register", "singledispatch"}


def check(world: World) -> Iterator[Finding]:
    if not world.of_omni:
        return
    for file in world.worker_files:
        for cls in file.classes.values():
            yield from _defined_twice(cls)
        yield from _pasted_twice(file)
    yield from _in_siblings(world)
    yield from _blocks_in_siblings(world)


def _defined_twice(cls: ClassSymbol) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for node in cls.node.body:
        if not isinstance(node, _FUNCTIONS) or _rebinds(node):
            continue
        if node.name in seen:
            what = (
                f"{cls.name}.{node.name} is defined twice; only the definition in line {node.lineno} counts"
            )
            there = Side("vllm-omni", cls.file.path, seen[node.name], "the definition that is lost")
            yield _finding(
                "defined-twice", cls.name, node.name, what, _side(cls.file, node.lineno, "again"), there,
                "the first definition never runs", "merge the two definitions, or rename one",
            )  # fmt: skip
        seen[node.name] = node.lineno


def _pasted_twice(file: File) -> Iterator[Finding]:
    for unit in parse_module(file.source).units.values():
        statements = [s for s in split_statements(unit.source) if s.key != END]
        found = _repeated(statements)
        if found is None:
            continue
        first, second, count = found
        where = line_numbers(statements, unit.start)
        lines = f"{where[first][0]} and {where[second][0]}"
        what = f"{count} statements of {unit.qualname} stand there twice, at {lines}"
        yield _finding(
            "pasted-twice", unit.owner, unit.name, what, _side(file, where[second][0], "second copy"),
            _side(file, where[first][0], "first copy"),
            "it runs twice, and a change to one copy leaves the other behind", "remove one copy",
        )  # fmt: skip


def _repeated(statements: Sequence[Statement]) -> tuple[int, int, int] | None:
    """The longest run that stands twice in one block: where both begin, and how many statements it has."""
    headers = parents(statements)
    places: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for number, statement in enumerate(statements):
        places[statement.key, headers[number]].append(number)
    best: tuple[int, int, int] | None = None
    for group in places.values():
        for n, first in enumerate(group):
            for second in group[n + 1 :]:
                count = _length(statements, headers, first, second)
                if _telling(statements[first : first + count]) and (best is None or count > best[2]):
                    best = first, second, count
    return best


def _length(statements: Sequence[Statement], headers: Sequence[int | None], first: int, second: int) -> int:
    """How many statements are the same from two places on, the first run ending before the second."""
    count = 0
    while first + count < second and second + count < len(statements):
        one, other = statements[first + count], statements[second + count]
        inside = (headers[first + count] or 0) >= first or headers[first + count] == headers[first]
        if (one.key, one.indent) != (other.key, other.indent) or not inside:
            break
        count += 1
    return count


def _telling(run: Sequence[Statement]) -> bool:
    return len(run) >= PASTED and sum(weight(statement.key) for statement in run) >= PASTED_WORDS


def _in_siblings(world: World) -> Iterator[Finding]:
    """The same method in several classes with one parent, none of which it is a copy from upstream in."""
    groups: dict[tuple[str, str], list[Method]] = defaultdict(list)
    for cls in world.classes:
        for method in cls.methods.values():
            if _statements(method) >= SIBLING_STATEMENTS:
                groups[method.name, plain_text(method.node)].append(method)
    for (name, _), methods in groups.items():
        parent = _common_parent(methods)
        if len(methods) < 2 or parent is None or any(_mirrors(world, method) for method in methods):
            continue
        first, second = methods[:2]
        what = f"{name} is the same in {' and '.join(method.owner.name for method in methods)}"
        yield _finding(
            "in-siblings", second.owner.name, name, what, _side(second.owner.file, second.node.lineno, name),
            _side(first.owner.file, first.node.lineno, first.owner.name),
            "a fix to one of them leaves the other behind", f"move it to {parent.name}",
        )  # fmt: skip


def _blocks_in_siblings(world: World) -> Iterator[Finding]:
    """Omni's own code that stands word for word in the copied methods of two runner files."""
    for one, other in itertools.combinations(world.copies, 2):
        if one.path == other.path:
            continue
        sides = [[(s.key, s.indent) for s in copy.ours if s.key != END] for copy in (one, other)]
        matcher = SequenceMatcher(None, *sides, autojunk=False)
        for run in matcher.get_matching_blocks():
            shared = [sides[0][run.a + n][0] not in one.known | other.known for n in range(run.size)]
            start, count = _longest(shared)
            if count >= SIBLING_BLOCK:
                yield _sibling_block(one, other, run.a + start, run.b + start, count)


def _longest(flags: Sequence[bool]) -> tuple[int, int]:
    """Where the longest run of true ones begins, and its length."""
    best, begin = (0, 0), 0
    for number, flag in enumerate(flags):
        begin = begin if flag else number + 1
        best = max(best, (begin, number + 1 - begin), key=lambda run: run[1])
    return best


def _sibling_block(one: Copy, other: Copy, first: int, second: int, count: int) -> Finding:
    lines = [line_numbers(copy.ours, copy.unit.start)[n][0] for copy, n in ((one, first), (other, second))]
    what = f"{count} omni statements stand in {one.unit.qualname} and in {other.unit.qualname}"
    return _finding(
        "block-in-siblings", other.unit.owner, other.unit.name, what,
        Side("vllm-omni", other.path, lines[1], other.unit.qualname),
        Side("vllm-omni", one.path, lines[0], one.unit.qualname),
        "a fix to one of them leaves the other behind", "make it a method of the class both derive from",
    )  # fmt: skip


def _common_parent(methods: Sequence[Method]) -> ClassSymbol | None:
    """The nearest class of the worker files that all owners derive from."""
    first = methods[0].owner
    others = [method.owner for method in methods[1:]]
    if any(first in other.mro or other in first.mro for other in others):
        return None
    return next((cls for cls in first.mro[1:] if all(cls in other.mro for other in others)), None)


def _mirrors(world: World, method: Method) -> bool:
    """Whether the GPU class it mirrors has the method too: then the NPU side follows its layout."""
    gpu = next((pair.gpu for pair in world.pairs if pair.npu is method.owner), None)
    return gpu is not None and method.name in gpu.methods


def _statements(method: Method) -> int:
    return sum(isinstance(node, ast.stmt) for node in walk(method.node)) - 1


def _rebinds(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {ast.unparse(item).partition("(")[0].rpartition(".")[2] for item in node.decorator_list}
    return bool(names & _REBINDS)


def _side(file: File, line: int, text: str) -> Side:
    return Side(file.project, file.path, line, text)


def _finding(
    kind: str, owner: str, subject: str, what: str, here: Side, there: Side, why: str, todo: str
) -> Finding:
    return Finding(NAME, kind, owner, subject, what, here, there, "", why, todo)
