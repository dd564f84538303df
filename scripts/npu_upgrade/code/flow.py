"""The paths through a function: names that one reads before they have a value, conditions on the way.

A condition that is asked twice counts once: what ``if a:`` binds has a value below a later ``if a and b:``,
as long as no name of the condition got another value in between.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from npu_upgrade.code.statements import CONTINUES, END, Statement, nodes_of
from npu_upgrade.code.uses import ALWAYS_DEFINED, rebinds, uses

_ENDS = re.compile(r"(return|raise)\b")
LEAVES = re.compile(r"(return|raise|continue|break)\b")
_LOOPS = re.compile(r"(async )?(for|while)\b")
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In},
}


def may_be_unbound(statements: Sequence[Statement]) -> frozenset[str]:
    """The names of a function that some path reads before it binds them.

    ``statements`` are those of one function with its header. What functions inside it read is not asked.
    """
    return _unbound(tuple(statements))


@functools.lru_cache(maxsize=512)
def _unbound(statements: tuple[Statement, ...]) -> frozenset[str]:
    reader = _Reader()
    for block in _blocks([s for s in statements if s.key != END]):
        parameters = uses(block.head.key).parameters
        if parameters is not None:
            keys = _keys(block.body)
            declared = [_words(key)[1:] for key in keys if key.startswith(("global ", "nonlocal "))]
            reader.local = rebinds(keys).difference(*declared)
            reader.run(block.body, _State(frozenset(parameters)))
    return frozenset(reader.found) - ALWAYS_DEFINED


@dataclass(frozen=True)
class Guards:
    """What holds where a statement runs: by the headers above it, and since a branch before it left."""

    above: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()


def guards_of(statements: Sequence[Statement]) -> list[Guards]:
    """The guards of each statement: tests as they are spelled, and ``for``."""
    return list(_guards(tuple(statements)))


@functools.lru_cache(maxsize=512)
def _guards(statements: tuple[Statement, ...]) -> tuple[Guards, ...]:
    found: dict[int, Guards] = {}
    _walk_guards(_blocks(statements), Guards(), found)
    return tuple(found[number] for number in range(len(statements)))


def _walk_guards(blocks: Sequence[_Block], known: Guards, found: dict[int, Guards]) -> None:
    refused: frozenset[str] = frozenset()
    for block in blocks:
        key = block.head.key
        refused = refused if CONTINUES.match(key) else frozenset()
        found[block.number] = here = replace(known, above=known.above | refused)
        known_below = conditions(key)
        inside = known_below[0] if known_below else {"for"} & {key.partition(" ")[0]}
        _walk_guards(block.body, replace(here, above=here.above | inside), found)
        if known_below and not key.startswith("while "):
            refused |= known_below[1]
            if block.body and LEAVES.match(block.body[-1].head.key):
                known = replace(known, passed=known.passed | known_below[1])


@functools.lru_cache(maxsize=4096)
def conditions(header: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """What holds below an ``if``, ``elif`` or ``while`` header, and what where its test does not."""
    if not re.match(r"(if|elif|while)\b", header):
        return None
    found = [node for node in nodes_of(header) if isinstance(node, (ast.If, ast.While))]
    if not found:
        return None
    test = found[-1 if header.startswith("elif") else 0].test
    return frozenset(_conjuncts(test)), frozenset(_opposites(test))


def _conjuncts(test: ast.expr) -> set[str]:
    """The conditions that hold where ``test`` does, ``test`` itself included."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
    return {ast.unparse(test)}.union(*map(_conjuncts, parts))


