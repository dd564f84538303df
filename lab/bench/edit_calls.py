"""Edits of calls, names and conditions inside a definition."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any

from bench.edit_places import Change, Scope, Text, calls, chosen, named, ordered, plain


def _call_edit(change: Callable[[Text, ast.Call, dict[str, Any]], None]):
    """An edit of the calls of ``call``: ``change`` alters a copy, which is written in its place."""

    def edit(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
        changes = []
        for call in calls(text, scope, args["call"], args.get("nth")):
            altered = copy.deepcopy(call)
            change(text, altered, args)
            changes.append((*text.span(call), ast.unparse(altered)))
        return changes

    return edit


def _keyword(text: Text, call: ast.Call, name: str) -> ast.keyword:
    found = [item for item in call.keywords if item.arg == name]
    return found[0] if found else text.missing(f"no keyword {name} in the call of {ast.unparse(call.func)}")


def _rename_call(text: Text, call: ast.Call, args: dict[str, Any]) -> None:
    call.func = _expression(args["to"])


def _rename_keyword(text: Text, call: ast.Call, args: dict[str, Any]) -> None:
    _keyword(text, call, args["keyword"]).arg = args["to"]


def _drop_keyword(text: Text, call: ast.Call, args: dict[str, Any]) -> None:
    call.keywords.remove(_keyword(text, call, args["keyword"]))


def _add_keyword(text: Text, call: ast.Call, args: dict[str, Any]) -> None:
    call.keywords.append(ast.keyword(args["keyword"], _expression(args["value"])))


def _drop_argument(text: Text, call: ast.Call, args: dict[str, Any]) -> None:
    if args["index"] >= len(call.args):
        text.missing(f"the call of {args['call']} has {len(call.args)} arguments")
    del call.args[args["index"]]


def _add_argument(text: Text, call: ast.Call, args: dict[str, Any]) -> None:
    call.args.insert(args.get("index", len(call.args)), _expression(args["value"]))


def _replace_name(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """Every use of a dotted name (or the nth) becomes another one."""
    found = [n for n in ordered(scope) if isinstance(n, (ast.Name, ast.Attribute))]
    uses = [n for n in found if ast.unparse(n) == args["name"]]
    return [
        (*text.span(node), args["to"])
        for node in chosen(text, uses, f"use of {args['name']}", args.get("nth", "all"))
    ]


def _replace_expression(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    wanted = plain(args["expression"])
    found = [n for n in ordered(scope) if isinstance(n, ast.expr) and ast.unparse(n) == wanted]
    return [(*text.span(node), args["to"]) for node in chosen(text, found, wanted, args.get("nth"))]


def _drop_operand(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """An operand of ``and`` or ``or`` goes."""
    wanted = plain(args["operand"])
    found = [n for n in ordered(scope) if isinstance(n, ast.BoolOp) and wanted in map(ast.unparse, n.values)]
    changes = []
    for node in chosen(text, found, f"condition with {wanted}", args.get("nth")):
        values = [value for value in node.values if ast.unparse(value) != wanted]
        left = ast.BoolOp(node.op, values) if len(values) > 1 else values[0]
        changes.append((*text.span(node), ast.unparse(left)))
    return changes


def _drop_element(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """An element of a collection bound to ``of`` (a set, list, tuple or dict display) goes."""
    wanted = plain(args["element"])
    changes = []
    displays = (ast.Tuple, ast.List, ast.Set)
    found = [
        n for n in ordered(scope) if isinstance(n, displays) and wanted in [ast.unparse(e) for e in n.elts]
    ]
    for node in chosen(text, found, f"collection with {wanted}", args.get("nth")):
        altered = copy.deepcopy(node)
        altered.elts = [item for item in altered.elts if ast.unparse(item) != wanted]
        changes.append((*text.span(node), ast.unparse(altered)))
    return changes


def _unpacking(text: Text, scope: Scope, args: dict[str, Any]) -> Iterator[ast.Tuple]:
    """The tuples that the result of a call is unpacked into."""
    found = [
        target
        for node in ordered(scope)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if named(node.value.func, args["call"])
        for target in node.targets
        if isinstance(target, ast.Tuple)
    ]
    yield from chosen(text, found, f"unpacking of {args['call']}", args.get("nth"))


def _add_target(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    changes = []
    for target in _unpacking(text, scope, args):
        names = [ast.unparse(item) for item in target.elts]
        names.insert(args.get("index", len(names)), args["name"])
        changes.append((*text.span(target), f"({', '.join(names)})"))
    return changes


def _drop_target(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    changes = []
    for target in _unpacking(text, scope, args):
        names = [ast.unparse(item) for item in target.elts]
        del names[args["index"]]
        changes.append((*text.span(target), f"({', '.join(names)},)"))
    return changes


def _expression(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body


CALL_EDITS = {
    "rename-call": _call_edit(_rename_call),
    "rename-keyword": _call_edit(_rename_keyword),
    "drop-keyword": _call_edit(_drop_keyword),
    "add-keyword": _call_edit(_add_keyword),
    "drop-argument": _call_edit(_drop_argument),
    "add-argument": _call_edit(_add_argument),
    "replace-name": _replace_name,
    "replace-expression": _replace_expression,
    "drop-operand": _drop_operand,
    "drop-element": _drop_element,
    "add-target": _add_target,
    "drop-target": _drop_target,
}
