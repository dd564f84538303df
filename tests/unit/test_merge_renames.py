"""What upstream named anew is named so in ours too, and nothing new comes to stand where it never runs."""

from __future__ import annotations

import textwrap

import pytest

from npu_upgrade.code.statements import render, split_statements
from npu_upgrade.threeway.method import Context, merge_method
from npu_upgrade.threeway.pieces import MergedMethod, resolved

BASE = """
    states, outputs = self.model(batch)
    rows = []
    for one in outputs:
        rows.append(self.row(one, key="outputs"))
    return Output(outputs=None, rows=rows)
"""
OURS = BASE.replace("rows = []", "rows = []\n    self.note(f'{outputs!r}', outputs=outputs)")
RENAMED = BASE.replace("outputs", "payloads").replace("Output(payloads=", "Output(outputs=")
RENAMED = RENAMED.replace('key="payloads"', 'key="outputs"')


def method(body: str, head: str = "def step(self, batch):") -> str:
    return f"    {head}\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)


def merge(*bodies: str, head: str = "def step(self, batch):") -> MergedMethod:
    return merge_method(*(split_statements(method(body, head)) for body in bodies))


def text(merged: MergedMethod) -> str:
    assert not merged.conflicts
    return textwrap.dedent(render(merged.pieces)).partition("\n")[2]


def test_what_ours_reads_gets_upstreams_new_name_and_nothing_else_does():
    found = text(merge(BASE, OURS, RENAMED))
    assert "self.note(f'{payloads!r}', outputs=payloads)" in found
    assert 'rows.append(self.row(one, key="outputs"))' in found
    assert "return Output(outputs=None, rows=rows)" in found


def test_both_may_change_a_statement_in_which_upstream_has_a_new_name():
    ours = BASE.replace("rows=rows)", "rows=rows, extra=self.extra(outputs))")
    theirs = RENAMED.replace("rows=rows)", "rows=rows, late=self.late(payloads))")
    found = text(merge(BASE, ours, theirs))
    assert "self.extra(payloads)" in found
    assert "self.late(payloads)" in found


def test_upstream_may_use_the_old_name_for_another_value():
    theirs = RENAMED.replace("    return", "    outputs = self.pack(rows)\n    return").replace(
        "=None", "=outputs"
    )
    found = text(merge(BASE, OURS, theirs))
    assert "outputs=payloads)" in found
    assert "return Output(outputs=outputs, rows=rows)" in found


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (OURS.replace("self.note", "payloads = 1\n    self.note"), RENAMED),
        (OURS, RENAMED.replace("for one in payloads", "outputs = 1\n    for one in outputs")),
    ],
    ids=["ours has the new name for something else", "upstream still reads the old one"],
)
def test_a_name_that_is_not_sure_to_be_the_same_value_stays(ours, theirs):
    merged = merge(BASE, ours, theirs)
    shown = render([one for one in merged.pieces if hasattr(one, "key")])
    shown += "".join(side for one in merged.conflicts for side in one.texts())
    assert "outputs=outputs)" in shown


def test_a_parameter_keeps_its_name():
    base = BASE.replace("states, outputs = self.model(batch)", "outputs = self.model(outputs)")
    ours = OURS.replace("states, outputs = self.model(batch)", "outputs = self.model(outputs)")
    theirs = RENAMED.replace("states, payloads = self.model(batch)", "payloads = self.model(outputs)")
    merged = merge(base, ours, theirs, head="def step(self, outputs):")
    shown = render([one for one in merged.pieces if hasattr(one, "key")])
    assert "def step(self, outputs):" in shown
    assert "self.model(payloads)" not in shown


BLOCK = """
    if self.state is not None:
        raise RuntimeError("called twice")
    if self.ready:
        self.buffer.clear()
        buffer = Buffer.get()
    return self.run(batch)
"""
MOVED = """
    if self.config.keeps:
        if self.ready:
            self.buffer.clear()
    if self.state is not None:
        raise RuntimeError("called twice")
    return self.run(batch)
"""
SPLIT = """
    if self.state is not None:
        raise RuntimeError("called twice")
    if self.ready:
        self.buffer.clear()
    if hasattr(self, "connector"):
        self.connector.receive()
    if self.ready:
        buffer = self.buffer
        if buffer is not None:
            buffer.wait()
    return self.run(batch)
"""


def test_new_text_never_stands_behind_what_always_leaves():
    merged = merge(BLOCK, MOVED, SPLIT)
    shown = render([one for one in merged.pieces if hasattr(one, "key")])
    assert """called twice")\n        return self.run(batch)""" in shown
    assert any("buffer.wait()" in flag.theirs and "always leaves" in flag.reason for flag in merged.flags)


def test_what_would_never_run_with_ours_is_part_of_the_question():
    sides = [split_statements(method(body)) for body in (BLOCK, MOVED, SPLIT)]
    merged = merge_method(*sides, Context(takes_new=True))
    (conflict,) = merged.conflicts
    assert "self.connector.receive()" in conflict.texts()[2]
    assert "buffer.wait()" in conflict.texts()[2]
    assert 'called twice")\n        return self.run(batch)' in render(resolved(merged.pieces, "ours"))
