"""Small real Python methods for property tests, and the edits that people make to them.

Everything draws from a :class:`random.Random`, so that hypothesis can shrink it
(``st.randoms``) and a plain seed can replay it.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st

NAMES = ["batch", "tokens", "hidden", "logits", "mask", "slots", "state", "output", "counts", "spans"]
ATTRIBUTES = ["input_ids", "positions", "kv_cache", "sampler", "drafter", "block_table", "config", "model"]
VERBS = ["prepare", "pad", "gather", "split", "update", "build", "sync", "select", "apply", "record"]
KEYWORDS = ["num_tokens", "dtype", "device", "non_blocking", "mode", "uniform"]
MARKER = "# -------- omni: "
_WORD = re.compile(r"\b(" + "|".join([*NAMES, *ATTRIBUTES, *VERBS]) + r")\b")


@dataclass
class Node:
    """One logical line, what stands before and under it, and its ``else`` and the like."""

    code: str
    body: list[Node] = field(default_factory=list)
    also: list[Node] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    blanks: int = 0


@st.composite
def versions(draw: st.DrawFn, edits: int = 4) -> tuple[str, str, str]:
    """Source of base, ours and theirs: a method, and two edited copies of it."""
    return three_versions(draw(st.randoms(use_true_random=False)), edits)


@st.composite
def methods(draw: st.DrawFn) -> str:
    """Source of one method."""
    rng = draw(st.randoms(use_true_random=False))
    return method(body(rng, rng.randint(1, 7)))


def three_versions(rng: random.Random, edits: int = 4) -> tuple[str, str, str]:
    """A method, and two copies of it with up to ``edits`` edits each, some of them in common."""
    base = body(rng, rng.randint(2, 6))
    ours, theirs = copy.deepcopy(base), copy.deepcopy(base)
    if rng.random() < 0.25:
        same = rng.randrange(1 << 16)
        for side in (ours, theirs):
            edit(random.Random(same), side)
    for side, mark in ((ours, MARKER), (theirs, "# ")):
        for _ in range(rng.randint(0, edits)):
            edit(rng, side, mark)
    return method(base), method(ours), method(theirs)


@st.composite
def edited_apart(draw: st.DrawFn) -> tuple[str, str, str, str]:
    """Source of base, ours and theirs, changed at different statements, and of all changes together.

    Ours may wrap a run of statements too; theirs changes statements inside and outside of it.
    From plain seeds: what hypothesis shrinks to, many equal statements, has no one right merge.
    """
    return apart(random.Random(draw(st.integers(0, 1 << 32))))


def apart(rng: random.Random) -> tuple[str, str, str, str]:
    """Base, ours, theirs and the method with the changes of both."""
    base = body(rng, rng.randint(3, 7))
    blocks = len(list(_blocks(base)))
    wrapped = rng.randrange(blocks)
    size = len(list(_blocks(base))[wrapped])
    start = rng.randrange(size)
    run = slice(start, rng.randint(start + 1, size))
    lock = f"with self.lock_{rng.randrange(1000)}():"
    # one change for a statement at most, and each statement changes on one side only
    plan = {
        (b, n): (rng.randrange(4), rng.randrange(1 << 16)) for b, n in _places(base) if rng.random() < 0.3
    }
    taken: list[str] = []
    for sides in ((), (0, 1), (2, 3), (0, 1, 2, 3)):
        nodes = copy.deepcopy(base)
        lists = list(_blocks(nodes))
        for (b, n), (side, seed) in sorted(plan.items()):
            if side in sides:
                mark = MARKER if side < 2 else "# "
                change = random.Random(seed)
                reword(change, lists[b][n])
                lists[b][n].comments.append(comment(change, mark))
        if 0 in sides:
            lists[wrapped][run] = [Node(lock, lists[wrapped][run])]
        taken.append(method(nodes))
    return taken[0], taken[1], taken[2], taken[3]


def _places(nodes: list[Node]) -> list[tuple[int, int]]:
    return [(b, n) for b, block_ in enumerate(_blocks(nodes)) for n in range(len(block_))]


def method(nodes: list[Node]) -> str:
    """The source of a method with this body."""
    return "    def step(self, batch, tokens=None):\n" + "\n".join(_lines(nodes, 8))


def _lines(nodes: list[Node], indent: int) -> Iterator[str]:
    pad = " " * indent
    for node in nodes:
        yield from ([""] * node.blanks)
        yield from (pad + comment for comment in node.comments)
        first, *more = node.code.split("\n")
        yield pad + first
        yield from (line if '"""' in first else pad + line for line in more)
        yield from _lines(node.body, indent + 4)
        yield from _lines(node.also, indent)


def body(rng: random.Random, size: int, depth: int = 2) -> list[Node]:
    """``size`` statements, some of them blocks."""
    return [node(rng, depth) for _ in range(size)]


def node(rng: random.Random, depth: int, mark: str = "# ") -> Node:
    made = block(rng, depth) if depth and rng.random() < 0.3 else Node(simple(rng))
    if rng.random() < 0.15:
        made.comments = [comment(rng, mark)]
    made.blanks = int(rng.random() < 0.1)
    return made


