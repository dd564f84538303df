from __future__ import annotations

import pytest

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.ground.errors import BadInput

DIFF3 = "a\n<<<<<<< ours\nb\n||||||| base\nc\n=======\nd\n>>>>>>> theirs\ne\n"


def test_reads_both_answers_and_where_their_lines_are() -> None:
    ours, theirs = answers(DIFF3)
    assert (ours.text, theirs.text) == ("a\nb\ne\n", "a\nd\ne\n")
    assert (ours.rows, theirs.rows) == ((0, 2, 8), (0, 6, 8))
    assert ours.disputed == frozenset(range(1, 8))


def test_without_conflicts_both_answers_are_the_file() -> None:
    text = "=======\n||||||| \r\n>>>>>>> x\rlast"
    ours, theirs = answers(text)
    assert ours == theirs
    assert ours.text == text
    assert ours.rows == (0, 1, 2, 3)


def test_base_is_optional_and_sides_may_be_empty() -> None:
    ours, theirs = answers("<<<<<<< \n=======\nd\n>>>>>>> \n")
    assert (ours.text, theirs.text) == ("", "d\n")


def test_lines_that_look_like_markers_are_text() -> None:
    text = "<<<<<<<<\n<<<<<<<x\na = '======='\n"
    assert answers(text)[0].text == text


@pytest.mark.parametrize("cut", [3, 5, 6, 7])
def test_refuses_a_conflict_that_is_not_closed(cut: int) -> None:
    text = "".join(line for row, line in enumerate(DIFF3.splitlines(True)) if row < cut)
    with pytest.raises(BadInput, match=r"runner\.py holds a conflict that is not closed"):
        answers(text, "runner.py")
