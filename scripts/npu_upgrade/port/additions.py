"""Puts what a runner file lacks altogether into it: methods and base classes."""

from __future__ import annotations

from collections.abc import Sequence

from npu_upgrade.code.module import Unit, insert_lines, parse_module, split_lines
from npu_upgrade.code.statements import render
from npu_upgrade.port.hunks import Hunk


def add_method(source: str, hunk: Hunk, order: Sequence[str]) -> str:
    """``source`` with the method of a hunk, behind the method that it follows on the GPU side.

    ``order`` are the qualified names of the GPU file. All other lines stay as they are.
    """
    module = parse_module(source)
    node = module.class_def(hunk.runner.class_name)
    assert node is not None, "a runner file holds its runner's class"
    earlier = order[: order.index(hunk.unit)] if hunk.unit in order else []
    before = next(
        (module.units[name] for name in reversed(earlier) if name in module.units and "." in name), None
    )
    methods = sorted(module.methods(hunk.runner.class_name).values(), key=lambda unit: unit.start)
    text = render(hunk.new).lstrip("\n").split("\n")
    if before is None and methods:
        return insert_lines(source, _above_comments(split_lines(source), methods[0]), [*text, ""])
    return insert_lines(source, before.end if before else node.end_lineno or node.lineno, ["", *text])


def add_base(source: str, hunk: Hunk) -> str:
    """``source`` with one more base class, at the end of those that the class has."""
    node = parse_module(source).class_def(hunk.runner.class_name)
    assert node is not None, "a runner file holds its runner's class"
    assert node.bases, "a runner derives from something"
    last = node.bases[-1]
    lines = split_lines(source)
    row = (last.end_lineno or last.lineno) - 1
    column = len(lines[row].encode()[: last.end_col_offset].decode())
    lines[row] = f"{lines[row][:column]}, {hunk.new[0].key}{lines[row][column:]}"
    return "".join(lines)


def _above_comments(lines: Sequence[str], unit: Unit) -> int:
    at = unit.start
    while at and lines[at - 1].lstrip().startswith("#"):
        at -= 1
    return at
