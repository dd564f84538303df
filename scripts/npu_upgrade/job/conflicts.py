"""The conflicts that still stand in the files of a job, and what is known of each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.code.conflict_text import MarkedConflict, scan
from npu_upgrade.code.module import split_lines
from npu_upgrade.job.plan_file import Plan
from npu_upgrade.lineage.items import item_id
from npu_upgrade.merge.answers import method_at
from npu_upgrade.port.draft import GPU

BY_HAND = "its markers or sides were edited by hand"
FROM_PORT = "the GPU side changed this, and the NPU side is not as the GPU side was: theirs is the GPU side's"


@dataclass(frozen=True)
class OpenConflict:
    """A conflict with its place; ``first`` and ``last`` are the 1-based lines of its outer markers."""

    id: str
    path: str
    method: str
    reason: str
    first: int
    last: int
    marked: MarkedConflict

    @property
    def texts(self) -> tuple[str, str, str]:
        """The sources of base, ours and theirs."""
        return self.marked.base, self.marked.ours, self.marked.theirs


def open_conflicts(root: Path, plan: Plan) -> list[OpenConflict]:
    """The conflicts in the plan's files below ``root``, in the order of the files and lines."""
    found: list[OpenConflict] = []
    for path in plan.files:
        file = root / path
        if file.exists():
            found += conflicts_in(file.read_text("utf-8", errors="replace"), path, reasons(plan, path))
    return found


def reasons(plan: Plan, path: str) -> dict[tuple[str, str, str], str]:
    """Why each conflict of a file is one, by its texts (base, ours, theirs)."""
    methods = [method for method in plan.methods if method.get("path") == path]
    conflicts = [conflict for method in methods for conflict in method.get("conflicts", [])]
    return {(c["base"], c["ours"], c["theirs"]): c["reason"] for c in conflicts}


def conflicts_in(text: str, path: str, why: dict[tuple[str, str, str], str]) -> Iterator[OpenConflict]:
    """The complete conflicts of a text, in order."""
    for item in scan(text):
        if not isinstance(item, MarkedConflict):
            continue
        texts = (item.base, item.ours, item.theirs)
        method = method_at(text, item.line)
        id_ = item_id("conflict", f"{path}: {method}", *texts)
        of_port = FROM_PORT if item.labels.get("theirs") == GPU else BY_HAND
        yield OpenConflict(id_, path, method, why.get(texts, of_port), item.line + 1, item.last + 1, item)


def without(text: str, conflict: OpenConflict, answer: str) -> str:
    """``text`` with ``answer`` in the place of a conflict; an empty answer leaves no line."""
    lines = split_lines(text)
    end = "\r\n" if lines[conflict.first - 1].endswith("\r\n") else "\n"
    body = answer.rstrip("\r\n")
    put = [line.rstrip("\r\n") + end for line in split_lines(body)] if body.strip() else []
    return "".join([*lines[: conflict.first - 1], *put, *lines[conflict.last :]])


def indented(answer: str, conflict: OpenConflict) -> str:
    """An answer that lost its indentation, as a block of YAML does, with that of the side it is most like."""
    first = next((line for line in answer.splitlines() if line.strip()), "")
    marked = conflict.marked
    sides = [marked.ours, marked.theirs, *([marked.base] if marked.has_base else [])]
    starts = [line for side in sides if (line := next(filter(str.strip, side.splitlines()), ""))]
    if not first or first[0].isspace() or not starts:
        return answer
    near = next((line for line in starts if line.strip() == first.strip()), starts[0])
    return textwrap.indent(answer, near[: len(near) - len(near.lstrip())])


def marked_text(text: str, conflict: OpenConflict) -> str:
    """The lines of a conflict, markers included."""
    return "".join(split_lines(text)[conflict.first - 1 : conflict.last])


def ids(conflicts: Iterable[OpenConflict]) -> set[str]:
    return {conflict.id for conflict in conflicts}
