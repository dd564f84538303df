"""Which changed statements a dry run did not execute."""

from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.gates.emulation.changed import changed_statements, ranges

BEFORE = '''\
def step(x):
    """Do."""
    if x:
        a = 1
    return x
'''
AFTER = '''\
def step(x):
    """Do it."""
    if x:
        # a comment
        a = call(
            x,
            2,
        )
    else:
        b = 2
    return x
'''


def test_a_changed_statement_counts_with_all_its_lines_and_a_comment_or_docstring_does_not():
    assert list(changed_statements(BEFORE, AFTER)) == [(5, 8), (10, 10)]


def test_only_the_head_of_a_compound_statement_is_its_own():
    after = BEFORE.replace("if x:", "if x and y:")
    assert list(changed_statements(BEFORE, after)) == [(3, 3)]


def test_a_new_file_is_changed_throughout():
    assert [span[0] for span in changed_statements("", BEFORE)] == [1, 3, 4, 5]


def test_nothing_changed_is_nothing():
    assert list(changed_statements(AFTER, AFTER)) == []


def test_neighbouring_lines_are_joined():
    assert ranges([3, 4, 5, 9]) == ["3-5", "9"]


@given(st.sets(st.integers(1, 60)))
def test_ranges_name_exactly_the_lines(lines):
    named = set()
    for part in ranges(lines):
        start, _, end = part.partition("-")
        named.update(range(int(start), int(end or start) + 1))
    assert named == lines
