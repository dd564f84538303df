"""Answers to conflicts: kept by content, used again where they fit, never where they break."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npu_upgrade.code.statements import split_statements, statements_of
from npu_upgrade.merge.answers import Answers, apply_answers
from npu_upgrade.merge.conflict_identity import conflict_key, depth_of
from npu_upgrade.threeway.method import merge_method
from npu_upgrade.threeway.pieces import Conflict, MergedMethod, resolved

BASE = "        size = count(batch)"
OURS = "        size = count(batch, stage=1)"
THEIRS = "        size = count(batch, graph=True)"
BOTH = "        size = count(batch, stage=1, graph=True)"


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    return Answers(tmp_path / "answers")


def conflict(base: str = BASE, ours: str = OURS, theirs: str = THEIRS) -> Conflict:
    return Conflict(*(tuple(statements_of(text)) for text in (base, ours, theirs)), "both changed it")


def method(*pieces: Conflict | str) -> MergedMethod:
    out: list = split_statements("    def run(self, batch):\n        start()")
    for piece in pieces:
        out += statements_of(piece) if isinstance(piece, str) else [piece]
    return MergedMethod(tuple(out))


def remember(answers: Answers, answer: str, base: str = BASE, ours: str = OURS, theirs: str = THEIRS) -> str:
    key = conflict_key(base, ours, theirs)
    answers.remember(key, base, ours, theirs, answer, {"path": "a.py"})
    return key


def dedented(text: str, by: int) -> str:
    return "\n".join(line[by:] for line in text.split("\n"))


def test_an_unknown_conflict_stays_and_leaves_no_trace(answers: Answers) -> None:
    merged = method(conflict())
    assert apply_answers(merged, answers) is merged
    assert not answers.folder.exists()


def test_an_answer_is_used_again_with_a_flag(answers: Answers) -> None:
    remember(answers, BOTH)
    merged = apply_answers(method(conflict(), "        return size"), answers)
    assert merged.conflicts == []
    assert merged.text().endswith(f"{BOTH}\n        return size")
    (flag,) = merged.flags
    assert (flag.kind, flag.base, flag.ours, flag.theirs) == ("remembered", BASE, OURS, THEIRS)


def test_the_file_tells_what_it_answers_and_where_that_was_learned(answers: Answers) -> None:
    key = remember(answers, BOTH)
    kept = json.loads((answers.folder / f"{key}.json").read_text())
    assert (kept["base"], kept["ours"], kept["theirs"]) == (BASE, OURS, THEIRS)
    (entry,) = kept["answers"]
    assert entry["answer"] == BOTH.strip()
    assert entry["learned"]["path"] == "a.py"
    assert entry["learned"]["at"].startswith("20")


def test_depth_layout_and_comments_do_not_matter(answers: Answers) -> None:
    remember(answers, BOTH)
    ours = "    # why\n    size = count(\n        batch,\n        stage=1,\n    )"
    again = conflict(dedented(BASE, 8), ours, dedented(THEIRS, 4))
    assert answers.find(again) == BOTH[4:]


@pytest.mark.parametrize(
    "other",
    [
        (BASE, OURS, THEIRS.replace("True", "False")),
        (BASE, OURS, THEIRS + "\n        extra()"),
        ("", OURS, THEIRS),
        (BASE, OURS, "    " + THEIRS),
    ],
)
def test_another_conflict_has_another_key(answers: Answers, other: tuple[str, str, str]) -> None:
    remember(answers, BOTH)
    assert answers.find(conflict(*other)) is None


def test_an_empty_answer_removes_the_place(answers: Answers) -> None:
    remember(answers, "")
    assert answers.find(conflict()) == ""
    merged = apply_answers(method(conflict(), "        stop()"), answers)
    assert merged.text() == "    def run(self, batch):\n        start()\n        stop()"


def test_an_answer_that_breaks_the_method_is_not_used(answers: Answers) -> None:
    remember(answers, "")
    merged = method("        if batch:", conflict("", *("    " + t for t in (OURS, THEIRS))))
    key_texts = merged.conflicts[0].texts()
    answers.remember(conflict_key(*key_texts), *key_texts, "")
    assert answers.find(merged.conflicts[0]) == ""
    assert apply_answers(merged, answers) is merged


def test_one_bad_answer_does_not_keep_the_good_one_away(answers: Answers) -> None:
    inner = conflict("", "            one()", "            two()")
    answers.remember(conflict_key(*inner.texts()), *inner.texts(), "")
    remember(answers, BOTH)
    merged = apply_answers(method(conflict(), "        if size:", inner), answers)
    assert merged.conflicts == [inner]
    assert BOTH in merged.text()


def test_answers_that_only_parse_together_are_used_together(answers: Answers) -> None:
    head = conflict("        if a:", "        if a and b:", "        if a and c:")
    body = conflict("            one()", "            two()", "            three()")
    for piece, answer in ((head, "        one()"), (body, "        two()")):
        answers.remember(conflict_key(*piece.texts()), *piece.texts(), answer)
    merged = apply_answers(method(head, body), answers)
    assert merged.conflicts == []
    assert merged.text().endswith("        start()\n        one()\n        two()")


def test_a_long_string_is_not_moved(answers: Answers) -> None:
    answer = '        text = """\n  left\n"""\n        use(text)'
    remember(answers, answer)
    shallow = conflict(*(dedented(text, 4) for text in (BASE, OURS, THEIRS)))
    assert answers.find(shallow) == '    text = """\n  left\n"""\n    use(text)'


def test_comments_of_an_answer_survive(answers: Answers) -> None:
    remember(answers, "        # gone: see the issue")
    merged = apply_answers(method(conflict(), "        stop()"), answers)
    assert merged.text().endswith("        start()\n        # gone: see the issue\n        stop()")
    last = apply_answers(method(conflict()), answers)
    assert last.text().endswith("        start()\n        # gone: see the issue")


def test_a_conflict_that_leaves_a_block_keeps_its_shape(answers: Answers) -> None:
    sides = [f"            {name}()\n        done()" for name in ("one", "two", "three")]
    answer = "            two()\n            three()\n        done()"
    key = conflict_key(*sides)
    answers.remember(key, *sides, answer)
    merged = apply_answers(method("        if batch:", conflict(*sides)), answers)
    assert merged.text().endswith("        if batch:\n" + answer)


def stored(answer: object, key: str = "KEY") -> str:
    return json.dumps({"key": key, "answers": [{"answer": answer, "shift": 0, "learned": {}}]})


@pytest.mark.parametrize("text", ["{", "[]", stored(3), stored("", "other"), stored("("), '{"key": "KEY"}'])
def test_a_corrupt_file_is_no_answer(answers: Answers, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = remember(answers, BOTH)
    (answers.folder / f"{key}.json").write_text(text.replace("KEY", key))
    assert answers.find(conflict()) is None
    assert "is ignored" in capsys.readouterr().err
    remember(answers, BOTH)
    assert answers.find(conflict()) == BOTH


def test_an_answer_without_room_to_the_left_is_not_used(answers: Answers) -> None:
    sides = [f"            {name}()" for name in ("one", "two", "three")]
    answers.remember(conflict_key(*sides), *sides, "    out()")
    assert answers.find(conflict(*sides)) == "    out()"
    assert answers.find(conflict(*(text[8:] for text in sides))) is None


def test_a_new_answer_replaces_the_old_one_and_the_same_one_changes_nothing(answers: Answers) -> None:
    key = remember(answers, BOTH)
    first = (answers.folder / f"{key}.json").read_bytes()
    remember(answers, BOTH)
    assert (answers.folder / f"{key}.json").read_bytes() == first
    remember(answers, OURS)
    assert answers.find(conflict()) == OURS


def test_depth_is_that_of_ours_then_theirs_then_base() -> None:
    assert depth_of("  a()", "      # c\n    b()", " c()") == 4
    assert depth_of("  a()", "", " c()") == 1
    assert depth_of("  a()", "", "") == 2


def test_pieces_of_methods_can_begin_deeper_than_they_go_on() -> None:
    text = "            x()\n        # c\n        else:\n            y()\n    z()"
    assert [(s.indent, s.key) for s in statements_of(text)] == [
        (12, "x()"),
        (8, "else:"),
        (12, "y()"),
        (4, "z()"),
    ]


def test_a_conflict_of_a_real_merge_is_answered(answers: Answers) -> None:
    head = "    def run(self, batch):\n"
    sides = [
        split_statements(f"{head}{text}\n        return size") for text in (BASE, OURS, "        size = 3")
    ]
    merged = merge_method(*sides)
    (piece,) = merged.conflicts
    answers.remember(conflict_key(*piece.texts()), *piece.texts(), BOTH)
    again = apply_answers(merge_method(*sides), answers)
    assert again.text() == f"{head}{BOTH}\n        return size"
    assert resolved(again.pieces, "ours") == list(again.pieces)


def test_two_methods_with_different_answers_get_neither(
    answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = (BASE, OURS, THEIRS)
    key = conflict_key(*sides)
    for method_, answer in (("A.run", BOTH), ("B.run", BOTH), ("B.run", OURS)):
        answers.remember(key, *sides, answer, {"path": "a.py", "method": method_})
        assert answers.find(conflict()) == (BOTH if answer == BOTH else None)
    assert "its answers differ" in capsys.readouterr().err
    answers.remember(key, *sides, OURS, {"path": "a.py", "method": "A.run"})
    assert answers.find(conflict()) == OURS
