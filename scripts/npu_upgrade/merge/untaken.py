"""What theirs in a conflict gives a class, and the class in its place in ours does not take."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from npu_upgrade.audit.world import Triple
from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.definitions import absolute
from npu_upgrade.code.names import imports_of
from npu_upgrade.code.signatures import given_names, misfit
from npu_upgrade.code.statements import nodes_of, statements_of
from npu_upgrade.program.constructors import constructor
from npu_upgrade.program.program import ClassSymbol, Program

_ALIKE = 3  # keywords that two calls share where one stands for the other


def untaken(triple: Triple, conflicts: Iterable[tuple[str, str, Sequence[str]]]) -> list[str]:
    """The keywords that a class of ours does not take, in a sentence for each such call of theirs.

    ``triple`` is the checkout on its target; a conflict is its path, its method and the texts of base, ours
    and theirs. Nothing where a text cannot be split or a class cannot be told. Raises :class:`UpgradeError`
    when a file cannot be read.
    """
    program = Program(triple.trees())
    return list(dict.fromkeys(said for one in conflicts for said in _of_conflict(triple, program, *one)))


def _of_conflict(triple: Triple, program: Program, path: str, method: str, texts: Sequence[str]) -> list[str]:
    ours, theirs = (dict(_makers(text)) for text in texts[1:])
    found = []
    for name, call in theirs.items():
        given = set(given_names(call).sure)
        for other, own in ours.items():
            alike = len(given & set(given_names(own).sure)) >= _ALIKE
            if other != name and other not in theirs and alike:
                wrong = _misfit(triple, program, path, other, call)
                said = f"{method}: ours calls {other}() where theirs calls {name}(), and it {wrong}"
                found += [said] if wrong.startswith("has no parameter") else []
    return found


def _makers(text: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls with keywords of what is named like a class."""
    try:
        statements = statements_of(text)
    except SyntaxError:
        return
    for node in (node for statement in statements for node in nodes_of(statement.key)):
        named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.keywords
        if named and node.func.id.lstrip("_")[:1].isupper():
            yield node.func.id, node


def _misfit(triple: Triple, program: Program, path: str, name: str, call: ast.Call) -> str:
    """Why the class that a file calls ``name`` does not take what a call gives."""
    if triple.omni is None:
        return ""
    item = imports_of(answers(triple.omni.read(path), path)[0].text).get(name)
    symbol = program.imported(absolute(item, path)) if item else None
    made = constructor(symbol) if isinstance(symbol, ClassSymbol) else None
    return misfit(call, made, bound=True) if made else ""
