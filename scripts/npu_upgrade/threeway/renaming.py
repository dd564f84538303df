"""The names of values: runs that are the same but for them, and names that upstream gave to values anew."""

from __future__ import annotations

import ast
import copy
import re
import tokenize
from collections.abc import Sequence
from dataclasses import replace

from npu_upgrade.code.portable import tokens
from npu_upgrade.code.statements import Statement, canonical, parse_line
from npu_upgrade.code.uses import defines, reads, rebinds, uses
from npu_upgrade.threeway.align import align_similar
from npu_upgrade.threeway.trees import parse_statement, same

_FORMATTED = re.compile("(?i)r?f")  # how an f-string begins


def are_alike(ours: Sequence[Statement], theirs: Sequence[Statement], later: Sequence[Statement]) -> bool:
    """Whether ``theirs`` is ``ours`` with other names, none of which what is ``later`` in theirs reads."""
    if len(ours) != len(theirs) or [one.indent for one in ours] != [one.indent for one in theirs]:
        return False
    own, other = (defines(one.key for one in side) for side in (ours, theirs))
    if own == other or reads(one.key for one in later) & (other - own):
        return False
    texts = [_renamed(side, names) for side, names in ((ours, own - other), (theirs, other - own))]
    return texts[0] is not None and texts[0] == texts[1]


def _renamed(side: Sequence[Statement], names: set[str]) -> list[str] | None:
    """The statements with numbers for these names, in their order; None for what is no Python by itself."""
    numbers: dict[str, str] = {}
    texts = []
    for statement in side:
        tree = parse_statement(statement.key)
        if tree is None:
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in names:
                node.id = numbers.setdefault(node.id, f"_{len(numbers)}")
        texts.append(ast.dump(tree))
    return texts


def follow_renames(
    base: Sequence[Statement], ours: Sequence[Statement], theirs: Sequence[Statement]
) -> tuple[list[Statement], list[Statement]]:
    """``base`` and ``ours`` with the names that ``theirs`` gave anew to values of ``base``.

    A value counts as named anew where a statement is the same but for names, where one that makes it makes
    the new one now, where none has the old name alone still, and where the others do not know the new one.
    """
    sides = [list(base), list(ours)]
    for old, new in sorted(_named_anew(base, ours, theirs).items()):
        renamed = [[_with_name(one, old, new) for one in side] for side in sides]
        if all(None not in side for side in renamed):
            sides = [[one for one in side if one] for side in renamed]
    return sides[0], sides[1]


def _named_anew(
    base: Sequence[Statement], ours: Sequence[Statement], theirs: Sequence[Statement]
) -> dict[str, str]:
    """The new names of values of ``base`` by their old ones."""
    fresh = rebinds(one.key for one in theirs)
    fresh -= set().union(*(_names(one.key) for one in (*base, *ours)))
    if not fresh:
        return {}
    every = [uses(one.key) for one in (*base, *ours, *theirs)]
    fixed = set().union(*((one.parameters or set()) | one.nonlocals for one in every))
    local = rebinds(one.key for one in base) - fixed
    pairs = [(base[i].key, theirs[j].key) for i, j in align_similar(base, theirs)]
    changed = [(before, after) for before, after in pairs if before != after and _names(after) & fresh]
    found = {
        (old, new)
        for before, after in changed
        for old, new in _substituted(before, after).items()
        if old in local and new in fresh
    }
    return {
        old: new
        for old, new in found
        if sum(old in one or new in one for one in found) == 1
        and any(old in uses(a).rebinds and new in uses(b).rebinds for a, b in changed)
        and all(old not in _names(a) & _names(b) or new in _names(b) for a, b in pairs)
    }


def _names(key: str) -> set[str]:
    return uses(key).reads | uses(key).rebinds


def _substituted(before: str, after: str) -> dict[str, str]:
    """The other names in a statement that is the same but for them, by the names they stand for."""
    trees = [tree for key in (before, after) if (tree := parse_statement(key))]
    if len(trees) < 2:
        return {}
    found: dict[str, str] = {}
    for one, other in zip(*map(ast.walk, trees), strict=False):
        if isinstance(one, ast.Name) and isinstance(other, ast.Name):
            if found.setdefault(one.id, other.id) != other.id:
                return {}
            one.id = other.id
    return {old: new for old, new in found.items() if old != new} if same(*trees) else {}


def _with_name(statement: Statement, old: str, new: str) -> Statement | None:
    """A statement with a name in the places of another, as it is written; None where that says more."""
    if old not in _names(statement.key):
        return statement
    lines = _written(statement.code, old, new).split("\n")
    key = canonical("\n".join(lines))
    wanted = copy.deepcopy(parse_line(statement.key))
    for node in ast.walk(wanted):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return replace(statement, key=key, lines=tuple(lines)) if same(parse_line(key), wanted) else None


def _written(code: str, old: str, new: str) -> str:
    """The code with one name in place of another, but for attributes and keywords."""
    rows = code.split("\n")
    found = [one for one in tokens(code + "\n") if one.type not in (tokenize.NL, tokenize.COMMENT)]
    depth, places = 0, []
    for before, token, after in zip([None, *found], found, [*found[1:], None], strict=False):
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        keyword = depth and after and after.string == "="
        if token.string == old and not keyword and not (before and before.string == "."):
            places.append((token.start, token.end, new))
        elif token.type == tokenize.STRING and _FORMATTED.match(token.string):
            inside = re.sub(rf"(?<![\w.'\"]){re.escape(old)}\b", new, token.string)
            places += [(token.start, token.end, inside)] if "\n" not in token.string else []
    for (row, start), (_, end), text in reversed(places):
        rows[row - 1] = rows[row - 1][:start] + text + rows[row - 1][end:]
    return "\n".join(rows)