def _opposites(test: ast.expr) -> set[str]:
    """The conditions that hold where ``test`` does not."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _conjuncts(test.operand)
    if isinstance(test, ast.Compare) and type(test.ops[0]) in _OPPOSITE and len(test.ops) == 1:
        other = ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators)
        return {ast.unparse(other)}
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return {_negated(test)}.union(*map(_opposites, test.values))
    return {_negated(test)}


@dataclass
class _Block:
    """A statement and what stands below it."""

    number: int
    head: Statement
    body: list[_Block] = field(default_factory=list)


def _blocks(statements: Sequence[Statement]) -> list[_Block]:
    root: list[_Block] = []
    open_: list[_Block] = []
    for number, statement in enumerate(statements):
        while open_ and open_[-1].head.indent >= statement.indent:
            open_.pop()
        block = _Block(number, statement)
        (open_[-1].body if open_ else root).append(block)
        open_.append(block)
    return root


@dataclass(frozen=True)
class _State:
    """Names with a value, those that have one where a condition holds (condition, name), and what holds."""

    bound: frozenset[str]
    held: frozenset[tuple[str, str]] = frozenset()
    facts: frozenset[str] = frozenset()

    def binds(self, names: Iterable[str], also: Iterable[str] = ()) -> _State:
        """``names`` have a new value; those of ``also`` may be deleted or changed in place."""
        changed = {*names, *also}
        if not changed:
            return self
        held = frozenset(pair for pair in self.held if changed.isdisjoint(_words(pair[0])))
        facts = frozenset(fact for fact in self.facts if changed.isdisjoint(_words(fact)))
        return _State(self.bound.union(names), held, facts)

    def knowing(self, tests: frozenset[str], excluded: frozenset[str]) -> _State | None:
        """Where these conditions hold; None where one of the ``excluded`` ones does already."""
        if self.facts & excluded:
            return None
        bound = self.bound | {name for test, name in self.held if test in tests}
        return replace(self, bound=bound, facts=self.facts | tests)


def _join(*states: _State | None) -> _State | None:
    """Where several paths meet; None is a path that does not get there."""
    known = [state for state in states if state is not None]
    if not known:
        return None
    bound = frozenset.intersection(*(state.bound for state in known))
    # what a path has anyway it has under every condition
    pairs = frozenset().union(*(state.held for state in known))
    held = {pair for pair in pairs if all(pair in state.held or pair[1] in state.bound for state in known)}
    return _State(bound, frozenset(held), frozenset.intersection(*(state.facts for state in known)))


class _Reader:
    def __init__(self) -> None:
        self.found: set[str] = set()
        self.local: set[str] = set()
        self.broken: list[_State] = []

    def run(self, blocks: Sequence[_Block], state: _State | None) -> _State | None:
        """The state after some statements; None when none of the paths ends there."""
        number = 0
        while number < len(blocks):
            if state is None:
                return None
            end = number + 1
            while end < len(blocks) and CONTINUES.match(blocks[end].head.key):
                end += 1
            state = self._one(blocks[number:end], state)
            number = end
        return state

    def _one(self, parts: Sequence[_Block], state: _State) -> _State | None:
        """One statement with the parts that belong to it (``else``, ``except``, ...)."""
        first = parts[0]
        key = first.head.key
        if key.startswith("if ") and first.head.is_header:
            return self._if(parts, state)
        if _LOOPS.match(key) and first.head.is_header:
            return self._loop(parts, state)
        if key == "try:":
            return self._try(parts, state)
        if key.startswith("match ") and first.body:
            return self._match(first, state)
        state = self._reads(key, state)
        if uses(key).parameters is not None or key.startswith("class "):
            return state
        if key in ("break", "continue"):
            self.broken += [state] if key == "break" else []
            return None
        return None if _ENDS.match(key) else self.run(first.body, state)

    def _reads(self, key: str, state: _State) -> _State:
        found = uses(key)
        self.found |= (found.reads & self.local) - state.bound
        return state.binds(found.defines, found.rebinds)

    def _if(self, parts: Sequence[_Block], state: _State) -> _State | None:
        head, rest = parts[0], parts[1:]
        if head.head.key == "else:":
            return self.run(head.body, state)
        state = self._reads(head.head.key, state)
        yes, no = conditions(head.head.key) or (frozenset(), frozenset())
        then = self.run(head.body, state.knowing(yes, no))
        other = state.knowing(no, yes)
        after = self._if(rest, other) if rest and other else other
        both = _join(then, after)
        if both is None or then is None or after is None:
            return both
        kept = {(c, n) for part, tests in ((then, yes), (after, no)) for c in tests for n in part.bound}
        changed = rebinds(_keys(parts))
        kept = {(c, n) for c, n in kept if n not in both.bound and changed.isdisjoint(_words(c))}
        return replace(both, held=both.held | kept)

    def _loop(self, parts: Sequence[_Block], state: _State) -> _State | None:
        head = parts[0]
        before = state.binds((), rebinds(_keys(head.body)))
        inside = self._reads(head.head.key, before)
        outer, self.broken = self.broken, []
        self.run(head.body, inside)
        broken, self.broken = self.broken, outer
        endless = head.head.key in ("while True:", "while 1:")
        ended = None if endless else _join(before, inside)
        ended = self.run(parts[1].body, ended) if len(parts) > 1 and ended else ended
        return _join(ended, *broken)

    def _try(self, parts: Sequence[_Block], state: _State) -> _State | None:
        middle = {part.head.key.partition(" ")[0].rstrip(":"): part for part in parts[1:]}
        after = self.run(parts[0].body, state)
        after = self.run(middle["else"].body, after) if "else" in middle else after
        failed = state.binds((), rebinds(_keys(parts[0].body)))
        caught = [
            self.run(part.body, self._reads(part.head.key, failed))
            for part in parts[1:]
            if part.head.key.startswith("except")
        ]
        after = _join(after, *caught)
        if last := middle.get("finally"):
            cleaned = self.run(last.body, failed)
            gained = cleaned.bound - failed.bound if cleaned else frozenset()
            return replace(after, bound=after.bound | gained) if after and cleaned else None
        return after

    def _match(self, block: _Block, state: _State) -> _State | None:
        state = self._reads(block.head.key, state)
        ends = [self.run(case.body, self._reads(case.head.key, state)) for case in block.body]
        whole = any(
            re.fullmatch(r"case (?!None|True|False)[^\W\d]\w*:", case.head.key) for case in block.body
        )
        return _join(*ends, *(() if whole else (state,)))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _negated(test: ast.expr) -> str:
    return ast.unparse(ast.UnaryOp(ast.Not(), test))


def _keys(blocks: Sequence[_Block]) -> list[str]:
    """The statements of the function itself, less the bodies of functions inside it."""
    found: list[str] = []
    for block in blocks:
        found.append(block.head.key)
        inner = uses(block.head.key).parameters is not None or block.head.key.startswith("class ")
        found += [] if inner else _keys(block.body)
    return found
