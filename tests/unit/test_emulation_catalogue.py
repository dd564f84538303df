"""Choosing tiers and scenarios of the dry run."""

import pytest

from npu_upgrade.cli import main as cli
from npu_upgrade.gates.emulation.catalogue import TIERS, chosen, scenarios
from npu_upgrade.ground.errors import BadInput


def test_names_are_unique_and_tiers_known():
    names = [one.name for one in scenarios()]
    assert len(names) == len(set(names))
    assert {tier for one in scenarios() for tier in one.tiers} <= set(TIERS)


def test_core_runs_tier_by_tier_with_the_omni_stages():
    runs = [(tier, one.name) for tier, one in chosen(["core"], TIERS, omni=True)]
    assert ("eager", "ar") in runs
    assert ("graph", "generation") in runs
    assert [TIERS.index(tier) for tier, _ in runs] == sorted(TIERS.index(tier) for tier, _ in runs)


def test_without_omni_only_what_needs_none_runs():
    assert {one.name for _, one in chosen(["core"], ["eager"], omni=False)} == {"plain"}


@pytest.mark.parametrize(
    ("names", "tiers", "omni", "said"),
    [
        (["nosuch"], ["eager"], True, "no scenario nosuch"),
        (["ar"], ["eager"], False, "scenario ar needs --omni"),
        (["plain"], ["eager"], True, "scenario plain is one of vllm-ascend alone"),
        (["ar"], ["serve"], True, "none of these scenarios runs in serve"),
    ],
)
def test_a_wrong_name_is_said_at_once(names, tiers, omni, said):
    with pytest.raises(BadInput, match=said):
        chosen(names, tiers, omni=omni)


def test_a_tier_that_does_not_exist_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main("upgrade.py", "", ["emulate"], ["emulate", "--tiers", "import,eagr"]) == 2
    assert "no eagr among import, eager, graph, serve" in capsys.readouterr().out
