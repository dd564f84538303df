"""Fields that a runner's state needs for what was ported: a method gives them, and its class lacks them.

Where the state is taken apart into as many names as it had fields, a name comes with each new one.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeGuard

from npu_upgrade.code.module import insert_behind, insert_lines, parse_module, split_lines
from npu_upgrade.code.walk import dotted, last_name, walk


def with_state_fields(path: str, files: Mapping[str, str], gpu: str) -> str:
    """The file at ``path`` of the NPU runners' ``files``, its classes with the fields that its calls give.

    A field is that of the same class in ``gpu``, the GPU runner's file, behind the others; it gets a default
    where another call leaves it out. Where that is not what the calls give, the file is as it was.
    """
    text = files[path]
    theirs = {node.name: _fields(node) for node in _records(gpu)}
    for node in _records(text):
        own, here = _fields(node), _calls(text, node.name)
        calls = [call for one in files.values() for call in _calls(one, node.name)]
        given = set().union(*map(_given, here))
        new = [one for name, one in theirs.get(node.name, {}).items() if name in given - own.keys()]
        lines = [_line(one, everywhere=all(_name(one) in _given(call) for call in calls)) for one in new]
        order = [*own, *map(_name, new)]
        without = any(one.value for one in own.values()) and not all("=" in line for line in lines)
        if own and new and not without and all(_fits(call, order) for call in here):
            last = max(field.end_lineno or field.lineno for field in own.values())
            return with_state_fields(path, {**files, path: insert_lines(text, last, lines)}, gpu)
    return text


def with_unpackings(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The files ``after`` their states grew, each with a name more where such a state is taken apart.

    A state is known by an attribute of ``self`` that a call of its class is assigned to. Nothing reads the
    new name, which begins with ``_`` for that.
    """
    found = dict(after)
    for path, text in before.items():
        old = {node.name: _fields(node) for node in _records(text)}
        for node in _records(after[path]):
            own = old.get(node.name, {})
            new = [name for name in _fields(node) if name not in own]
            if own and new:
                kept_in = {name for one in after.values() for name in _kept_in(one, node.name)}
                found = {
                    other: _unpacked(one, kept_in, len(own), [f"_{name}" for name in new])
                    for other, one in found.items()
                }
    return found


def _kept_in(text: str, name: str) -> Iterator[str]:
    """The attributes of ``self`` that get what a call of a class gives."""
    for node in walk(parse_module(text).tree):
        if isinstance(node, ast.Assign) and _is_call(node.value, name):
            yield from (dotted(one) for one in node.targets if dotted(one).startswith("self."))


def _unpacked(text: str, kept_in: Collection[str], count: int, new: Sequence[str]) -> str:
    """The text with ``new`` names behind ``count`` others into which such an attribute is taken apart."""
    targets = [
        target
        for node in walk(parse_module(text).tree)
        if isinstance(node, ast.Assign) and dotted(node.value) in kept_in
        for target in node.targets
        if isinstance(target, ast.Tuple) and len(target.elts) == count
        if not any(isinstance(one, ast.Starred) for one in target.elts)
    ]
    for target in sorted(targets, key=lambda one: one.lineno, reverse=True):
        text = _with_names(text, target, new)
    return text


def _with_names(text: str, target: ast.Tuple, new: Sequence[str]) -> str:
    last = target.elts[-1]
    row = last.end_lineno or last.lineno
    line = split_lines(text)[row - 1]
    behind = line.encode()[last.end_col_offset :].decode().lstrip()
    if behind.startswith(",") and row < (target.end_lineno or row):  # one element a line
        indent = line[: len(line) - len(line.lstrip())]
        return insert_lines(text, row, [f"{indent}{name}," for name in new])
    return insert_behind(text, last, "".join(f", {name}" for name in new))


def _records(text: str) -> Iterator[ast.ClassDef]:
    for node in parse_module(text).tree.body:
        if isinstance(node, ast.ClassDef) and "NamedTuple" in map(last_name, node.bases):
            yield node


def _fields(node: ast.ClassDef) -> dict[str, ast.AnnAssign]:
    fields = (one for one in node.body if isinstance(one, ast.AnnAssign))
    return {_name(one): one for one in fields}


def _name(field: ast.AnnAssign) -> str:
    return last_name(field.target)


def _line(field: ast.AnnAssign, *, everywhere: bool) -> str:
    default = "" if everywhere or field.value is not None else " = None"
    return f"    {ast.unparse(field)}{default}"


def _calls(text: str, name: str) -> list[ast.Call]:
    return [one for one in walk(parse_module(text).tree) if _is_call(one, name)]


def _is_call(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and last_name(node.func) == name


def _given(call: ast.Call) -> set[str]:
    """The names that a call gives, by position or as keywords."""
    return {last_name(one) for one in call.args} | {one.arg for one in call.keywords if one.arg}


def _fits(call: ast.Call, fields: Sequence[str]) -> bool:
    """Whether a call gives fields by position only where they are."""
    names = [last_name(one) for one in call.args]
    return all(name not in fields or fields[place : place + 1] == [name] for place, name in enumerate(names))
