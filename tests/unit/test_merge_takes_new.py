"""A method that is put in as a whole gets what is new of theirs, or a question about it."""

from __future__ import annotations

import textwrap

from npu_upgrade.code.statements import Statement, render, split_statements
from npu_upgrade.threeway.method import Context, merge_method
from npu_upgrade.threeway.pieces import MergedMethod

BASE = """
    if self.cache is not None:
        self.cache.drain()
    states = self.model(batch)
    rows = self.rows(states)
    if self.cache is not None and self.last:
        self.cache.write(rows)
    return Output(rows)
"""
NEVER_DRAINED = """
    states = self.model(batch)
    rows = self.rows(states)
    self.cache_rows(rows)
    return Output(rows)
"""


def merge(*bodies: str, takes_new: bool = True) -> MergedMethod:
    head = "    def step(self, batch):\n"
    texts = [head + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8) for body in bodies]
    return merge_method(*map(split_statements, texts), Context(takes_new=takes_new))


def plain(merged: MergedMethod) -> str:
    return render([one for one in merged.pieces if isinstance(one, Statement)])


def test_a_step_in_place_of_what_ours_never_had_comes_in_where_it_stood():
    theirs = BASE.replace(
        "if self.cache is not None:\n        self.cache.drain()", "self.cache_begins(batch)", 1
    )
    merged = merge(BASE, NEVER_DRAINED, theirs)
    assert not merged.conflicts
    assert "self.cache_begins(batch)\n        states = self.model(batch)" in plain(merged)
    kept = merge(BASE, NEVER_DRAINED, theirs, takes_new=False)
    assert "self.cache_begins" not in plain(kept)
    assert any(flag.kind == "replaced" for flag in kept.flags), "elsewhere a person is told of it"


def test_what_is_new_in_part_is_asked_about_where_ours_has_its_own():
    old = "    if self.cache is not None and self.last:\n        self.cache.write(rows)\n"
    new = "    if (step := self.save(rows)) is not None:\n        self.cache.write(rows)\n"
    theirs = BASE.replace(old, new).replace("Output(rows)", "Output(rows, step)")
    merged = merge(BASE, NEVER_DRAINED, theirs)
    (conflict,) = merged.conflicts
    assert "self.cache_rows(rows)" in conflict.texts()[1]
    assert "step := self.save(rows)" in conflict.texts()[2]
    # who answers with theirs has all that reads it, and no second question
    assert "return Output(rows, step)" in plain(merged)
