"""Upstream's new argument of a call that ours has at another place, where a statement cannot bring it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from npu_upgrade.code.statements import Statement, nodes_of
from npu_upgrade.code.uses import free_names
from npu_upgrade.threeway.layout import as_lines
from npu_upgrade.threeway.pieces import Piece, resolved
from npu_upgrade.threeway.trees import parse_statement, statement_text

Arguments = dict[str, str]  # keyword -> the expression


def carry_arguments(
    base: Sequence[Statement],
    ours: Sequence[Statement],
    theirs: Sequence[Statement],
    pieces: Sequence[Piece],
    fits: Callable[[str], bool],
) -> list[Piece]:
    """``pieces`` in which calls that are as in base have the keywords that upstream gave to all of them.

    What reads a name that has no value here is left as it is, and so is what does not fit what is called.
    """
    before, after = (_by_name(side) for side in (base, theirs))
    own = {one.key for one in ours} - {one.key for one in theirs}
    out, unbound = list(pieces), free_names(resolved(pieces, "ours"))
    for number, piece in enumerate(pieces):
        if not isinstance(piece, Statement) or piece.key not in own:
            continue
        for call, name in _plain_calls(piece.key):
            here = out[number]
            assert isinstance(here, Statement)
            brought = _brought(before[name], after.get(name, {})) if call in before.get(name, {}) else {}
            key = _with_keywords(here.key, call, brought) if brought else here.key
            if key != here.key and fits(key):
                out[number] = replace(here, key=key, lines=as_lines(key, here.indent, (here.code,)))
                if free_names(resolved(out, "ours")) - unbound:
                    out[number] = here
    return out


def _brought(before: Mapping[str, Arguments], after: Mapping[str, Arguments]) -> Arguments:
    """The keywords that all of upstream's calls have now, with one value, and none had before."""
    found = set.intersection(*(set(one.items()) for one in after.values())) if after else set()
    return {name: value for name, value in found if not any(name in one for one in before.values())}


def _by_name(side: Sequence[Statement]) -> dict[str, dict[str, Arguments]]:
    """Function -> each of its calls, as text, with its keywords."""
    found: dict[str, dict[str, Arguments]] = {}
    for statement in side:
        for call, name in _plain_calls(statement.key):
            found.setdefault(name, {})[call] = dict(_keywords(call))
    return found


@functools.lru_cache(maxsize=8192)
def _plain_calls(key: str) -> tuple[tuple[str, str], ...]:
    """The calls in a statement that hand on nothing by stars, with what they call."""
    calls = (node for node in nodes_of(key) if isinstance(node, ast.Call))
    return tuple((ast.unparse(one), ast.unparse(one.func)) for one in calls if not _has_stars(one))


def _has_stars(call: ast.Call) -> bool:
    return any(isinstance(one, ast.Starred) for one in call.args) or not all(one.arg for one in call.keywords)


@functools.lru_cache(maxsize=8192)
def _keywords(call: str) -> tuple[tuple[str, str], ...]:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    return tuple((one.arg, ast.unparse(one.value)) for one in node.keywords if one.arg)


def _with_keywords(key: str, call: str, keywords: Arguments) -> str:
    """A statement with more keywords in a call."""
    tree = parse_statement(key)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call) and ast.unparse(node) == call:
            new = {name: value for name, value in keywords.items() if name not in dict(_keywords(call))}
            node.keywords += [
                ast.keyword(name, ast.parse(value, mode="eval").body) for name, value in new.items()
            ]
    return statement_text(tree)
