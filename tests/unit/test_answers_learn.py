"""Learning from a resolved file, and the way back: merging again gives the resolved text."""

from __future__ import annotations

import ast
import random
import tempfile
from pathlib import Path

import pytest
from code_gen import three_versions
from drawn import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from npu_upgrade.code.conflict_text import MarkedConflict, scan
from npu_upgrade.code.statements import split_statements
from npu_upgrade.merge.answers import Answers, apply_answers, learn
from npu_upgrade.threeway.method import merge_method
from npu_upgrade.threeway.pieces import MergedMethod

LABELS = ("ours (omni)", "base 1.0", "theirs 2.0")
WHERE = {"path": "runner.py", "job": "j1"}


def sides(count: int, changed: dict[int, tuple[str, str]], depth: int = 8) -> list[str]:
    """A method in three versions: ``changed`` lines differ in ours and theirs."""
    out = []
    for side in (None, 0, 1):
        lines = [f"{' ' * (depth - 4)}def run(self, batch):"]
        for number in range(count):
            text = f"value_{number} = count(batch)" if side is None else changed.get(number, ("", ""))[side]
            lines.append(" " * depth + (text or f"value_{number} = count(batch)"))
        out.append("\n".join(lines))
    return out


CLASH = ("value_1 = count(batch, stage=1)", "value_1 = 3")


def merged_of(texts: list[str]) -> MergedMethod:
    base, ours, theirs = (split_statements(text) for text in texts)
    return merge_method(base, ours, theirs)


def file_with(method: str) -> str:
    head = "import os\n\n\nclass Runner(Base):\n    def before(self):\n        pass\n\n"
    return f"{head}{method}\n\n    def after(self):\n        return os\n"


def resolve(text: str, choose) -> str:
    """The file with each conflict replaced by what ``choose(conflict)`` gives."""
    out = []
    for item in scan(text):
        answer = choose(item) if isinstance(item, MarkedConflict) else item
        out += [answer] if answer or not isinstance(item, MarkedConflict) else []
    return "\n".join(out) + "\n"


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    return Answers(tmp_path / "answers")


@pytest.fixture
def preimage() -> str:
    return file_with(merged_of(sides(3, {1: CLASH})).text(LABELS))


def test_the_answer_and_its_place_are_told(answers: Answers, preimage: str) -> None:
    postimage = resolve(preimage, lambda c: "        value_1 = 4")
    (entry,) = learn(preimage, postimage, answers, WHERE)
    assert entry.learned
    assert (entry.method, entry.answer) == ("Runner.run", "        value_1 = 4")
    assert preimage.split("\n")[entry.line - 1] == "<<<<<<< ours (omni)"
    kept = next(answers.folder.iterdir()).read_text()
    for word in ("Runner.run", "runner.py", "j1", "theirs 2.0"):
        assert word in kept


def test_an_open_conflict_is_left_out(answers: Answers, preimage: str) -> None:
    assert learn(preimage, preimage.replace("before", "earlier"), answers, WHERE) == []
    assert not answers.folder.exists()


@pytest.mark.parametrize("mark", ["<<<<<<< ours (omni)", "||||||| base 1.0", "=======", ">>>>>>> theirs 2.0"])
def test_half_resolved_is_not_learned(answers: Answers, preimage: str, mark: str) -> None:
    for postimage in (
        preimage.replace(mark + "\n", ""),
        resolve(preimage, lambda c: mark + "\n        x = 1"),
    ):
        (entry,) = learn(preimage, postimage, answers, WHERE)
        assert not entry.learned
        assert "markers" in entry.reason
    assert not answers.folder.exists()


def test_a_conflict_that_was_edited_and_not_resolved_is_not_learned(answers: Answers, preimage: str) -> None:
    (entry,) = learn(preimage, preimage.replace("value_1 = 3", "value_1 = 5"), answers, WHERE)
    assert "markers" in entry.reason


@pytest.mark.parametrize("gone", ["        value_0 = count(batch)\n", "        value_2 = count(batch)\n"])
def test_an_edited_neighbour_is_not_learned(answers: Answers, preimage: str, gone: str) -> None:
    for text in ("", "        another = 1\n"):
        postimage = resolve(preimage, lambda c: "        value_1 = 4").replace(gone, text)
        (entry,) = learn(preimage, postimage, answers, WHERE)
        assert "edited" in entry.reason
        assert entry.answer is None
    assert not answers.folder.exists()


def test_a_line_that_could_be_the_neighbour_twice_is_not_learned(answers: Answers) -> None:
    changed = {n: (f"value_{n} = {n} + own(batch)", f"value_{n} = theirs[{n}]") for n in (1, 3)}
    preimage = file_with(merged_of(sides(5, changed)).text(LABELS))
    line = "        value_2 = count(batch)"
    postimage = resolve(
        preimage, lambda c: f"{line}\n        more()" if "value_1" in c.ours else "        last()"
    )
    assert [entry.learned for entry in learn(preimage, postimage, answers, WHERE)] == [False, False]


