"""What features are called in a release and what proves them: read from sources, real and made up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from features_kit import ASCEND, VLLM, package
from hypothesis import given as drawn
from hypothesis import strategies as st

from npu_upgrade.gates.features.capability import FEATURES, Capability
from npu_upgrade.gates.features.probe import probe
from npu_upgrade.gates.features.settings import refuses_unknown_keys
from npu_upgrade.gates.features.source import Package, given, log_calls

ENV, KEY = "VLLM_ASCEND_ENABLE_FLASHCOMM1", "enable_flashcomm1"
RELEASES = {  # vllm-ascend -> how FlashComm1 is asked for first, its line, the replay line, strict keys
    "0.18.0": (f"{ENV}=1", "", "Replaying aclgraph", False),
    "0.22.1rc1": (KEY, "", "Replaying aclgraph", False),
    "0.24.0rc1": (KEY, "", "Replaying aclgraph", False),
    "0.26.0rc1": (KEY, "", "Replaying aclgraph", False),
    "0.28.0rc1": (KEY, "FlashComm1 is enabled.", "Replaying aclgraph", True),
    "0.30.0rc2": (KEY, "FlashComm1 is enabled.", "ACL graph replay is active (logged once).", True),
}


def proofs(one: Capability) -> list[str]:
    return [proof.shown for group in one.proofs for proof in group]


def flashcomm(tmp_path: Path, files: dict[str, str]) -> Capability:
    return probe(package(tmp_path, "vllm_ascend", files), None)["flashcomm1"]


def sources(*packages: Package | None) -> str:
    return "\n".join(text for one in packages if one for _path, text in one.holding(""))


@pytest.mark.network
@pytest.mark.parametrize("version", RELEASES)
def test_the_names_of_real_releases(version: str) -> None:
    first, line, replay, strict = RELEASES[version]
    ascend = given(f"pypi:vllm-ascend=={version}", "vllm_ascend")
    found = probe(ascend, None)
    one = found["flashcomm1"]
    assert first in one.ways[0].shown
    assert proofs(one) == ([line] if line else [])
    assert replay in proofs(found["graph"])
    assert bool(refuses_unknown_keys(ascend)) is strict
    assert all(way.name in sources(ascend) for each in found.values() for way in each.ways)


@pytest.mark.network
def test_a_release_on_its_vllm() -> None:
    ascend, vllm = given("pypi:vllm-ascend==0.30.0rc2", "vllm_ascend"), given("pypi:vllm==0.30.0", "vllm")
    found = probe(ascend, vllm)
    assert all(found[name].exists for name in FEATURES)
    assert "Graph capturing finished in … secs, took … GiB" in proofs(found["graph"])
    assert proofs(found["mtp"]) == [
        "vllm:spec_decode_num_drafts > 0",
        "vllm:spec_decode_num_accepted_tokens > 0",
    ]
    assert any("_EP" in text for text in proofs(found["expert_parallel"]))
    assert {"ascend", "compressed-tensors"} <= set(found["quantization"].names)
    whole = sources(ascend, vllm)
    for each in found.values():
        assert all(
            way.name.removeprefix("--").replace("-", "_") in whole.replace("-", "_") for way in each.ways
        )


@pytest.mark.network
def test_a_vllm_alone_has_no_graphs_of_an_npu() -> None:
    found = probe(None, given("pypi:vllm==0.30.0", "vllm"))
    assert not found["graph"].exists
    assert not found["flashcomm1"].exists
    assert found["expert_parallel"].exists


def test_everything_of_a_made_up_release(tmp_path: Path) -> None:
    ascend, vllm = package(tmp_path, "vllm_ascend", ASCEND), package(tmp_path, "vllm", VLLM)
    found = probe(ascend, vllm)
    assert [name for name, one in found.items() if not one.exists] == []
    assert proofs(found["graph"]) == [
        "enforce_eager=False",
        "Graph capturing finished in … secs",
        "Replaying the graph of the model",
    ]
    assert [proof.shown for proof in found["graph"].against] == ["the backend … has no graphs at all"]
    assert [proof.shown for proof in found["graph"].lowered] == ["pooling takes the lesser graphs"]
    assert found["quantization"].names == ("ascend", "fp8")
    assert found["flashcomm1"].ways[0].shown == f"{ENV}=1"


@pytest.mark.parametrize("gone", sorted(set(FEATURES) - {"graph", "flashcomm1"}))
def test_an_option_that_is_not_there_is_not_proposed(tmp_path: Path, gone: str) -> None:
    before = probe(None, package(tmp_path / "with", "vllm", VLLM))[gone]
    without = {path: text.replace(before.ways[0].name, "--other") for path, text in VLLM.items()}
    after = probe(None, package(tmp_path / "without", "vllm", without))[gone]
    assert not after.exists
    assert before.ways[0].name in after.why


def test_without_the_source_of_vllm_nothing_is_said_of_its_options(tmp_path: Path) -> None:
    found = probe(package(tmp_path, "vllm_ascend", ASCEND), None)
    assert not any(
        found[name].known for name in ("expert_parallel", "mtp", "lora", "multimodal", "quantization")
    )


def test_a_setting_that_is_only_warned_about_is_removed(tmp_path: Path) -> None:
    one = flashcomm(
        tmp_path,
        {
            "vllm_ascend/config.py": f"""
