"""The findings of the check ``workarounds``: code that the given upstream has made unnecessary."""

from __future__ import annotations

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.code.module import parse_module
from npu_upgrade.program.program import File, Method

NAME = "workarounds"


def needless(
    kind: str, owner: str, subject: str, what: str, here: Side, there: Side | None, why: str, todo: str
) -> Finding:
    """A finding; code that is merely unnecessary breaks nothing, so it has no class of incident."""
    return Finding(NAME, kind, owner, subject, what, here, there, "", why, todo)


def place(method: Method) -> Side:
    """Where a method is defined."""
    return Side(method.owner.project, method.owner.file.path, method.node.lineno, method.qualname)


def around(file: File, line: int) -> str:
    """The method or function around a line, empty at the top level."""
    units = parse_module(file.source).units.values()
    return next((unit.qualname for unit in units if unit.start < line <= unit.end), "")
