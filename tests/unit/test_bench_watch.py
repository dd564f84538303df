"""What the bench of the watch takes for a commit that needed a hand."""

from __future__ import annotations

import pytest

from bench import watch
from bench.watch_truth import _Sides, carried

BASE = list("abcdef")


def sides(ours: str, later: str, merged: str, target: str, disputed: tuple[int, ...] = ()) -> _Sides:
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
        ("abcXdef", "abcXYdef", "abxXdef", True),  # the merge takes it, the later release left it out
    ],
)
def test_a_place_needed_a_hand_where_the_release_did_what_no_merge_does(
    ours: str, later: str, merged: str, by_hand: bool
) -> None:
    assert sides(ours, later, merged, "abxdef").by_hand(BASE, (2, 3), ["x"]) is by_hand


def test_a_conflict_at_the_place_needed_a_hand() -> None:
    assert sides("abXdef", "abxdef", "abXdef", "abxdef", (2,)).by_hand(BASE, (2, 3), ["x"])
    assert not sides("abXdef", "abxXdef", "abxXdef", "abxdef", (6,)).by_hand(BASE, (2, 3), ["x"])


def test_a_span_is_carried_between_the_equal_statements_around_it() -> None:
    assert carried(list("abcdef"), list("abXYdef"), (2, 3)) == (2, 4)
    assert carried(list("abcdef"), list("abcdef"), (3, 3)) == (3, 3)
    assert carried(list("abc"), list("xyz"), (1, 2)) == (0, 3)


def test_without_a_clone_the_bench_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCH_CLONE", raising=False)
    assert watch.main([]) == 3


def test_the_goals_are_judged_by_the_closing_figures() -> None:
    good = watch.Interval(commits=100, hand=10, found=9, noise=2, seconds=100.0, lead=[3, 9, 30])
    figures = watch.summary([good])
    assert (figures["found"], figures["noise"], figures["median_lead_days"]) == ("0.900", "0.182", "9")
    assert watch.short_of_goals(figures) == []
    bad = watch.Interval(commits=100, hand=10, found=8, noise=3, seconds=600.0)
    assert len(watch.short_of_goals(watch.summary([bad]))) == 3
