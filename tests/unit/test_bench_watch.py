"""What the bench of the watch takes for a commit that needed a hand."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lineage_kit import commit_at, git_at
from packaging.version import Version

from bench import watch
from bench.watch_truth import _Sides, carried, settled, touched
from npu_upgrade.code.statements import Statement

BASE = list("abcdef")


def lines(keys: Iterable[str]) -> list[Statement]:
    return [Statement(key, 0, (key,)) for key in keys]


def sides(ours: str, later: str, merged: str, target: str, disputed: str = "") -> _Sides:
    """Texts of one statement a letter; capitals are omni's own."""
    return _Sides(BASE, list(target), list(ours), list(later), list(merged), frozenset(disputed))


@pytest.mark.parametrize(
    ("ours", "later", "merged", "by_hand"),
    [
        ("abcdef", "abxdef", "abxdef", False),  # nothing of ours there
        ("abXdef", "abXdef", "abXdef", False),  # ours stood, and stays
        ("abcXdef", "abxXdef", "abxXdef", False),  # the merge does what the later release did
        ("abXdef", "abYdef", "abXdef", False),  # ours moved on; of the commit both have nothing
        ("abXdef", "abxYdef", "abXdef", True),  # the later release took it, the merge does not
        ("abXdef", "abYxdef", "abXdef", True),  # the later release took it and has words of its own
        ("abcXdef", "abXdef", "abxXdef", True),  # the later release dropped it for words of its own
        ("abcXdef", "abcXYdef", "abxXdef", False),  # the later release left it out and wrote something else
    ],
)
def test_a_place_needed_a_hand_where_the_release_did_what_no_merge_does(
    ours: str, later: str, merged: str, by_hand: bool
) -> None:
    assert sides(ours, later, merged, "abxdef").by_hand(lines("abcdef"), (2, 3), lines("x")) is by_hand


def test_a_statement_written_in_another_way_needed_a_hand_and_one_left_out_did_not() -> None:
    base, target = ["a", "run(batch)", "b"], ["a", "run(batch, size)", "b"]
    ours, merged = ["a", "run(batch)", "OWN", "b"], ["a", "run(batch, size)", "OWN", "b"]
    for later, by_hand in (
        (["a", "run(batch, own=size)", "OWN", "b"], True),
        (["a", "run(batch)", "OWN", "note()", "b"], False),
    ):
        found = _Sides(base, target, ours, later, merged, frozenset())
        assert found.by_hand(lines(base), (1, 2), lines(["run(batch, size)"])) is by_hand


def test_a_statement_that_says_all_that_the_merge_brought_and_more_needed_no_hand() -> None:
    base, brought = ["a", "with run(batch, ids):", "b"], "with run(batch):"
    ours, merged = [*base[:2], "own(ids)", "b"], ["a", brought, "own(ids)", "b"]
    for later, by_hand in (
        ("with note(ids), run(batch):", False),
        ("with note(ids), run(batch, own):", True),
    ):
        found = _Sides(base, ["a", brought, "b"], ours, ["a", later, *ours[2:]], merged, frozenset())
        assert found.by_hand(lines(base), (1, 2), lines([brought])) is by_hand


@pytest.mark.parametrize(
    ("statement", "is_touched"),
    [
        ("run(batch, engine=1)", True),
        ("run(batch, 2, 3)", True),
        ("run(batch)", False),
        ("run(*batch)", False),
        ("def run(batch, engine=0):", True),
        ("keep(run)", True),
    ],
)
def test_a_call_is_touched_by_parameters_that_it_fits_no_more(statement: str, is_touched: bool) -> None:
    was, now = (
        ast.parse(f"def run({words}): ...").body[0] for words in ("batch, size=1, engine=0", "batch, size=1")
    )
    assert isinstance(was, ast.FunctionDef)
    assert isinstance(now, ast.FunctionDef)
    assert touched(statement, "run", was, now) is is_touched


@pytest.mark.parametrize(
    ("later", "disputed", "contested"),
    [("abxdef", "x", True), ("abxdef", "f", False), ("abXdef", "x", False)],
)
def test_a_conflict_at_a_place_that_the_release_changed_needed_a_hand(
    later: str, disputed: str, contested: bool
) -> None:
    found = sides("abXdef", later, "abXdef", "abxdef", disputed)
    assert found.contested(lines("abcdef"), (2, 3), lines("x")) is contested


@pytest.mark.parametrize(
    ("later", "merged", "by_hand"),
    [
        ("state = State(a, None, size, own)", "state = State(a, None, own)", True),
        ("state = State(a, None, own, more)", "state = State(a, None, own)", False),
        ("state = State(a, None, size, own)", "state = State(a, None, size, own)", False),
        ("state = State(a, None, own)", "state = State(a, None, own)", False),
    ],
)
def test_a_word_of_the_commit_that_only_the_release_has_needed_a_hand(
    later: str, merged: str, by_hand: bool
) -> None:
    was, now, ours = "state = State(a, b)", "state = State(a, b, size)", "state = State(a, None, own)"
    base, target = ["run(size)", was, "end()"], ["run(size)", now, "end()"]
    texts = ([base[0], one, base[2]] for one in (ours, later, merged))
    found = _Sides(base, target, *texts, frozenset())
    assert found.by_hand(lines(base), (1, 2), lines([now])) is by_hand


def test_a_text_is_settled_for_one_vllm() -> None:
    source = """
    def run(self):
        if vllm_version_is("0.17.0"):
            self.old()
        else:
            self.new()
        self.take(**({"clear": 1} if vllm_version_is("0.17.0") else {"defer": 2}), **self.more)
    """
    taken = {"0.17.0": ("old", "clear=1"), "0.18.0": ("new", "defer=2")}
    for vllm, (call, keyword) in taken.items():
        expected = f"def run(self):\n    self.{call}()\n    self.take({keyword}, **self.more)"
        assert settled(source, Version(vllm)) == expected
    assert settled(source, None) == source
    assert settled("    broken (", Version("0.17.0")) == "    broken ("


def test_a_span_is_carried_between_the_equal_statements_around_it() -> None:
    assert carried(list("abcdef"), list("abXYdef"), (2, 3)) == (2, 4)
    assert carried(list("abcdef"), list("abcdef"), (3, 3)) == (3, 3)
    assert carried(list("abc"), list("xyz"), (1, 2)) == (0, 3)


def test_without_a_clone_the_bench_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCH_CLONE", raising=False)
    assert watch.main([]) == 3


def test_an_interval_that_begins_after_the_clone_ends_is_blocked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_at(tmp_path, "2026-08-22", {"vllm_ascend/__init__.py": ""})
    git_at(tmp_path, "2026-08-22", "branch", "-M", "main")
    monkeypatch.setattr(watch, "_released", lambda version: datetime(2026, 8, 31, tzinfo=UTC))
    assert watch.main(["--clone", str(tmp_path), "--interval", "0.28.0:0.30.0"]) == 3
    assert "ends on 2026-08-22, before 0.28.0:0.30.0 begins" in capsys.readouterr().out


def test_the_goals_are_judged_by_the_closing_figures() -> None:
    good = watch.Interval(commits=100, hand=10, found=9, noise=2, seconds=100.0, lead=[3, 9, 30])
    figures = watch.summary([good])
    assert (figures["found"], figures["noise"], figures["median_lead_days"]) == ("0.900", "0.182", "9")
    assert watch.short_of_goals(figures) == []
    bad = watch.Interval(commits=100, hand=10, found=8, noise=3, seconds=600.0)
    assert len(watch.short_of_goals(watch.summary([bad]))) == 3
