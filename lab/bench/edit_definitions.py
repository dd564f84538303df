"""Edits of classes and functions themselves: their presence, names, bases and parameters."""

from __future__ import annotations

import ast
import copy
import re
import textwrap
from collections.abc import Callable
from typing import Any

from bench.edit_places import Change, Definition, Scope, Text, named, ordered


def _delete_definition(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    node = _defined(text, scope)
    owner = text.definition(args["at"].rpartition(".")[0])
    alone = all(item is node for item in owner.body)
    return [(*text.whole_lines(node), f"{text.indent(node)}pass\n" if alone else "")]


def _rename_definition(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    node = _defined(text, scope)
    start, _ = text.span(node)
    found = re.compile(rf"\b{re.escape(node.name)}\b").search(text.source, start)
    assert found, "a definition's name follows its keyword"
    return [(found.start(), found.end(), args["to"])]


def _take_definition(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """The definition has the text that it has in another release."""
    node = _defined(text, scope)
    return [(*text.whole_lines(node), textwrap.indent(args["code"], text.indent(node)))]


def _add_definition(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """A definition of another release comes to the end of the class."""
    last = _class(text, scope).body[-1]
    _, end = text.whole_lines(last)
    return [(end, end, "\n" + textwrap.indent(args["code"], text.indent(last)))]


def _delete_base(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    node = _class(text, scope)
    left = [base for base in node.bases if not named(base, args["name"])]
    if len(left) + 1 != len(node.bases):
        text.missing(f"{args['name']} is not once among the bases of {node.name}")
    return _bases(text, node, [ast.unparse(base) for base in left] or ["object"])


def _add_base(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """``name`` becomes a base, in front of all others or after ``after``."""
    node = _class(text, scope)
    names = [ast.unparse(base) for base in node.bases]
    place = names.index(args["after"]) + 1 if args.get("after") in names else 0
    return _bases(text, node, [*names[:place], args["name"], *names[place:]])


def _bases(text: Text, node: ast.ClassDef, names: list[str]) -> list[Change]:
    start, _ = text.span(node.bases[0])
    _, end = text.span(node.bases[-1])
    return [(start, end, ", ".join(names))]


def _parameter_edit(change: Callable[[Text, ast.arguments, dict[str, Any]], None]):
    """An edit of the parameters: ``change`` alters a copy, which is written in their place."""

    def edit(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
        node = _function(text, scope)
        arguments = copy.deepcopy(node.args)
        change(text, arguments, args)
        return [(*text.parameters(node), ast.unparse(arguments))]

    return edit


def _drop_parameter(text: Text, args: ast.arguments, edit: dict[str, Any]) -> None:
    name = edit["parameter"]
    for stars in ("vararg", "kwarg"):
        found = getattr(args, stars)
        if found and found.arg == name:
            setattr(args, stars, None)
            return
    places, index = _places(text, args, name)
    defaults = _defaults(args, places)
    del places[index], defaults[index]
    _put(args, places, defaults)


def _add_parameter(text: Text, args: ast.arguments, edit: dict[str, Any]) -> None:
    """``parameter`` is the text of one; it goes before ``before``, else to the end of its kind."""
    parsed = ast.parse(f"def f({edit['parameter']}): pass").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    new, default = parsed.args.args[0], next(iter(parsed.args.defaults), None)
    if edit.get("keyword_only"):
        args.kwonlyargs.append(new)
        args.kw_defaults.append(default)
        return
    before = edit.get("before")
    places, index = _places(text, args, before) if before else (args.args, len(args.args))
    defaults = _defaults(args, places)
    places.insert(index, new)
    defaults.insert(index, default)
    _put(args, places, defaults)


def _change_default(text: Text, args: ast.arguments, edit: dict[str, Any]) -> None:
    places, index = _places(text, args, edit["parameter"])
    defaults = _defaults(args, places)
    defaults[index] = ast.parse(edit["to"], mode="eval").body if edit["to"] is not None else None
    _put(args, places, defaults)


def _change_annotation(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    node = _function(text, scope)
    wanted = args["parameter"]
    found = [n.annotation for n in ast.walk(node.args) if isinstance(n, ast.arg) and n.arg == wanted]
    annotation = node.returns if wanted == "return" else next(iter(found), None)
    if annotation is None:
        text.missing(f"{wanted} of {node.name} has no annotation")
    return [(*text.span(annotation), args["to"])]


def _rename_parameter(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """The parameter and all its uses in the function."""
    node = _function(text, scope)
    name = args["parameter"]
    uses = [n for n in ordered(node) if isinstance(n, ast.Name) and n.id == name]
    _places(text, node.args, name)
    place = next(n for n in ast.walk(node.args) if isinstance(n, ast.arg) and n.arg == name)
    start = text.offset(place.lineno, place.col_offset)
    return [(start, start + len(name), args["to"]), *((*text.span(use), args["to"]) for use in uses)]


def _places(text: Text, args: ast.arguments, name: str) -> tuple[list[ast.arg], int]:
    for places in (args.args, args.kwonlyargs, args.posonlyargs):
        for index, item in enumerate(places):
            if item.arg == name:
                return places, index
    text.missing(f"no parameter {name}")


def _defaults(args: ast.arguments, places: list[ast.arg]) -> list[ast.expr | None]:
    """One default for each of the parameters, None where it has none."""
    if places is args.kwonlyargs:
        return list(args.kw_defaults)
    return [None] * (len(places) - len(args.defaults)) + list(args.defaults)


def _put(args: ast.arguments, places: list[ast.arg], defaults: list[ast.expr | None]) -> None:
    if places is args.kwonlyargs:
        args.kw_defaults = defaults
    else:
        args.defaults = [default for default in defaults if default is not None]


def _defined(text: Text, scope: Scope) -> Definition:
    return scope if not isinstance(scope, ast.Module) else text.missing("no definition is named")


def _class(text: Text, scope: Scope) -> ast.ClassDef:
    return scope if isinstance(scope, ast.ClassDef) else text.missing("no class is named")


def _function(text: Text, scope: Scope) -> ast.FunctionDef | ast.AsyncFunctionDef:
    if isinstance(scope, (ast.Module, ast.ClassDef)):
        text.missing("no function is named")
    return scope


DEFINITION_EDITS = {
    "delete-definition": _delete_definition,
    "rename-definition": _rename_definition,
    "take-definition": _take_definition,
    "add-definition": _add_definition,
    "delete-base": _delete_base,
    "add-base": _add_base,
    "drop-parameter": _parameter_edit(_drop_parameter),
    "add-parameter": _parameter_edit(_add_parameter),
    "change-default": _parameter_edit(_change_default),
    "change-annotation": _change_annotation,
    "rename-parameter": _rename_parameter,
}
