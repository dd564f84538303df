"""Fields that a runner's state needs for what was ported: a method gives them, and its class lacks them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from npu_upgrade.code.module import insert_lines, parse_module
from npu_upgrade.code.walk import last_name, walk


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
    nodes = walk(parse_module(text).tree)
    return [one for one in nodes if isinstance(one, ast.Call) and last_name(one.func) == name]


def _given(call: ast.Call) -> set[str]:
    """The names that a call gives, by position or as keywords."""
    return {last_name(one) for one in call.args} | {one.arg for one in call.keywords if one.arg}


def _fits(call: ast.Call, fields: Sequence[str]) -> bool:
    """Whether a call gives fields by position only where they are."""
    names = [last_name(one) for one in call.args]
    return all(name not in fields or fields[place : place + 1] == [name] for place, name in enumerate(names))
