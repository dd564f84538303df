"""Puts an answer into the text of a runner file: whole methods, and imports."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from npu_upgrade.code.import_edit import Edit, edit_imports
from npu_upgrade.code.module import (
    Module,
    Unit,
    add_base,
    comments_below,
    insert_lines,
    parse_module,
    replace_units,
    split_lines,
)
from npu_upgrade.code.names import Import, imports_in
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.statements import string_lines
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.items import Change

_HOW = (
    "FILE with one or more whole methods, indented as they stand in the class or not at all, "
    "or below the class line where its bases change"
)


def with_methods(text: str, owner: str, given: str) -> tuple[str, list[str]]:
    """``text`` with the methods (or functions) of ``given`` in it, and their qualified names.

    A method that ``owner`` (a class of the file, empty for the file itself) has is replaced;
    a further definition of its name (a setter, an overload) is put beside it, and any other
    method at the end of ``owner``. Below a class line, ``class OWNER(BASES):``, the class gets the
    bases that it lacks. Raises :class:`BadInput` for what is no method.
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
    bases, given = _class_line(module, owner, given)
    units = methods_of(given, indent=4 if owner else 0) if given or not bases else []
    prefix = f"{owner}." if owner else ""
    known = {prefix + unit.name: unit.source for unit in units if prefix + unit.name in module.units}
    fresh = [unit for unit in units if prefix + unit.name not in module.units]
    _check_conditional(module, owner, fresh)
    text = replace_units(_less_comments_below(module, known), known)
    for unit in fresh:
        text = _put(text, owner, unit, units)
    for base in bases:
        text = add_base(text, owner, base)
    return text, [prefix + unit.name for unit in units]


def _less_comments_below(module: Module, given: Mapping[str, str]) -> Module:
    """The module without the comments that close methods where those ``given`` in their place have some."""
    lines = split_lines(module.source)
    for name in sorted(given, key=lambda one: -module.units[one].start):
        unit = module.units[name]
        if given[name].rstrip().split("\n")[-1].lstrip().startswith("#"):
            del lines[unit.end : comments_below(lines, unit)]
    return parse_module("".join(lines))


def _class_line(module: Module, owner: str, given: str) -> tuple[list[str], str]:
    """The bases that an answer adds to those of ``owner``, and the answer without its class line."""
    text = textwrap.dedent(given)
    first = next((line for line in text.split("\n") if line.strip()), "")
    if not re.match(r"class\b", first):
        return [], given
    try:
        nodes = ast.parse(text).body
    except SyntaxError as error:
        what = f"the answer is not Python: line {error.lineno}: {error.msg}"
        raise BadInput(what, expected=_HOW, try_=_TRY) from error
    node, known = nodes[0], module.class_def(owner) if owner else None
    if not isinstance(node, ast.ClassDef) or len(nodes) > 1 or known is None or node.name != owner:
        what = f"the answer is about {first.strip()!r}, what it answers is in {owner or 'no class'}"
        raise BadInput(what, expected=_HOW, try_=f"class {owner}(BASES): and its methods" if owner else _TRY)
    has, wanted = ([ast.unparse(base) for base in one.bases] for one in (known, node))
    if dropped := [base for base in has if base not in wanted]:
        raise BadInput(
            f"the answer takes {', '.join(dropped)} from the bases of {owner}",
            expected="the bases it has, and those that come",
            try_="edit the file by hand, then upgrade.py plan",
        )
    rest = [one for one in node.body if not isinstance(one, (ast.Pass, ast.Expr))]
    starts = [line.lineno for one in rest[:1] for line in (one, *getattr(one, "decorator_list", ()))]
    below = "".join(split_lines(text)[min(starts) - 1 :]) if rest else ""
    return [base for base in wanted if base not in has], below


def class_for(text: str, owner: str, given: str) -> str:
    """The class of a file that an answer belongs to.

    It is ``owner`` where the file has it. What is asked may name the class of a caller in another file: then
    it is the one class that has a method of ``given``, else the largest; empty without any, or where the file
    does not parse.
    """
    try:
        nodes = [node for node in parse_module(text).tree.body if isinstance(node, ast.ClassDef)]
    except SyntaxError:
        return owner
    if owner in (node.name for node in nodes):
        return owner
    named = set(re.findall(r"^\s*(?:async\s+)?def\s+(\w+)", given, re.M))
    having = [node for node in nodes if any(getattr(one, "name", "") in named for one in node.body)]
    choice = having if len(having) == 1 else nodes
    return max(choice, key=lambda node: (node.end_lineno or 0) - node.lineno).name if choice else ""