def block(rng: random.Random, depth: int) -> Node:
    inner = lambda: body(rng, rng.randint(1, 3), depth - 1)  # noqa: E731
    kind = rng.randrange(5)
    if kind == 0:
        return Node(f"with self.{rng.choice(VERBS)}({expression(rng)}):", inner())
    if kind == 1:
        return Node(f"for {rng.choice(NAMES)} in {call(rng)}:", inner())
    if kind == 2:
        also = [Node(f"except {rng.choice(['ValueError', 'KeyError'])}:", inner())]
        return Node("try:", inner(), also)
    also = [Node(f"elif {condition(rng)}:", inner())] if rng.random() < 0.3 else []
    also += [Node("else:", inner())] if rng.random() < 0.4 else []
    return Node(f"if {condition(rng)}:", inner(), also)


def simple(rng: random.Random) -> str:
    """A statement on one logical line; calls may be laid out over several."""
    kind = rng.randrange(10)
    name, attribute = rng.choice(NAMES), rng.choice(ATTRIBUTES)
    if kind < 3:
        code = f"{name} = {call(rng)}"
    elif kind < 5:
        code = f"{name} = {expression(rng)}"
    elif kind == 5:
        code = f"self.{attribute} = {expression(rng)}"
    elif kind == 6:
        code = f"{name}, {rng.choice(NAMES)} = {call(rng)}"
    elif kind == 7:
        code = rng.choice([f"assert {condition(rng)}", f"{name} += 1", "return", f"return {expression(rng)}"])
    else:
        code = call(rng)
    return code + (f"  {comment(rng)}" if rng.random() < 0.08 else "")


def call(rng: random.Random) -> str:
    given = [expression(rng) for _ in range(rng.randint(0, 2))]
    names = rng.sample(KEYWORDS, rng.randint(0, 2))
    given += [f"{name}={expression(rng)}" for name in names]
    callee = f"self.{rng.choice(VERBS)}_{rng.choice(ATTRIBUTES)}"
    if given and rng.random() < 0.2:
        return callee + "(\n" + "".join(f"    {item},\n" for item in given) + ")"
    return f"{callee}({', '.join(given)})"


def expression(rng: random.Random) -> str:
    name, attribute = rng.choice(NAMES), rng.choice(ATTRIBUTES)
    return rng.choice(
        [
            *(name, f"self.{attribute}", f"{name}.{attribute}", f"{name}[: self.{attribute}]"),
            *("None", str(rng.randrange(9)), f"{name} + 1", f"({name}, {rng.choice(NAMES)})"),
        ]
    )


def condition(rng: random.Random) -> str:
    name, attribute = rng.choice(NAMES), rng.choice(ATTRIBUTES)
    return rng.choice([f"{name} is not None", f"self.{attribute}", f"self.{attribute} and {name} > 1"])


def comment(rng: random.Random, mark: str = "# ") -> str:
    return f"{mark}{rng.choice(NAMES)} {rng.randrange(1000)}"


# -- edits --


def edit(rng: random.Random, nodes: list[Node], mark: str = "# ") -> None:
    """One edit of a kind that people make, somewhere in the method, in place."""
    block_ = rng.choice(list(_blocks(nodes)))
    at = rng.randrange(len(block_))
    kind = rng.randrange(12)
    if kind < 3:
        block_.insert(at + rng.randint(0, 1), node(rng, 1, mark))
    elif kind == 3 and len(block_) > 1:
        del block_[at]
    elif kind < 7:
        reword(rng, block_[at])
    elif kind == 7:
        end = rng.randint(at + 1, len(block_))
        header = rng.choice([f"if {condition(rng)}:", f"with self.{rng.choice(VERBS)}():"])
        block_[at:end] = [Node(header, block_[at:end])]
    elif kind == 8 and block_[at].body and not block_[at].also:
        block_[at : at + 1] = block_[at].body
    elif kind == 9 and at:
        block_[at - 1], block_[at] = block_[at], block_[at - 1]
    elif kind == 10 and len(block_) > 1:
        moved = block_.pop(at)
        rng.choice(list(_blocks(nodes))).append(moved)
    else:
        block_[at].comments.append(comment(rng, mark))


def reword(rng: random.Random, target: Node) -> None:
    """Change a part of one statement: a word, or one more keyword argument."""
    code = target.code.partition("  #")[0]
    if re.search(r"\w\((?!\)).*[^)]\)$", code, re.DOTALL) and rng.random() < 0.5:
        target.code = code[:-1].rstrip(",\n") + f", {rng.choice(VERBS)}_{rng.randrange(1000)}=1)"
        return
    words = list(_WORD.finditer(code))
    if words:
        word = rng.choice(words)
        pool = next(pool for pool in (NAMES, ATTRIBUTES, VERBS) if word.group() in pool)
        target.code = code[: word.start()] + rng.choice(pool) + code[word.end() :]


def _blocks(nodes: list[Node]) -> Iterator[list[Node]]:
    """The statement lists in a method, outermost first."""
    yield nodes
    for item in nodes:
        if item.body:
            yield from _blocks(item.body)
        for other in item.also:
            yield from _blocks(other.body)
