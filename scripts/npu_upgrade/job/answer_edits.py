"""Puts an answer into the text of a runner file: whole methods, and imports."""

from __future__ import annotations

import ast
import io
import tokenize

from npu_upgrade.code.import_edit import Edit, edit_imports
from npu_upgrade.code.module import Unit, parse_module, replace_units
from npu_upgrade.code.names import Import, imports_in
from npu_upgrade.ground.errors import BadInput

_HOW = "FILE with one or more whole methods, indented as they stand in the class or not at all"


def with_methods(text: str, owner: str, given: str) -> tuple[str, list[str]]:
    """``text`` with the methods (or functions) of ``given`` in it, and their qualified names.

    A method that ``owner`` (a class of the file, empty for the file itself) has is replaced;
    any other is put at the end of it. Raises :class:`BadInput` for what is no method.
    """
    try:
        module = parse_module(text)
    except SyntaxError as error:
        raise BadInput(
            f"the file does not parse: line {error.lineno}: {error.msg}",
            expected="a file without conflicts in it, so that methods can be told apart",
            try_="answer its conflicts first: upgrade.py next",
        ) from error
    if owner and module.class_def(owner) is None:
        raise BadInput(f"the file has no class {owner}", expected="a class of it", try_="upgrade.py next")
    units = methods_of(given, indent=4 if owner else 0)
    prefix = f"{owner}." if owner else ""
    known = {prefix + unit.name: unit.source for unit in units if prefix + unit.name in module.units}
    fresh = [unit for unit in units if prefix + unit.name not in module.units]
    text = replace_units(module, known)
    if fresh:
        text = _at_end(text, owner, fresh)
    return text, [prefix + unit.name for unit in units]


def main_class(text: str) -> str:
    """The largest class of a file; empty when it has none, or does not parse."""
    try:
        nodes = [node for node in parse_module(text).tree.body if isinstance(node, ast.ClassDef)]
    except SyntaxError:
        return ""
    return max(nodes, key=lambda node: (node.end_lineno or 0) - node.lineno).name if nodes else ""


def methods_of(given: str, indent: int) -> list[Unit]:
    """The functions of a piece of source, at ``indent`` columns; comments between them are left out."""
    first = next((line for line in given.split("\n") if line.strip()), "")
    column = len(first) - len(first.lstrip())
    if column not in (0, indent):
        raise BadInput(f"the answer begins in column {column}", expected=_HOW, try_=f"column 0 or {indent}")
    body = given if column else _indented(given, indent)
    wrapped = f"class _:\n{body}" if indent else body
    try:
        module = parse_module(wrapped)
    except SyntaxError as error:
        line = (error.lineno or 1) - (1 if indent else 0)
        raise BadInput(
            f"the answer is not Python: line {line}: {error.msg}", expected=_HOW, try_=_TRY
        ) from error
    nodes = (
        module.tree.body[0].body
        if indent and isinstance(module.tree.body[0], ast.ClassDef)
        else module.tree.body
    )
    strange = [node for node in nodes if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    if strange or not nodes:
        what = ast.unparse(strange[0]).split("\n")[0][:60] if strange else "nothing"
        raise BadInput(f"the answer holds {what!r}, not only methods", expected=_HOW, try_=_TRY)
    return list(module.units.values())


_TRY = "upgrade.py resolve --help"


def _indented(text: str, indent: int) -> str:
    """Source moved to the right; the lines inside strings stay where they are."""
    inside: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
                inside |= set(range(token.start[0] + 1, token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError):
        pass  # whoever parses it says what is wrong with it
    lines = text.split("\n")
    pad = " " * indent
    return "\n".join(
        pad + line if line.strip() and number not in inside else line for number, line in enumerate(lines, 1)
    )


def _at_end(text: str, owner: str, units: list[Unit]) -> str:
    module, lines = parse_module(text), text.split("\n")
    if owner:
        node = module.class_def(owner)
        assert node is not None
        at = node.end_lineno or len(lines)
        gap = [""]
    else:
        at, gap = len(text.rstrip("\n").split("\n")), ["", ""]
    block = [line for unit in units for line in (*gap, *unit.source.split("\n"))]
    return "\n".join([*lines[:at], *block, *lines[at:]])


def with_imports(text: str, statements: list[str]) -> str:
    """``text`` with import statements added where the file has such; one it has already changes nothing."""
    add: list[Import] = []
    for statement in statements:
        try:
            nodes = ast.parse(statement.strip()).body
        except SyntaxError:
            nodes = []
        good = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        if not nodes or len(good) != len(nodes):
            raise BadInput(
                f"{statement!r} is no import",
                expected="an import statement",
                try_='--import "from vllm.utils import NAME"',
            )
        add += [item for node in good for item in imports_in(node)]
    return edit_imports(text, Edit(add=add, package="vllm_omni"))
