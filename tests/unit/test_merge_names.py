"""No merge result reads a name whose binding it dropped, unless it says so.

The versions are small functions in which few names are bound and read in all the ways that Python
has; each edit adds, deletes or re-words a statement, or a whole block.
"""

from __future__ import annotations

import ast
import copy
import random
import symtable
import textwrap

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_upgrade.code.statements import render, split_statements
from npu_upgrade.threeway.method import merge_method
from npu_upgrade.threeway.pieces import MergedMethod, as_module, resolved

NAMES = ["mode", "state", "count", "spans"]
Block = list[tuple[str, "Block"]]


def method(body: str) -> str:
    return "    def step(self, batch):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)


def merge(*sides: str) -> MergedMethod:
    return merge_method(*map(split_statements, sides))


class _AsReads(ast.NodeTransformer):
    """Turns what needs a value and gives none (``x += 1``, ``del x``, ``x: int``) into reads."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        return ast.Expr(ast.Tuple([ast.Name(node.target.id, ast.Load()), node.value], ast.Load()))

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        return ast.Expr(ast.Tuple([ast.Name(one.id, ast.Load()) for one in node.targets], ast.Load()))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return node if node.value else ast.Expr(node.annotation)


def unbound(source: str) -> set[str]:
    """The names of ours that a method takes from outside, as Python's own symbol table has it."""
    tree = ast.fix_missing_locations(_AsReads().visit(ast.parse(as_module(source))))
    tables, found = [symtable.symtable(ast.unparse(tree), "<method>", "exec")], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        found |= {one.get_name() for one in table.get_symbols() if one.is_global() and one.is_referenced()}
    return found & set(NAMES)


def told(merged: MergedMethod) -> set[str]:
    """The names that conflicts and flags show to a person."""
    texts = [text for conflict in merged.conflicts for text in conflict.texts()]
    texts += [text for flag in merged.flags for text in (flag.base, flag.ours, flag.theirs)]
    return {name for name in NAMES for text in texts if name in text}


def silent(base: str, ours: str, theirs: str) -> set[str]:
    """The names that the merge reads, that nothing binds any more, and that it says nothing of."""
    merged = merge(base, ours, theirs)
    results = [render(resolved(merged.pieces, side)) for side in ("ours", "theirs")]
    return set().union(*map(unbound, results)) - unbound(ours) - unbound(theirs) - told(merged)


BASE = """
    mode = self.mode(batch)
    self.first(mode)
    self.second(batch)
    return batch
"""
DROPPED = BASE.replace("    mode = self.mode(batch)\n", "").replace("self.first(mode)", "self.first(1)")


@pytest.mark.parametrize(
    "reader",
    [
        "match mode:\n        case 1:\n            self.third()",
        "match batch:\n        case {'k': 1} if mode:\n            self.third()",
        "@wrap(mode)\n    def inner():\n        return 1",
        "mode += 1",
        "del mode",
        "self.third([mode for mode in batch], mode)",
        "if (n := mode):\n        self.third(n)",
        "with self.lock(mode) as held:\n        pass",
        "try:\n        pass\n    except mode as error:\n        pass",
        "def inner(x=mode):\n        return x",
        "def inner():\n        mode = 1\n        return mode\n    self.third(mode)",
        "def inner(mode):\n        return mode\n    self.third(mode)",
        "self.third(lambda: mode)",
        "if batch: pass\n    elif(mode): self.third()",
        "if batch: pass\n    else: self.third(mode)",
        "mode: int\n    self.third(mode)",
    ],
)
@pytest.mark.parametrize("dropper", ["ours", "theirs"])
def test_a_new_reader_of_a_dropped_name_is_told(reader: str, dropper: str) -> None:
    reading = BASE.replace("    return batch\n", f"    {reader}\n    return batch\n")
    sides = (DROPPED, reading) if dropper == "ours" else (reading, DROPPED)
    assert silent(*map(method, (BASE, *sides))) == set()


# -- the class of it --


@st.composite
def versions(draw: st.DrawFn) -> tuple[str, str, str]:
    rng = draw(st.randoms(use_true_random=False))
    base = body(rng, rng.randint(3, 6), 1)
    ours, theirs = copy.deepcopy(base), copy.deepcopy(base)
    for side in (ours, theirs):
        for _ in range(rng.randint(1, 3)):
            edit(rng, side)
    return tuple(method("\n".join(lines(nodes))) for nodes in (base, ours, theirs))


def body(rng: random.Random, size: int, depth: int) -> Block:
    return [block(rng, depth) if depth and rng.random() < 0.4 else (simple(rng), []) for _ in range(size)]


