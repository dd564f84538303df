"""Titles by the rule of the project the commit goes to, read from the project itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from npu_upgrade.delivery import adaptation, upgrade
from npu_upgrade.delivery.message import _item, check_title, evidence, rule_for
from npu_upgrade.delivery.upgrade import _came_from
from npu_upgrade.ground.errors import BadInput


@pytest.mark.parametrize("package", ["vllm_omni", "vllm_ascend", "something_else"])
def test_the_default_keeps_the_rule(tmp_path: Path, package: str):
    (tmp_path / package).mkdir()
    rule = rule_for(tmp_path)
    for tags in (upgrade.TAGS, adaptation.TAGS):
        assert rule.problem(rule.titled("Support Qwen3-8B", tags)) is None


@pytest.mark.parametrize(
    ("package", "title", "accepted"),
    [
        ("vllm_omni", "[NPU] Upgrade to vllm-ascend 0.23.0", True),
        ("vllm_omni", "[NPU][Upgrade] Upgrade to v0.12.0", True),
        ("vllm_omni", "[BugFix] any case", True),
        ("vllm_omni", "[Hardware][Ascend] NPU", True),
        ("vllm_omni", "Upgrade [NPU] later", False),
        ("vllm_omni", "NPU: upgrade", False),
        ("vllm_ascend", "Upgrade the runners [misc]", True),
        ("vllm_ascend", "[NPU] Upgrade", False),
        ("vllm_ascend", "[Misc Upgrade", False),
        ("something_else", "anything on one line", True),
        ("something_else", "x" * 101, False),
        ("something_else", "a\rb", False),
    ],
)
def test_rules(tmp_path: Path, package: str, title: str, accepted: bool):
    (tmp_path / package).mkdir()
    assert (rule_for(tmp_path).problem(title) is None) is accepted


def test_vllm_ascends_prefixes_come_from_its_workflow(tmp_path: Path):
    (tmp_path / "vllm_ascend").mkdir()
    flows = tmp_path / ".github/workflows"
    flows.mkdir(parents=True)
    (flows / "pr_test.yaml").write_text("run: |\n  VALID_PREFIXES='\\[(BugFix|Upgrade)\\]'\n")
    rule = rule_for(tmp_path)
    assert rule.prefixes == ("BugFix", "Upgrade")
    assert rule.problem("[Upgrade] to 0.23") is None
    assert "[BugFix], [Upgrade]" in (rule.problem("[Misc] to 0.23") or "")


def test_vllm_ascend_takes_the_conventional_commits_of_its_guide_as_well(tmp_path: Path):
    (tmp_path / "vllm_ascend").mkdir()
    assert rule_for(tmp_path).problem("feat: support a model") is not None
    (tmp_path / "AGENTS.md").write_text("**Valid Types**: `feat`, `fix`, `docs`\n\n`other` words\n")
    rule = rule_for(tmp_path)
    assert rule.types == ("feat", "fix", "docs")
    assert rule.problem("feat(models): support a model") is None
    assert rule.problem("[Feature] Support a model") is None
    assert "feat, fix, docs with a colon" in (rule.problem("other: support a model") or "")
    assert rule.problem("feat support a model") is not None


def test_a_models_commit_is_titled_as_commits_are_and_its_request_as_requests_are(tmp_path: Path):
    (tmp_path / "vllm_ascend").mkdir()
    (tmp_path / "AGENTS.md").write_text("**Valid Types**: `feat`, `fix`, `docs`\n")
    rule = rule_for(tmp_path)
    title = rule.titled("Support Qwen3-8B", adaptation.TAGS)
    assert title == "feat: support Qwen3-8B"
    assert rule.of_request(title, adaptation.TAGS) == "[Feature] Support Qwen3-8B"
    assert rule.of_request("feat(models)!: support it", adaptation.TAGS) == "[Feature] Support it"
    assert rule.of_request("[BugFix] feat: it", adaptation.TAGS) == "[BugFix] feat: it"
    assert rule.titled("Upgrade", upgrade.TAGS) == "[Misc] Upgrade"


def test_vllm_omnis_prefixes_come_from_its_guide(tmp_path: Path):
    (tmp_path / "vllm_omni").mkdir()
    guide = tmp_path / "docs/contributing"
    guide.mkdir(parents=True)
    (guide / "README.md").write_text("- `[Bugfix]` for bugs.\n- `[Hardware][Vendor]` for hardware.\n- `x`\n")
    assert rule_for(tmp_path).prefixes == ("Bugfix", "Hardware", "NPU")


def test_the_refusal_shows_a_title_that_would_do(tmp_path: Path):
    (tmp_path / "vllm_omni").mkdir()
    rule = rule_for(tmp_path)
    with pytest.raises(BadInput) as caught:
        check_title(rule, "no tag", rule.titled("Upgrade to vllm-ascend VERSION", upgrade.TAGS))
    assert "[NPU] Upgrade to vllm-ascend VERSION" in caught.value.try_


@pytest.mark.parametrize(
    ("base", "ran", "said"),
    [
        ({"version": "0.19.1", "sha": "b" * 40}, "0.24.0", "0.24.0 (copies of 0.19.1 (bbbbbbbbbbbb)) -> "),
        ({"version": "0.24.0", "sha": "b" * 40}, "0.24.0", "0.24.0 (bbbbbbbbbbbb) -> "),
        ({"version": "0.19.1"}, "", "0.19.1 -> "),
        (None, "0.24.0", "0.24.0 -> "),
        (None, "", ""),
    ],
)
def test_the_old_version_is_the_one_that_the_tree_ran_with(
    base: dict[str, str] | None, ran: str, said: str
) -> None:
    job = SimpleNamespace(upstream="vllm-ascend")
    specs = {"vllm_ascend": f"pypi:vllm-ascend=={ran}"} if ran else {}
    audit = SimpleNamespace(data={"baseline": specs})
    assert _came_from(job, base, audit) == said
    assert _came_from(job, base, None) == (_came_from(job, base, SimpleNamespace(data={})))


def test_a_long_path_stands_beside_its_dash() -> None:
    path = "a/" * 50 + "b.py"
    assert _item(path) == f"- {path}"
    assert _item(f"{'word ' * 20}end").count("\n  ") == 1


def test_the_tree_of_each_verdict_is_named_where_they_judged_several() -> None:
    def of(*trees: str) -> str:
        one = {"label": "CPU real", "gate": "serve", "verdict": "PASS", "id": "f" * 64, "summary": "served"}
        return evidence([("", SimpleNamespace(**one, tree=tree * 64)) for tree in trees]).text

    assert of("a", "a").startswith(f"Evidence for tree {'a' * 12}:\n")
    assert " of tree " not in of("a", "a")
    assert of("a", "b").startswith("Evidence for 2 trees:\n")
    assert f"(record {'f' * 12}) of tree {'b' * 12}: served" in " ".join(of("a", "b").split())
