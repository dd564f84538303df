"""Structural edits of a released tree, as an incident's recipe records them.

An edit names its tree (``in``), file (``path``), definition (``at``), what to do (``do``)
and the arguments of that; an edit that does not find exactly its place is an error. The
edited tree is an overlay: nothing is written to disk, and no code of others is stored.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from bench.edit_places import Change, Scope, Text, block_of, chosen, named, ordered, plain, statements
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.sources.tree import SourceTree

Edit = dict[str, Any]


def edited(tree: SourceTree, edits: Sequence[Edit]) -> SourceTree:
    """The tree with ``edits`` applied in order; :class:`BadInput` names the edit that does not fit."""
    texts: dict[str, str] = {}
    for edit in edits:
        path = edit["path"]
        texts[path] = apply(path, texts.get(path) or tree.read(path), edit)
    mark = sha256(json.dumps(list(edits), sort_keys=True))[:12]
    return dataclasses.replace(
        tree,
        spec=f"{tree.spec}+edited-{mark}",
        archive_sha256=None,
        sha=None,
        verified=None,
        root=None,
        _bytes=lambda path: texts[path].encode() if path in texts else tree._bytes(path),
    )


def apply(path: str, source: str, edit: Edit) -> str:
    """One file's text after one edit; it is still Python, and not the same."""
    if edit["do"] not in EDITS:
        raise BadInput(
            f"no edit {edit['do']}", expected=f"one of {', '.join(sorted(EDITS))}", try_="check do"
        )
    text = Text(path, source)
    result = text.replaced(EDITS[edit["do"]](text, text.definition(edit.get("at", "")), edit))
    try:
        ast.parse(result)
    except SyntaxError as error:
        text.missing(f"{edit['do']} leaves no Python: line {error.lineno}: {error.msg}")
    if result == source:
        text.missing(f"{edit['do']} changes nothing")
    return result


def _delete_statement(text: Text, scope: Scope, args: Edit) -> list[Change]:
    """The lines of the statements go; a block that would be empty passes."""
    nodes = statements(text, scope, args)
    gone = {id(node) for node in nodes}
    changes = []
    for node in nodes:
        block = block_of(scope, node)
        first = next(item for item in block if id(item) in gone)
        empty = all(id(item) in gone for item in block)
        changes.append((*text.whole_lines(node), f"{text.indent(node)}pass\n" * (empty and node is first)))
    return changes


def _insert(text: Text, scope: Scope, args: Edit) -> list[Change]:
    """``code`` goes before or after a statement, or to the start or end of the definition."""
    if "before" in args or "after" in args:
        side = "before" if "before" in args else "after"
        anchor = statements(text, scope, args[side])[0]
    elif args.get("place") == "start":
        docstring = ast.get_docstring(scope) is not None
        side, anchor = "before", scope.body[docstring]
    else:
        side, anchor = "after", scope.body[-1]
    start, end = text.whole_lines(anchor)
    place = start if side == "before" else end
    return [(place, place, textwrap.indent(args["code"].rstrip("\n") + "\n", text.indent(anchor)))]


def _replace_name(text: Text, scope: Scope, args: Edit) -> list[Change]:
    """Every use of a dotted name (or the nth) becomes another one; a parameter's is among them."""
    name = args["name"]
    spans = []
    for node in ordered(scope):
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == name:
            spans.append(text.span(node))
        elif isinstance(node, ast.arg) and node.arg == name:
            start = text.offset(node.lineno, node.col_offset)
            spans.append((start, start + len(name)))
    uses = chosen(text, spans, f"use of {name}", args.get("nth", "all"))
    return [(*span, args["to"]) for span in uses]


def _replace_expression(text: Text, scope: Scope, args: Edit) -> list[Change]:
    wanted = plain(args["expression"])
    found = [n for n in ordered(scope) if isinstance(n, ast.expr) and ast.unparse(n) == wanted]
    return [(*text.span(node), args["to"]) for node in chosen(text, found, wanted, args.get("nth"))]