def simple(rng: random.Random) -> str:
    a, b = rng.choice(NAMES), rng.choice(NAMES)
    number = rng.randrange(100)
    return rng.choice(
        [
            *(f"{a} = self.get_{number}()", f"{a} = self.get_{number}()", f"{a} = {b} + {number}"),
            *(f"self.use_{number}({a})", f"self.use_{number}({a}, {b})", f"{a} += {number}"),
            *(f"{a}: int = {number}", f"{a}, {b} = self.pair_{number}()", f"import {a}"),
            *(f"self.all_{number}([{a} for {a} in {b}])", f"self.call_{number}(lambda {a}: {a} + {b})"),
            *(f"del {a}", f"self.note_{number}({a} := {number})", f"return {a}"),
        ]
    )


def block(rng: random.Random, depth: int) -> tuple[str, Block]:
    a, b = rng.choice(NAMES), rng.choice(NAMES)
    number = rng.randrange(100)
    header = rng.choice(
        [
            *(f"if {a}:", f"for {a} in self.all_{number}({b}):", f"with self.open_{number}({a}) as {b}:"),
            *(f"match {a}:", f"match self.kind_{number}():"),
            *(f"def inner_{number}({a}, x={b}):", f"@wrap_{number}({a})\ndef inner_{number}():"),
            *("try:", f"while ({a} := self.next_{number}()):"),
        ]
    )
    inner = body(rng, rng.randint(1, 2), depth - 1)
    if header.startswith("match"):
        inner = [(rng.choice([f"case {number}:", f"case [{b}, *_]:", f"case {{'k': {b}}} if {a}:"]), inner)]
    elif header == "try:":
        inner = [*inner, (f"except KeyError as {a}:", body(rng, 1, 0))]
    return header, inner


def lines(nodes: Block) -> list[str]:
    found = []
    for code, inner in nodes:
        found += code.split("\n")
        for one in inner:
            pad = "" if one[0].startswith("except") else "    "
            found += [pad + line for line in lines([one])]
    return found


def edit(rng: random.Random, nodes: Block) -> None:
    at = rng.randrange(len(nodes))
    code, inner = nodes[at]
    kind = rng.randrange(6)
    if kind < 2:
        nodes.insert(at, body(rng, 1, 1)[0])
    elif kind < 4 and len(nodes) > 1:
        del nodes[at]
    elif inner and "try" not in code and "match" not in code:
        edit(rng, inner)
    elif not inner:
        nodes[at] = (simple(rng), [])


@settings(max_examples=examples(1500), derandomize=True)
@given(versions())
def test_no_result_reads_a_name_whose_binding_it_dropped(sides: tuple[str, str, str]) -> None:
    assert silent(*sides) == set()


GATHERED = """
state = self.state
(
    hidden,
    {0},
) = state
{1}: list[object] = []
if isinstance({0}, Tensor):
    assert {0}.shape[0] == 1, "one"
    for i in range(self.num):
        {1}.append({{"model": {0}[i].detach()}})
elif isinstance({0}, list):
    assert len({0}) == 1, "one list"
    for one in {0}:
        {1}.append({{"model": one.detach() if one is not None else None}})
else:
    for i in range(self.num):
        part = {{}}
        for key, one in {0}.items():
            part[key] = one[i]
        {1}.append(part)
ids = self.ids.copy()
result = Output(
    ids=ids,
    tokens=[],
    pooled=out,
)
return result
"""


def test_where_one_text_of_a_conflict_defines_a_name_its_readers_are_asked_with_it() -> None:
    """One answer to all of the conflicts is the whole method of that side, with no half of the other's."""
    base = method(GATHERED.format("outputs", "out"))
    ours = base.replace("hidden,\n", "hidden,\n            meta,\n")
    ours = ours.replace("        out: list", "        # ours\n        self.begin()\n        out: list")
    ours = ours.replace("tokens=[],\n", "tokens=[],\n            kv=self.kv,\n")
    ours = ours.replace("        result", "        extra = self.extra()\n        result")
    split = "if self.chunked:\n    inner, outputs = split(payloads)\nelse:\n    outputs = payloads\nids ="
    theirs = method(GATHERED.format("raw", "payloads").replace("ids =", split).replace("=out", "=outputs"))
    merged = merge_method(*map(split_statements, (base, ours, theirs)))
    assert not [flag for flag in merged.flags if flag.kind == "held"]
    text = render(resolved(merged.pieces, "theirs"))
    assert text.count("payloads.append(") == 3
    assert "out.append(" not in text
    assert "isinstance(outputs" not in text
