"""Which changed statements a dry run did not execute."""

from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.gates.emulation.changed import (
    changed_functions,
    changed_statements,
    executed_lines,
    executed_statements,
    ranges,
    without,
)

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


RUNNER = """\
LIMIT = 4


class Runner:
    size = 2

    def step(self, x):
        if x:
            return [one for one in x]
        return self.size

    def idle(self):
        def inner():
            return 1
        return inner()
"""


def test_what_ran_is_known_by_function_and_survives_a_move():
    ran = executed_statements(RUNNER, {1, 4, 5, 7, 12, 8, 9})
    assert {name: bool(numbers) for name, numbers in ran.items() if name} == {
        "Runner.step": True,
        "Runner.idle": False,
    }
    moved = RUNNER.replace("        if x:", "        # why\n\n        if x:")
    assert {10, 11} <= executed_lines(moved, ran)
    assert 12 not in executed_lines(moved, ran)


def test_a_body_that_did_not_run_does_not_count_and_its_signature_does():
    kept = without(RUNNER, ["Runner.idle"])
    assert kept == without(RUNNER.replace("return 1", "return 2  # other"), ["Runner.idle"])
    assert kept != without(RUNNER.replace("def idle(self)", "def idle(self, y)"), ["Runner.idle"])
    assert kept != without(RUNNER.replace("size = 2", "size = 3"), ["Runner.idle"])
    assert kept != without(RUNNER.replace("return self.size", "return 0"), ["Runner.idle"])
    assert kept == without(f"import copy\nfrom os import path\n{RUNNER}", ["Runner.idle"]), (
        "nothing names them"
    )
    assert kept != without(f"import vllm\n{RUNNER}", ["Runner.idle"]), "to load it may do anything"
    assert kept != without(RUNNER + "\n    def step_more(self):\n        pass\n", ["Runner.idle"])


def test_changed_functions_are_named_whatever_their_place():
    after = RUNNER.replace("LIMIT = 4", "# more\nLIMIT = 5").replace("return 1", "return 2") + (
        "\n    def extra(self):\n        pass\n"
    )
    assert changed_functions(RUNNER, after) == {"Runner.idle", "Runner.extra"}