def _keyword_edit(text: Text, scope: Scope, args: Edit) -> list[Change]:
    """A keyword of the calls of ``call`` is added, dropped or renamed."""
    found = [n for n in ordered(scope) if isinstance(n, ast.Call) and named(n.func, args["call"])]
    changes = []
    for call in chosen(text, found, f"call of {args['call']}", args.get("nth")):
        altered = copy.deepcopy(call)
        given = next((item for item in altered.keywords if item.arg == args["keyword"]), None)
        if args["do"] == "add-keyword":
            altered.keywords.append(ast.keyword(args["keyword"], _expression(args["value"])))
        elif given is None:
            text.missing(f"no keyword {args['keyword']} in the call of {args['call']}")
        elif args["do"] == "drop-keyword":
            altered.keywords.remove(given)
        else:
            given.arg = args["to"]
        changes.append((*text.span(call), ast.unparse(altered)))
    return changes


def _item_edit(text: Text, scope: Scope, args: Edit) -> list[Change]:
    """An item is added to or dropped from a list of expressions, told by its text or its ``index``.

    ``of`` is which: ``arguments`` of the calls of ``call``, the ``targets`` that its result is unpacked into,
    ``returned`` tuples, or ``operands`` of ``and`` and ``or``.
    """
    adds = args["do"] == "add-item"
    wanted = None if adds or "item" not in args else plain(args["item"])
    found = [
        (node, name)
        for node, name in _lists(scope, args)
        if wanted is None or wanted in map(ast.unparse, getattr(node, name))
    ]
    changes = []
    for node, name in chosen(text, found, f"list of {args['of']} {wanted or ''}", args.get("nth")):
        altered = copy.deepcopy(node)
        items = getattr(altered, name)
        index = args.get("index", len(items)) if not wanted else [*map(ast.unparse, items)].index(wanted)
        if adds:
            items.insert(index, _expression(args["item"]))
        elif index >= len(items):
            text.missing(f"the list of {args['of']} has {len(items)} items")
        else:
            del items[index]
        short = isinstance(altered, ast.BoolOp) and len(items) == 1
        changes.append((*text.span(node), ast.unparse(items[0] if short else altered)))
    return changes


def _lists(scope: Scope, args: Edit) -> list[tuple[ast.expr, str]]:
    """The expressions that have such a list, each with the field that holds it."""
    found: list[tuple[ast.expr, str]] = []
    for node in ordered(scope):
        match args["of"], node:
            case "arguments", ast.Call() if named(node.func, args["call"]):
                found.append((node, "args"))
            case "targets", ast.Assign(targets=[ast.Tuple() as target], value=ast.Call() as call):
                found += [(target, "elts")] if named(call.func, args["call"]) else []
            case "returned", ast.Return(value=ast.Tuple() as value):
                found.append((value, "elts"))
            case "operands", ast.BoolOp():
                found.append((node, "values"))
    return found


def _change_import(text: Text, scope: Scope, args: Edit) -> list[Change]:
    """What is imported from ``module`` comes from ``to_module``, as ``to_name`` there; bound as before.

    With ``name`` only that one, and the others stay.
    """
    module, name, new = args["module"], args.get("name"), args.get("to_name")
    found = [
        node
        for node in ordered(scope)
        if isinstance(node, ast.ImportFrom) and node.module == module
        if name is None or any(item.name == name for item in node.names)
    ]
    changes = []
    for node in chosen(text, found, f"import of {name or 'anything'} from {module}", args.get("nth")):
        kept = [item for item in node.names if name not in (None, item.name)]
        moved = [
            ast.alias(new, item.asname or item.name) if new else item
            for item in node.names
            if item not in kept
        ]
        lines = [ast.ImportFrom(args.get("to_module", module), moved, 0)]
        lines += [ast.ImportFrom(module, kept, node.level)] if kept else []
        changes.append((*text.span(node), f"\n{text.indent(node)}".join(map(ast.unparse, lines))))
    return changes


