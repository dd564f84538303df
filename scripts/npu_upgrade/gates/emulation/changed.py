"""Which statements of the NPU side changed, and which of those no scenario executed.

What was not executed is for hardware or a reviewer: a dry run that never enters a branch says nothing of it.
"""

from __future__ import annotations

import ast
import difflib
import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

from npu_upgrade.audit.world import Triple
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import are_equal, is_text, walk
from npu_upgrade.ground.held import held
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.program.program import Program
from npu_upgrade.sources.tree import SourceTree


@dataclass(frozen=True)
class Coverage:
    """Of one file: how many statements changed, and the lines of those that nothing executed."""

    path: str
    changed: int
    unexecuted: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "changed": self.changed,
            "executed": self.changed - len(self.unexecuted),
            "unexecuted": ranges(self.unexecuted),
        }


class SideFiles(NamedTuple):
    """The NPU side's files, those of them with runners and workers, and the files of their base.

    ``runner`` is the one of upstream's own runner, as the imports of the side have it.
    """

    all: list[str]
    runners: list[str]
    upstream: list[str]
    runner: str


@held
def side_files(triple: Triple) -> SideFiles:
    """The files of a triple's NPU side, by their path in the tree."""
    side = Downstream.within(Program(triple.trees()))
    return SideFiles(side.paths, side.runner_files, side.upstream_files, side.upstream.path)


def watched(triple: Triple) -> list[str]:
    """The files whose execution is recorded, by their path in the tree: the NPU side, and its base."""
    files = side_files(triple)
    return files.all + files.upstream if triple.omni else files.runners


def imported(triple: Triple) -> list[str]:
    """The files of vllm-omni's workers, which the import tier imports."""
    return side_files(triple).runners if triple.omni else []


def coverage(new: Triple, old: Triple | None, executed: Mapping[str, Iterable[int]]) -> list[Coverage]:
    """For each watched file that changed since ``old``: its changed statements and the unexecuted ones.

    ``executed`` maps a path in the tree to line numbers. Without ``old`` everything counts as changed.
    """
    found = []
    for path in watched(new):
        text = text_of(new, path)
        before = text_of(old, path) if old else None
        if before == text:
            continue
        spans = list(changed_statements(before or "", text))
        ran = set(executed.get(path, ()))
        missed = tuple(span[0] for span in spans if not ran.intersection(range(span[0], span[1] + 1)))
        if spans:
            found.append(Coverage(path, len(spans), missed))
    return found


def changed_statements(before: str, after: str) -> Iterator[tuple[int, int]]:
    """First and last line of each statement of ``after`` that has a line ``before`` does not have.

    Of a compound statement only its head counts. A docstring is none, nor is an import of ``__future__``, nor
    one of the standard library that nothing names.
    """
    lines = _changed_lines(before.splitlines(), after.splitlines())
    silent = {*map(extent, _for_nothing(parsed(after)))}
    for start, end in _statements(parsed(after)):
        if (start, end) not in silent and any(line in lines for line in range(start, end + 1)):
            yield start, end


def _changed_lines(before: list[str], after: list[str]) -> set[int]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    changed = set()
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag in ("replace", "insert"):
            changed.update(range(start + 1, end + 1))
    return {
        line for line in changed if after[line - 1].strip() and not after[line - 1].lstrip().startswith("#")
    }


def _statements(tree: ast.AST) -> list[tuple[int, int]]:
    return sorted(extent(node) for node in within(tree) if not is_silent(node))


