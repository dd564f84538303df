"""Which statements of the runner files changed, and which of those no scenario executed.

What was not executed is for hardware or a reviewer: a dry run that never enters a branch says nothing of it.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npu_upgrade.audit.world import Triple
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


def watched(triple: Triple) -> list[str]:
    """The runner and worker files whose execution is recorded, by their path in the tree."""
    side = Downstream.within(Program(triple.trees()))
    return side.runner_files + (side.upstream_files if triple.omni else [])


def coverage(new: Triple, old: Triple | None, executed: Mapping[str, Iterable[int]]) -> list[Coverage]:
    """For each watched file that changed since ``old``: its changed statements and the unexecuted ones.

    ``executed`` maps a path in the tree to line numbers. Without ``old`` everything counts as changed.
    """
    found = []
    for path in watched(new):
        text = _text(new, path)
        before = _text(old, path) if old else None
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

    Of a compound statement only its head counts; a docstring or an import of ``__future__`` is none.
    """
    lines = _changed_lines(before.splitlines(), after.splitlines())
    for start, end in _statements(ast.parse(after)):
        if any(line in lines for line in range(start, end + 1)):
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


def _statements(tree: ast.Module) -> list[tuple[int, int]]:
    spans = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or _is_silent(node):
            continue
        body = getattr(node, "body", None)
        end = body[0].lineno - 1 if body else (node.end_lineno or node.lineno)
        spans.append((node.lineno, max(end, node.lineno)))
    return sorted(spans)


def _is_silent(node: ast.stmt) -> bool:
    """Statements that leave no trace of their execution."""
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant or isinstance(node, (ast.Global, ast.Nonlocal))


def ranges(lines: Iterable[int]) -> list[str]:
    """Line numbers as "12" and "20-24", neighbours joined."""
    found: list[list[int]] = []
    for line in sorted(lines):
        if found and line <= found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return [str(start) if start == end else f"{start}-{end}" for start, end in found]


def _text(triple: Triple, path: str) -> str:
    tree: SourceTree | None = triple.trees().get(path.partition("/")[0])
    return tree.read(path) if tree and tree.exists(path) else ""
