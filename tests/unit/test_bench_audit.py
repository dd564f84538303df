"""How the bench judges the audit: what counts as found, silent and reviewed, and when goals are missed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bench.audit import Reviewed, case_figures, precision, short_of_goals
from bench.audit_runs import Result
from bench.incidents import Case, Expect
from npu_upgrade.audit.finding import Finding, Side


def finding(check: str = "imports", owner: str = "Worker.lift", subject: str = "harbour.Crane") -> Finding:
    here = Side("vllm-omni", "vllm_omni/platforms/npu/worker/crane.py", 3, "")
    return Finding("gone", owner, subject, "", here, None, "A", "", "", check=check)


def case(**data: Any) -> Case:
    plain = {"id": "one", "incident": "#1", "class": "A", "triple": {}, "edits": [], "note": ""}
    return msgspec.convert(plain | data, Case)


def wanted(check: str | list[str] = "imports", subject: str = "Crane", **more: str) -> Expect:
    expect = case(expect={"check": check, "subject": subject, **more}).expect
    assert expect
    return expect


@pytest.mark.parametrize(
    ("expect", "fits"),
    [
        (wanted(), True),
        (wanted(subject="Hook|Crane"), True),
        (wanted(subject="Cran"), False),
        (wanted("calls"), False),
        (wanted(["calls", "imports"]), True),
        (wanted(owner="Worker"), True),
        (wanted(owner="Base"), False),
        (wanted(kind="gone"), True),
        (wanted(kind="moved"), False),
    ],
)
def test_the_expected_finding_is_known_by_check_and_whole_words(expect: Expect, fits: bool) -> None:
    assert expect.fits(finding()) is fits


def results(found: int, missed: int, **data: Any) -> list[Result]:
    some = case(expect={"check": "imports", "subject": "Crane"}, **data)
    return [Result(some, (finding(),))] * found + [Result(some, ())] * missed


def test_the_figures_count_what_was_found() -> None:
    done = [
        *results(37, 3), *results(1, 1, held_out=True), *results(0, 2, **{"class": "D"}),
        *results(7, 4, group="gap"), *results(0, 5, group="negative"),
    ]  # fmt: skip
    figures = case_figures(done)
    assert figures == {
        "cases": "42",
        "recall": "0.925",
        "negatives": "5/5",
        "gaps": "7/11",
        "held_out": "1/2",
    }
    assert short_of_goals(figures, done) == ["gaps=7/11, goal 8"]


def test_a_finding_that_nobody_reviewed_is_not_true() -> None:
    items = [Reviewed("1", finding(), verdict) for verdict in (True, True, False, None)]
    assert precision(items) == 0.5
    assert precision([]) == 0.0