def within(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a tree, itself included; none is inside an expression."""
    if isinstance(node, ast.stmt):
        yield node
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        for one in getattr(node, name, ()):
            yield from within(one)


def extent(node: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement; of a compound one those of its head."""
    body = getattr(node, "body", None)
    end = body[0].lineno - 1 if body else (node.end_lineno or node.lineno)
    return node.lineno, max(end, node.lineno)


def is_silent(node: ast.stmt) -> bool:
    """Statements that leave no trace of their execution."""
    return is_text(node) or isinstance(node, (ast.Global, ast.Nonlocal))


def ranges(lines: Iterable[int]) -> list[str]:
    """Line numbers as "12" and "20-24", neighbours joined."""
    found: list[list[int]] = []
    for line in sorted(lines):
        if found and line <= found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return [str(start) if start == end else f"{start}-{end}" for start, end in found]


@functools.lru_cache(maxsize=128)  # one text is asked about for each run that executed it
def parsed(text: str) -> ast.Module:
    """The tree of a text, for who changes nothing in it. Raises :class:`SyntaxError`."""
    return ast.parse(text)


@functools.lru_cache(maxsize=256)
def functions(text: str) -> Mapping[str, list[tuple[int, int]]]:
    """Name ("Class.method") -> the lines of its statements in order; "" has those outside of any function.

    What is inside a function belongs to it.
    """
    tree = parsed(text)
    found: dict[str, list[tuple[int, int]]] = {}
    for name, node in definitions(tree):
        found.setdefault(name, []).extend(span for one in node.body for span in _statements(one))
    inside = {span for spans in found.values() for span in spans} | {*map(extent, _for_nothing(tree))}
    return {"": [span for span in _statements(tree) if span not in inside]} | found


def definitions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, Function]]:
    """The outermost functions with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield inside + node.name, node
        else:
            yield from definitions(
                node, f"{inside}{node.name}." if isinstance(node, ast.ClassDef) else inside
            )


def executed_statements(text: str, lines: Iterable[int]) -> dict[str, list[int]]:
    """Function -> which of its statements ran, by number; with an empty list where none did."""
    ran = set(lines)
    return {
        name: [number for number, (start, end) in enumerate(spans) if ran.intersection(range(start, end + 1))]
        for name, spans in functions(text).items()
    }


def executed_lines(text: str, statements: Mapping[str, Iterable[int]]) -> set[int]:
    """The first lines of what :func:`executed_statements` named, in a text with the same functions."""
    spans = functions(text)
    return {
        spans[name][number][0]
        for name, numbers in statements.items()
        for number in numbers
        if number < len(spans.get(name, ()))
    }


def without(text: str, left_out: Collection[str]) -> str:
    """The code of a module without comments, places, docstrings, and the bodies of functions ``left_out``.

    What it imports of the standard library and never names is left out too: it runs nothing.
    """
    rest, bodies = _code(text)
    return "\n".join([rest, *(f"{name}: {body}" for name, body in bodies.items() if name not in left_out)])


@functools.lru_cache(maxsize=128)
def outside(text: str) -> Mapping[tuple[int, int], str]:
    """The code of each statement of a module, by its line and column, without the bodies of functions.

    What it imports of the standard library and never names is left out.
    """
    tree = ast.parse(text)
    idle = _for_nothing(tree)
    for _, node in definitions(tree):
        node.body = [ast.Pass()]
    return {(one.lineno, one.col_offset): ast.dump(one) for one in tree.body if one not in idle}


@functools.lru_cache(maxsize=256)
def _code(text: str) -> tuple[str, dict[str, str]]:
    """A module without the bodies of its functions, and those by name."""
    tree, bodies = ast.parse(text), dict[str, str]()
    idle = _for_nothing(tree)
    tree.body = [one for one in tree.body if one not in idle]
    for name, node in definitions(tree):
        body = node.body[1:] if is_text(node.body[0]) else node.body
        bodies[name] = bodies.get(name, "") + ast.dump(ast.Module(body, []))
        node.body = [ast.Pass()]
    return ast.dump(tree), bodies


def _for_nothing(tree: ast.Module) -> list[ast.stmt]:
    """The imports of the standard library of which a module names nothing."""
    names = {node.id for node in walk(tree) if isinstance(node, ast.Name)}
    return [one for one in tree.body if _is_standard(one) and names.isdisjoint(map(binds, one.names))]


def _is_standard(statement: ast.stmt) -> TypeGuard[ast.Import | ast.ImportFrom]:
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        return False
    modules = [one.name for one in statement.names]
    if isinstance(statement, ast.ImportFrom):
        modules = [] if statement.level else [statement.module or ""]
    return bool(modules) and all(one.partition(".")[0] in _STANDARD for one in modules)


def binds(alias: ast.alias) -> str:
    """The name that an import gives a value."""
    return alias.asname or alias.name.partition(".")[0]


_STANDARD = sys.stdlib_module_names - {"__future__"}


@functools.lru_cache(maxsize=256)
def changed_functions(before: str, after: str) -> frozenset[str]:
    """The functions of ``after`` that ``before`` has not, or has otherwise."""
    old, new = (nodes_by_name(parsed(text)) for text in (before, after))
    return frozenset(name for name, nodes in new.items() if not are_equal(old.get(name), nodes))


def called_names(text: str) -> Iterator[tuple[str, set[str]]]:
    """Each function with the bare names of what it calls."""
    for name, node in definitions(parsed(text)):
        calls = (one.func for one in walk(node) if isinstance(one, ast.Call))
        yield name, {getattr(one, "attr", getattr(one, "id", "")) for one in calls}


def named(text: str) -> set[str]:
    """The names that a module defines, binds or reads, those after a dot too."""
    fields = ("id", "attr", "name", "arg")
    nodes = walk(parsed(text))
    return {word for node in nodes for field in fields if isinstance(word := getattr(node, field, None), str)}


def nodes_by_name(tree: ast.Module) -> dict[str, list[Function]]:
    """The outermost functions by their qualified names, all that have one."""
    found: dict[str, list[Function]] = {}
    for name, node in definitions(tree):
        found.setdefault(name, []).append(node)
    return found


def text_of(triple: Triple, path: str) -> str:
    """The file at a path of one of the trees; empty where it is not."""
    tree: SourceTree | None = triple.trees().get(path.partition("/")[0])
    return tree.read(path) if tree and tree.exists(path) else ""