def _delete_definition(text: Text, scope: Scope, args: Edit) -> list[Change]:
    if isinstance(scope, ast.Module):
        text.missing("no definition is named")
    owner = text.definition(args["at"].rpartition(".")[0])
    alone = all(item is scope for item in owner.body)
    return [(*text.whole_lines(scope), f"{text.indent(scope)}pass\n" if alone else "")]


def _rename_definition(text: Text, scope: Scope, args: Edit) -> list[Change]:
    if isinstance(scope, ast.Module):
        text.missing("no definition is named")
    found = re.compile(rf"\b{re.escape(scope.name)}\b").search(text.source, text.span(scope)[0])
    assert found, "a definition's name follows its keyword"
    return [(found.start(), found.end(), args["to"])]


def _change_bases(text: Text, scope: Scope, args: Edit) -> list[Change]:
    """The class has the bases ``to`` in place of its own."""
    if not isinstance(scope, ast.ClassDef) or not scope.bases:
        text.missing("no class with bases is named")
    return [(text.span(scope.bases[0])[0], text.span(scope.bases[-1])[1], args["to"])]


def _parameter_edit(text: Text, scope: Scope, args: Edit) -> list[Change]:
    """A parameter is dropped, or its text is added: before ``before``, else to the end of its kind."""
    if isinstance(scope, (ast.Module, ast.ClassDef)):
        text.missing("no function is named")
    own = copy.deepcopy(scope.args)
    positional: list[tuple[ast.arg, ast.expr | None]] = _defaulted(own.args, own.defaults)
    keywords = list(zip(own.kwonlyargs, own.kw_defaults, strict=True))
    if args["do"] == "drop-parameter":
        _drop_parameter(text, own, (positional, keywords), args["parameter"])
    else:
        parsed = ast.parse(f"def f({args['parameter']}): pass").body[0]
        assert isinstance(parsed, ast.FunctionDef)
        (new,) = _defaulted(parsed.args.args, parsed.args.defaults)
        kind = keywords if args.get("keyword_only") else positional
        names = [arg.arg for arg, _ in kind]
        before = args.get("before")
        if before and before not in names:
            text.missing(f"no parameter {before}")
        kind.insert(names.index(before) if before else len(names), new)
    own.args = [arg for arg, _ in positional]
    own.defaults = [default for _, default in positional if default is not None]
    own.kwonlyargs, own.kw_defaults = [arg for arg, _ in keywords], [default for _, default in keywords]
    return [(*text.parameters(scope), ast.unparse(own))]


def _defaulted(args: list[ast.arg], defaults: list[ast.expr]) -> list[tuple[ast.arg, ast.expr | None]]:
    """Each parameter with its default, None where it has none."""
    return list(zip(args, [None] * (len(args) - len(defaults)) + defaults, strict=True))


def _drop_parameter(text: Text, own: ast.arguments, kinds: Sequence[list], name: str) -> None:
    for stars in ("vararg", "kwarg"):
        if (found := getattr(own, stars)) and found.arg == name:
            setattr(own, stars, None)
            return
    for kind in kinds:
        for item in kind:
            if item[0].arg == name:
                kind.remove(item)
                return
    text.missing(f"no parameter {name}")


def _expression(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body


EDITS: dict[str, Callable[[Text, Any, Edit], list[Change]]] = {
    "delete-statement": _delete_statement,
    "insert": _insert,
    "replace-name": _replace_name,
    "replace-expression": _replace_expression,
    "add-keyword": _keyword_edit,
    "drop-keyword": _keyword_edit,
    "rename-keyword": _keyword_edit,
    "add-item": _item_edit,
    "drop-item": _item_edit,
    "change-import": _change_import,
    "delete-definition": _delete_definition,
    "rename-definition": _rename_definition,
    "change-bases": _change_bases,
    "add-parameter": _parameter_edit,
    "drop-parameter": _parameter_edit,
}
