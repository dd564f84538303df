"""One reader of conflict markers: all that look for conflicts see the same ones, under any line ends."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.code.conflict_text import MarkedConflict, answers, marker_rows, scan
from npu_upgrade.code.module import split_lines
from npu_upgrade.delivery.refusals import check_contents
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.job.check import _problem
from npu_upgrade.job.conflicts import conflicts_in, marked_text, without

ENDS = ["\n", "\r\n", "\r"]
WORDS = st.sampled_from(["x = 1", "    y", "", "=======", "<<<<<<<<", "a\x0cb", "a\u2028b", "======= no"])
PLAIN = st.lists(st.tuples(st.one_of(WORDS, st.just("||||||| odd")), st.sampled_from(ENDS)), max_size=4)
CODE = st.lists(st.tuples(WORDS.filter(lambda word: word != "======="), st.sampled_from(ENDS)), max_size=3)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, int]:
    """A text, and how many conflicts it has."""
    text, count = "", draw(st.integers(0, 3))
    for number in range(count + 1):
        text += "".join(map("".join, draw(PLAIN)))
        if number == count:
            break
        marks = ["<<<<<<< ours", *draw(st.sampled_from([[], ["||||||| base 1.0"]])), "======="]
        end = draw(st.sampled_from(ENDS))
        for mark in marks:
            text += mark + end + "".join(map("".join, draw(CODE)))
        text += ">>>>>>> theirs" + end
    return text, count


def lines_of(text: str) -> list[str]:
    return [line.rstrip("\r\n") for line in split_lines(text)]


@given(files())
def test_conflicts_and_the_lines_around_them_are_told_apart(made: tuple[str, int]) -> None:
    text, count = made
    conflicts = list(conflicts_in(text, "a.py", {}))
    assert len(conflicts) == count
    ours, theirs = answers(text)
    outside = [item for item in scan(text) if isinstance(item, str)]
    assert len(outside) == len(split_lines(text)) - len(ours.disputed)
    for one, following in pairwise(conflicts):
        assert one.last < following.first
    for side, read in (("ours", ours), ("theirs", theirs)):
        left = text
        for one in reversed(conflicts):
            assert marked_text(text, one).startswith("<<<<<<< ours")
            left = without(left, one, getattr(one.marked, side))
        code = lambda found: [line for line in lines_of(found) if line.strip()]  # noqa: E731
        assert [x for x in code(left) if x in outside] == [x for x in code(read.text) if x in outside]
        assert set(code(left)) == set(code(read.text))
    assert (count > 0) <= (bool(marker_rows(text)) and "conflict markers" in _problem(text))


TWO_WAY = "a = 1\n<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\nd = 1\n"
DIFF3 = TWO_WAY.replace("=======", "||||||| base 1\nz\n=======")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("text", [TWO_WAY, DIFF3])
def test_the_sides_and_labels_of_a_conflict(text: str, end: str) -> None:
    (found,) = [item for item in scan(text.replace("\n", end)) if isinstance(item, MarkedConflict)]
    assert (found.ours, found.theirs, found.line) == ("b", "c", 1)
    assert (found.base, found.has_base) == (("z", True) if text == DIFF3 else ("", False))
    assert found.labels == {"ours": "ours", "theirs": "theirs"} | ({"base": "base 1"} if found.base else {})


def test_a_lone_carriage_return_before_a_conflict_loses_no_line() -> None:
    text = "keep = 1\rkeep = 2\n" + DIFF3
    (one,) = conflicts_in(text, "a.py", {})
    assert without(text, one, "b") == "keep = 1\rkeep = 2\na = 1\nb\nd = 1\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_answer_keeps_its_lines_whatever_stands_in_them(end: str) -> None:
    text = DIFF3.replace("\n", end)
    (one,) = conflicts_in(text, "a.py", {})
    put = without(text, one, "x = 'a\x0cb\u2028c'\r\ny = 1\n")
    assert put == f"a = 1{end}x = 'a\x0cb\u2028c'{end}y = 1{end}d = 1{end}"


def test_both_answers_and_where_their_lines_are() -> None:
    ours, theirs = answers(DIFF3)
    assert (ours.text, theirs.text) == ("a = 1\nb\nd = 1\n", "a = 1\nc\nd = 1\n")
    assert (ours.rows, theirs.rows) == ((0, 2, 8), (0, 6, 8))
    assert ours.disputed == frozenset(range(1, 8))


@pytest.mark.parametrize("cut", [3, 5, 6, 7])
def test_a_conflict_that_is_not_closed_has_no_answers(cut: int) -> None:
    text = "".join(DIFF3.splitlines(keepends=True)[:cut])
    with pytest.raises(BadInput, match=r"runner\.py holds a conflict that is not closed"):
        answers(text, "runner.py")


@pytest.mark.parametrize("cut", ["<<<<<<< ours\n", "=======\n", ">>>>>>> theirs\n"])
def test_a_marker_that_stands_alone_is_seen_by_all(cut: str, tmp_path: Path) -> None:
    text = DIFF3.replace(cut, "")
    assert list(conflicts_in(text, "a.py", {})) == []
    assert marker_rows(text)
    assert "conflict markers" in _problem(text)
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(BadInput, match="conflict marker"):
        check_contents(tmp_path, ["a.py"])


def test_the_underline_of_a_heading_is_no_marker(tmp_path: Path) -> None:
    text = '"""Heading\n=======\n"""\n'
    assert (marker_rows(text), _problem(text)) == ({}, "")


def test_a_line_like_another_marker_inside_of_theirs_is_text() -> None:
    (found,) = [
        x for x in scan(DIFF3.replace("c\n", "||||||| c\n=======\n")) if isinstance(x, MarkedConflict)
    ]
    assert (found.base, found.theirs) == ("z", "||||||| c\n=======")
    (found,) = [x for x in scan(TWO_WAY.replace("c\n", "||||||| c\n")) if isinstance(x, MarkedConflict)]
    assert (found.has_base, found.theirs) == (False, "||||||| c")