def test_text_that_is_not_python_is_not_learned(answers: Answers, preimage: str) -> None:
    (entry,) = learn(preimage, resolve(preimage, lambda c: "        value_1 = ("), answers, WHERE)
    assert entry.reason.startswith("the answer is not Python")


def test_one_conflict_with_two_answers_is_not_learned(answers: Answers, preimage: str) -> None:
    again = preimage.replace("class Runner", "class Other").split("\n\n\n")[1]
    twice = f"{preimage}\n\n{again}"
    numbers = iter("45")
    postimage = resolve(twice, lambda c: f"        value_1 = {next(numbers)}")
    assert [entry.learned for entry in learn(twice, postimage, answers, WHERE)] == [False, False]
    same = resolve(twice, lambda c: "        value_1 = 4")
    assert [(e.learned, e.method) for e in learn(twice, same, answers, WHERE)] == [
        (True, "Runner.run"),
        (True, "Other.run"),
    ]


def test_the_neighbouring_open_conflict_is_an_anchor(answers: Answers) -> None:
    one, two = (f"<<<<<<< a\n        o{n}()\n||||||| b\n=======\n        t{n}()\n>>>>>>> c" for n in (1, 2))
    preimage = file_with(f"    def run(self):\n{one}\n{two}")
    (entry,) = learn(preimage, preimage.replace(one, "        x()"), answers, WHERE)
    assert entry.answer == "        x()"
    both = learn(preimage, preimage.replace(f"{one}\n{two}", "        x()\n        y()"), answers, WHERE)
    assert [entry.learned for entry in both] == [False, False]


def test_blank_lines_around_do_not_matter(answers: Answers, preimage: str) -> None:
    postimage = resolve(preimage, lambda c: "\n        value_1 = 4\n\n")
    (entry,) = learn(preimage, postimage, answers, WHERE)
    assert entry.answer == "\n        value_1 = 4"


CUSTOM = [
    "        value_1 = other(batch)\n\n        # and more\n        use(value_1)",
    '        text = """\nleft\n    right"""',
    "        if batch:\n            value_1 = 1\n        else:\n            value_1 = 2",
    "        value_1 = call(\n            batch,\n            # inside\n            1,\n        )",
    "        # nothing of it",
]


def choices(rng: random.Random):
    def choose(conflict: MarkedConflict) -> str:
        kind = rng.randrange(5)
        if kind < 4:
            return (conflict.ours, conflict.theirs, f"{conflict.ours}\n{conflict.theirs}".strip("\n"), "")[
                kind
            ]
        return rng.choice(CUSTOM)

    return choose


@given(st.randoms(use_true_random=False), st.integers(2, 9), st.booleans())
def test_merging_again_gives_the_resolved_text(rng: random.Random, count: int, edited: bool) -> None:
    clashing = sorted(rng.sample(range(1, 9), 3))
    # A line between two conflicts stays, so that both answers can be told apart.
    chosen = [n for n in clashing if n < count and n - 1 not in clashing]
    assume(chosen)
    changed = {n: (f"value_{n} = {n} + own(batch)", f"value_{n} = theirs[{n}]") for n in chosen}
    texts = sides(count, changed)
    preimage = file_with(merged_of(texts).text(LABELS))
    assert len(merged_of(texts).conflicts) == len(chosen)
    postimage = resolve(preimage, choices(rng))
    elsewhere = postimage
    if edited:
        elsewhere = postimage.replace("import os", "import os\nimport sys").replace(
            "        pass", "        go(1)"
        )
    round_trip(texts, preimage, elsewhere, postimage)


def round_trip(texts: list[str], preimage: str, edited: str, postimage: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        answers = Answers(Path(folder))
        assert all(entry.learned for entry in learn(preimage, edited, answers, WHERE))
        again = apply_answers(merged_of(texts), answers)
    assert file_with(again.text(LABELS)) == postimage


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.filter_too_much])
def test_what_is_learned_from_any_merge_gives_the_resolved_text(seed: int) -> None:
    rng = random.Random(seed)
    texts = list(three_versions(rng, 7))
    merged = merged_of(texts)
    assume(merged.conflicts)
    preimage = file_with(merged.text(LABELS))
    sides_ = {id(c): c for c in merged.conflicts}
    choose = rng.choice([lambda c: c.ours, lambda c: c.theirs])
    postimage = resolve(preimage, choose)
    ast.parse(postimage)
    with tempfile.TemporaryDirectory() as folder:
        answers = Answers(Path(folder))
        found = learn(preimage, postimage, answers, WHERE)
        assert len(found) == len(sides_)
        again = apply_answers(merged, answers)
    if all(entry.learned for entry in found):
        assert file_with(again.text(LABELS)) == postimage
    for entry, conflict in zip(found, merged.conflicts, strict=True):
        told = choose(MarkedConflict(*conflict.texts(), {}, 0, 0)).rstrip()
        assert not entry.learned or entry.answer == told
