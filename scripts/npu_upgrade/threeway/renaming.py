"""Whether two runs of statements are the same but for the names of the values they make."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from npu_upgrade.code.statements import Statement
from npu_upgrade.code.uses import defines, reads
from npu_upgrade.threeway.trees import parse_statement


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