def methods_of(given: str, indent: int) -> list[Unit]:
    """The functions of a piece of source, at ``indent`` columns; comments between them are left out."""
    first = next((line for line in given.split("\n") if line.strip()), "")
    column = len(first) - len(first.lstrip())
    if column not in (0, indent):
        given = textwrap.dedent(given)
        if given.lstrip("\n")[:1].isspace():
            what = f"the answer begins in column {column} and goes on left of it"
            raise BadInput(what, expected=_HOW, try_=f"column 0 or {indent}")
        column = 0
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
    functions = [node for node in nodes if isinstance(node, Function)]
    strange = [node for node in nodes if node not in functions]
    if strange or not nodes:
        what = ast.unparse(strange[0]).split("\n")[0][:60] if strange else "nothing"
        raise BadInput(f"the answer holds {what!r}, not only methods", expected=_HOW, try_=_TRY)
    plain = Counter(node.name for node in functions if not node.decorator_list)
    if twice := [name for name, count in plain.items() if count > 1]:
        what = f"the answer defines {', '.join(twice)} twice: only the last definition would count"
        raise BadInput(what, expected="one definition of each method", try_="merge the definitions")
    lines = split_lines(module.source)
    ends = ((unit, comments_below(lines, unit)) for unit in module.units.values())
    return [
        replace(unit, end=end, source="".join(lines[unit.start : end]).rstrip("\r\n")) for unit, end in ends
    ]


_TRY = "upgrade.py resolve --help"


def _indented(text: str, indent: int) -> str:
    """Source moved to the right; the lines inside strings that are no docstrings stay where they are."""
    inside = string_lines(text) - _docstring_lines(text)
    lines = text.split("\n")
    pad = " " * indent
    return "\n".join(
        pad + line if line.strip() and number not in inside else line for number, line in enumerate(lines)
    )


def _docstring_lines(text: str) -> set[int]:
    """The lines of docstrings, counted from 0; none where the text is no Python."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return set()
    first = [node.body[0] for node in nodes if isinstance(node, Function) and ast.get_docstring(node)]
    return {line for one in first for line in range(one.lineno - 1, one.end_lineno or 0)}


def _check_conditional(module: Module, owner: str, fresh: Sequence[Unit]) -> None:
    """A method that the file defines under an ``if`` or a ``try`` cannot be told apart from outside."""
    node = module.class_def(owner) if owner else module.tree
    others = [one for one in node.body if not isinstance(one, (Function, ast.ClassDef))] if node else []
    known = {inner.name for one in others for inner in ast.walk(one) if isinstance(inner, Function)}
    if names := sorted({_plain(unit) for unit in fresh} & known):
        raise BadInput(
            f"the file defines {', '.join(names)} on a condition, and the answer would come after that",
            expected="methods that stand in the class itself, or are new to it",
            try_="edit the file by hand, then upgrade.py plan",
        )


def _put(text: str, owner: str, unit: Unit, given: Sequence[Unit]) -> str:
    """``text`` with one more method: beside others of its name, else at the end of ``owner``."""
    module = parse_module(text)
    prefix = f"{owner}." if owner else ""
    block, gap = unit.source.split("\n"), [""] if owner else ["", ""]
    same = [one for one in module.units.values() if one.owner == owner and _plain(one) == _plain(unit)]
    later = [prefix + one.name for one in given if one.start > unit.start and _plain(one) == _plain(unit)]
    for one in same:
        if one.qualname in later:
            return insert_lines(text, one.start, [*block, *gap])
    node = module.class_def(owner) if owner else None
    end = (node.end_lineno or 0) if node else len(split_lines(text.rstrip("\r\n")))
    at = same[-1].end if same else end
    return insert_lines(text, at, [*gap, *block])


def _plain(unit: Unit) -> str:
    """The name that a unit defines, less what tells it from others of that name."""
    return unit.name.partition("@")[0]


def with_changes(text: str, unit: str, changes: Sequence[Change], imports: Sequence[str]) -> str:
    """``text`` with a method replaced by what was proposed; as it is where that is another by now."""
    try:
        module = parse_module(text)
    except SyntaxError:  # a conflict is open
        return text
    now = module.units[unit].source.replace("\r\n", "\n") if unit in module.units else None
    new = next((one.new for one in changes if one.old == now), None)
    return text if new is None else with_imports(replace_units(module, {unit: new}), list(imports))


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
