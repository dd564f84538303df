"""Edits of whole statements: delete, insert, repeat, unwrap; imports and returned tuples."""

from __future__ import annotations

import ast
import copy
import textwrap
from typing import Any

from bench.edit_places import Change, Scope, Text, block_of, chosen, ordered, statements


def _delete_statement(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    return _without(text, scope, statements(text, scope, args))


def _without(text: Text, scope: Scope, nodes: list[ast.stmt]) -> list[Change]:
    """The lines of the statements go; a block that would be empty passes."""
    changes = []
    gone = {id(node) for node in nodes}
    for node in nodes:
        block = block_of(scope, node)
        rest = [item for item in block if id(item) not in gone]
        first = next(item for item in block if id(item) in gone)
        text_left = "" if rest or node is not first else f"{text.indent(node)}pass\n"
        changes.append((*text.whole_lines(node), text_left))
    return changes


def _insert(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """``code`` goes before or after a statement, or to the start or end of the definition."""
    if "before" in args or "after" in args:
        side = "before" if "before" in args else "after"
        anchor = statements(text, scope, args[side])[0]
    elif args.get("place") == "start":
        body = [node for node in scope.body if not _is_docstring(node)]
        side, anchor = "before", body[0]
    else:
        side, anchor = "after", scope.body[-1]
    start, end = text.whole_lines(anchor)
    place = start if side == "before" else end
    code = textwrap.indent(args["code"].rstrip("\n") + "\n", text.indent(anchor))
    return [(place, place, code)]


def _duplicate_statement(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    changes = []
    for node in statements(text, scope, args):
        start, end = text.whole_lines(node)
        changes.append((end, end, text.source[start:end]))
    return changes


def _drop_guard(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """The body of an ``if`` without ``else`` stays, unconditionally."""
    changes = []
    for node in statements(text, scope, args):
        if not isinstance(node, ast.If) or node.orelse:
            text.missing("drop-guard wants an if without else")
        start, end = text.whole_lines(node)
        body, _ = text.whole_lines(node.body[0])
        inner = textwrap.dedent(text.source[body:end])
        changes.append((start, end, textwrap.indent(inner, text.indent(node))))
    return changes


def _change_value(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    changes = []
    for node in statements(text, scope, args):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if value is None:
            text.missing(f"nothing assigned to {args['assigns']}")
        changes.append((*text.span(value), args["to"]))
    return changes


def _returned(text: Text, scope: Scope, args: dict[str, Any]) -> list[ast.Tuple]:
    found = [n.value for n in ordered(scope) if isinstance(n, ast.Return) and isinstance(n.value, ast.Tuple)]
    return chosen(text, found, "returned tuple", args.get("nth"))


def _drop_returned(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    changes = []
    for value in _returned(text, scope, args):
        items = [ast.unparse(item) for item in value.elts]
        del items[args["index"]]
        changes.append((*text.span(value), f"({', '.join(items)},)"))
    return changes


def _add_returned(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    changes = []
    for value in _returned(text, scope, args):
        items = [ast.unparse(item) for item in value.elts]
        items.insert(args.get("index", len(items)), args["value"])
        changes.append((*text.span(value), f"({', '.join(items)})"))
    return changes


def _from_imports(text: Text, scope: Scope, args: dict[str, Any]) -> list[ast.ImportFrom]:
    name = args.get("name")
    found = [
        node
        for node in ordered(scope)
        if isinstance(node, ast.ImportFrom) and node.module == args["module"]
        if name is None or any(item.name == name for item in node.names)
    ]
    what = f"import of {name or 'anything'} from {args['module']}"
    return chosen(text, found, what, args.get("nth"))


def _rename_import(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """The imported name becomes ``to``, bound as before."""
    changes = []
    for node in _from_imports(text, scope, args):
        altered = copy.deepcopy(node)
        for item in altered.names:
            if item.name == args["name"]:
                item.name, item.asname = args["to"], item.asname or item.name
        changes.append((*text.span(node), ast.unparse(altered)))
    return changes


def _change_import_module(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """The import comes from ``to``; with ``name`` only that one, the others stay."""
    changes = []
    for node in _from_imports(text, scope, args):
        moved = [item for item in node.names if args.get("name") in (None, item.name)]
        kept = [item for item in node.names if item not in moved]
        lines = [ast.unparse(ast.ImportFrom(args["to"], moved, 0))]
        lines += [ast.unparse(ast.ImportFrom(node.module, kept, node.level))] if kept else []
        changes.append((*text.span(node), f"\n{text.indent(node)}".join(lines)))
    return changes


def _delete_import(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    changes = []
    for node in _from_imports(text, scope, args):
        kept = [item for item in node.names if item.name != args["name"]]
        if kept:
            left = ast.unparse(ast.ImportFrom(node.module, kept, node.level))
            changes.append((*text.span(node), left))
        else:
            changes += _without(text, scope, [node])
    return changes


def _delete_comments(text: Text, scope: Scope, args: dict[str, Any]) -> list[Change]:
    """The lines go that are a comment with ``text`` in it."""
    first, last = (1, len(text.lines)) if isinstance(scope, ast.Module) else (scope.lineno, scope.end_lineno)
    found = [
        number
        for number in range(first, (last or first) + 1)
        if (line := text.lines[number - 1].strip()).startswith("#") and args["text"] in line
    ]
    lines = chosen(text, found, f"comment with {args['text']}", args.get("nth"))
    return [(text.offset(n, 0), text.offset(n, 0) + len(text.lines[n - 1]), "") for n in lines]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


STATEMENT_EDITS = {
    "delete-statement": _delete_statement,
    "insert": _insert,
    "duplicate-statement": _duplicate_statement,
    "drop-guard": _drop_guard,
    "change-value": _change_value,
    "drop-returned": _drop_returned,
    "add-returned": _add_returned,
    "rename-import": _rename_import,
    "change-import-module": _change_import_module,
    "delete-import": _delete_import,
    "delete-comments": _delete_comments,
}
