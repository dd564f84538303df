"""The catalogue as a document: nothing of the sources in it, and purposes that survive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu_upgrade.lineage.catalogue.block import Block, Catalogue, Listing, Method
from npu_upgrade.lineage.catalogue.compare import changed
from npu_upgrade.lineage.catalogue.reference import EARLIER, render, rows, specs_in, with_purposes
from npu_upgrade.lineage.catalogue.syntax import made_of, starts_with


def block(id: str, **changes: object) -> Block:
    plain = Block(id, "added", 10, 12, 3, 3, 0, "outside", 3, "call of `self.a`", "calls `self.a`, `self.b`")
    return replace(plain, **changes)


WHOLE = block("cccccccccc", kind="own", marker="unneeded", made_of="calls `z`")


def catalogue(*blocks: Block, whole: Block = WHOLE) -> Catalogue:
    copied = Method("Runner.run", 1, 40, "up.py:Up.run", "1.0", True, tuple(blocks))
    own = Method("Runner.talk", 50, 60, "", "", False, (whole,))
    return Catalogue({"vllm-omni": "pypi:vllm-omni==9.9"}, (Listing("npu", "a/runner.py", (copied, own)),))


def purposes(text: str) -> dict[str, str]:
    return {row.id: EARLIER * row.earlier + row.purpose for row in rows(text)}


def test_a_document_is_read_back_as_it_was_written() -> None:
    text = render(
        catalogue(block("aaaaaaaaaa", purpose="Says | hello."), block("bbbbbbbbbb", first=20, last=20))
    )
    found = list(rows(text))
    assert [(r.path, r.method, r.id, r.lines, r.kind) for r in found] == [
        ("a/runner.py", "Runner.run", "aaaaaaaaaa", "10-12", "added"),
        ("a/runner.py", "Runner.run", "bbbbbbbbbb", "20", "added"),
        ("a/runner.py", "Runner.talk", "cccccccccc", "10-12", "own"),
    ]
    assert found[0].purpose == "Says | hello."
    assert specs_in(text) == {"vllm-omni": "pypi:vllm-omni==9.9"}


def test_a_purpose_stays_with_its_content() -> None:
    old = render(catalogue(block("aaaaaaaaaa", purpose="Says hello.")))
    new = with_purposes(catalogue(block("aaaaaaaaaa", first=30, last=32)), rows(old))
    assert purposes(render(new))["aaaaaaaaaa"] == "Says hello."


def test_a_changed_block_keeps_it_as_an_earlier_form() -> None:
    old = render(catalogue(block("aaaaaaaaaa", purpose="Says hello.")))
    later = block("dddddddddd", made_of="calls `self.a`, `self.b`, `self.c`")
    text = render(with_purposes(catalogue(later), rows(old)))
    assert purposes(text)["dddddddddd"] == "(earlier form) Says hello."
    again = render(with_purposes(catalogue(later), rows(text)))
    assert again == text


def test_a_confirmed_purpose_is_no_earlier_form_any_more() -> None:
    text = render(catalogue(block("aaaaaaaaaa", purpose="Says hello.", earlier=True)))
    assert not next(iter(rows(text.replace(EARLIER, "")))).earlier


def test_another_block_gets_none_of_it() -> None:
    old = render(catalogue(block("aaaaaaaaaa", purpose="Says hello.")))
    other = block("dddddddddd", starts="setting of `x`", made_of="sets `x`; calls `y`")
    assert purposes(render(with_purposes(catalogue(other), rows(old))))["dddddddddd"] == ""


def test_a_purpose_is_not_given_to_two_changed_blocks() -> None:
    old = render(catalogue(block("aaaaaaaaaa", purpose="Says hello.")))
    two = catalogue(block("dddddddddd"), block("eeeeeeeeee", first=20))
    assert sorted(purposes(render(with_purposes(two, rows(old)))).values()) == [
        "",
        "",
        "(earlier form) Says hello.",
    ]


def test_a_whole_method_keeps_it_by_its_name() -> None:
    old = render(catalogue(whole=replace(WHOLE, purpose="Talks.")))
    new = catalogue(whole=replace(WHOLE, id="ffffffffff"))
    assert purposes(render(with_purposes(new, rows(old))))["ffffffffff"] == "(earlier form) Talks."


def test_the_first_of_two_rows_counts() -> None:
    texts = [render(catalogue(block("aaaaaaaaaa", purpose=text))) for text in ("Mine.", "Theirs.")]
    known = [row for text in texts for row in rows(text)]
    assert purposes(render(with_purposes(catalogue(block("aaaaaaaaaa")), known)))["aaaaaaaaaa"] == "Mine."


@pytest.mark.parametrize(
    ("new", "word"),
    [
        (block("bbbbbbbbbb"), "new:"),
        (block("aaaaaaaaaa", first=11, last=13), "moved:"),
        (block("aaaaaaaaaa", marker="inside"), "marker:"),
    ],
)
def test_what_is_stale_is_said(new: Block, word: str) -> None:
    old = list(rows(render(catalogue(block("aaaaaaaaaa")))))
    assert changed(old, old) == []
    assert any(line.startswith(word) for line in changed(old, rows(render(catalogue(new)))))


def test_a_purpose_alone_makes_nothing_stale() -> None:
    texts = [render(catalogue(block("aaaaaaaaaa", purpose=text))) for text in ("", "Says hello.")]
    assert changed(rows(texts[0]), rows(texts[1])) == []


KEYS = [
    "secret = self.table['password'] + 42",
    "if self.limit > 17 and batch.name == 'private':",
    "self.send(secret, retries=99, text='do not print')",
    "return {'answer': secret}",
]


def test_derived_words_hold_names_and_nothing_else() -> None:
    words = starts_with(KEYS) + made_of(KEYS)
    for code in (
        "42",
        "17",
        "99",
        "password",
        "private",
        "do not print",
        "answer",
        "retries",
        "=",
        "+",
        ">",
        "(",
    ):
        assert code not in words
    for name in ("`secret`", "`self.send`"):
        assert name in words


@pytest.mark.parametrize(
    "key", ["else:", "except ValueError as error:", "try:", "finally:", "case 3:", "@plain", "not python ("]
)
def test_any_statement_can_be_described(key: str) -> None:
    assert "(" not in starts_with([key]) + made_of([key])
