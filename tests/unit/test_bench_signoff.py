"""The bench of sign-off: its cases are balanced, and a chain that it writes anew is believed."""

from __future__ import annotations

from collections import Counter

import pytest
from deliver_support import Upgrade

from bench.signoff import CASES
from bench.signoff_bases import Place
from bench.signoff_evidence import anew
from npu_upgrade.evidence.observed import observed_in


@pytest.mark.parametrize("whole", [False, True])
def test_no_side_outweighs_the_other(whole: bool) -> None:
    chosen = [one for one in CASES if whole or not one.whole]
    honest = sum(one.honest for one in chosen)
    assert honest >= len(chosen) - honest >= 40
    assert Counter(one.kind for one in chosen)["live"] >= 10
    assert max(Counter((one.base, one.name) for one in chosen).values()) == 1  # results are kept by name


def test_evidence_that_is_written_anew_is_as_if_it_was_recorded(upgrade: Upgrade) -> None:
    upgrade.served(label="emulated dry-run", device="npu emulated")
    change = {"rank": 1}
    anew(lambda chain: (chain.each(lambda one: one.update(change)), chain.copy()))(
        Place(upgrade.workspace, upgrade.repo)
    )
    store = upgrade.job.store
    runs = [one for one in upgrade.job.records() if one.run]
    assert [store.problems(one) for one in runs] == [[], []]
    assert {seen.processes[0].rank for one in runs for seen in observed_in(store.runs / str(one.run))} == {1}