def init(additional_config):
    if "{KEY}" in additional_config or os.getenv("{ENV}") is not None:
        logger.warning("FlashComm is deprecated; remove {KEY} and {ENV}")
"""
        },
    )
    assert not one.exists
    assert "removed" in one.why


def test_a_deprecated_setting_that_still_works_is_proposed_and_said(tmp_path: Path) -> None:
    one = flashcomm(
        tmp_path,
        {
            "vllm_ascend/config.py": f"""
def init(additional_config):
    if "{KEY}" in additional_config:
        logger.warning("flashcomm is deprecated")
    return bool(additional_config.get("{KEY}"))
"""
        },
    )
    assert [way.name for way in one.ways] == [KEY]
    assert "deprecated" in one.ways[0].note


@pytest.mark.parametrize(
    "text",
    [
        f'IGNORED = {{"{KEY}", "refresh"}}\n',
        f'logger.info("set {KEY} for flashcomm")\nlogger.info("{KEY}")\n',
        f'"""{KEY}"""\nflashcomm = None\n',
        f'other = {{}}\nother.get("{KEY}")\n',
    ],
)
def test_a_word_that_nothing_reads_is_no_setting(tmp_path: Path, text: str) -> None:
    assert not flashcomm(tmp_path, {"vllm_ascend/config.py": text}).exists


def test_a_line_that_takes_a_feature_away_is_no_proof_of_it(tmp_path: Path) -> None:
    one = flashcomm(
        tmp_path,
        {
            "vllm_ascend/config.py": f"""
on = additional_config["{KEY}"]
if on:
    logger.info_once("FlashComm1 is enabled.")
    logger.warning_once("FlashComm1 is enabled, but not for this model. Disabling")
"""
        },
    )
    assert proofs(one) == ["FlashComm1 is enabled."]
    assert not one.proofs[0][0].matches("FlashComm1 is enabled, but not for this model. Disabling")
    assert one.against[0].matches("FlashComm1 is enabled, but not for this model. Disabling")


@drawn(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20), st.integers())
def test_a_pattern_finds_what_its_call_writes(
    tmp_path_factory: pytest.TempPathFactory, said: str, number: int
) -> None:
    root = tmp_path_factory.mktemp("source")
    texts = {
        "vllm/a.py": 'logger.info("graph of (%s) took %d secs [%5.2f%%]", a, b, c)\n',
        "vllm/b.py": 'logger.info(f"graph of ({a}) took {b} " + "secs [end]")\n',
    }
    lines = [
        f"graph of ({said}) took {number} secs [{number:5.2f}%]",
        f"graph of ({said}) took {number} secs [end]",
    ]
    calls = list(log_calls(package(root, "vllm", texts), "graph"))
    for call, line in zip(calls, lines, strict=True):
        assert re.search(call.pattern, line)
        assert not re.search(call.pattern, line.replace("secs", "hours"))


def test_files_that_are_no_python_of_ours_are_passed_over(tmp_path: Path) -> None:
    broken = ASCEND | {
        "vllm_ascend/later.py": "def flashcomm(:\n",
        "vllm_ascend/odd.py": "flashcomm = '\0'\n",
    }
    assert probe(package(tmp_path, "vllm_ascend", broken), None)["flashcomm1"].exists
