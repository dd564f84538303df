"""Each requirement of an adapted model is proven by a run, a named gap, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import artifacts_kit
import pytest
from artifacts_kit import (
    ACCURACY,
    CAPACITY,
    FEATURES,
    HF_ID,
    LOADS,
    NAME,
    NPU,
    add,
    add_all,
    analysed,
    observed,
)
from model_kit import LLAMA
from msgspec import structs

from npu_upgrade.artifacts.facts import Facts, gather
from npu_upgrade.artifacts.naming import Source
from npu_upgrade.checkpoint.gate_commands import gate_command
from npu_upgrade.checkpoint.parts import Mtp, Tower
from npu_upgrade.checkpoint.reading import Finding
from npu_upgrade.evidence.observed import Device
from npu_upgrade.evidence.store import workspace_store
from npu_upgrade.job.requirements import RULES


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / ".npu-upgrade").mkdir()
    return tmp_path


def known(workspace: Path) -> Facts:
    analysis = workspace / ".npu-upgrade/adapt" / NAME / "analysis.json"
    return gather(workspace_store(workspace), HF_ID, analysis, None, Source(HF_ID))


def states(workspace: Path) -> dict[str, str]:
    return {one.rule.id: one.state for one in known(workspace).judged}


def words(workspace: Path, id: str) -> str:
    return next(one.words for one in known(workspace).judged if one.rule.id == id)


def row(name: str, status: str = "verified", why: str = "seen") -> dict[str, str]:
    return {"feature": name, "status": status, "why": why}


def test_an_honest_model_has_no_gap(workspace: Path) -> None:
    add_all(workspace)
    assert set(states(workspace).values()) == {"proven", "not needed"}
    assert list(states(workspace)) == [rule.id for rule in RULES]
    assert known(workspace).on_npu


@pytest.mark.parametrize(
    ("id", "state", "said", "changes"),
    [
        ("right", "gap", "loads and answers", {"reference": {"state": "none", "why": "no torch here"}}),
        ("right", "gap", "loads and answers", {"reference": None}),
        (
            "right",
            "refused",
            "token 3 differs",
            {"reference": {"state": "differs", "why": "token 3 differs"}},
        ),
        ("graph", "gap", "was eager", {"resolved": {"enforce_eager": True}}),
        ("graph", "gap", "TORCHDYNAMO_DISABLE", {"environment": {"TORCHDYNAMO_DISABLE": "1"}}),
        ("graph", "gap", "TORCH_COMPILE_DISABLE", {"environment": {"TORCH_COMPILE_DISABLE": "1"}}),
        ("work-folder", "gap", "in /tmp/x, which nobody named", {"work_dir": "/tmp/x"}),
    ],
)
def test_the_main_run_says(workspace: Path, id: str, state: str, said: str, changes: dict[str, Any]) -> None:
    add_all(workspace)
    folder = str(changes.get("work_dir") or "/workspace")
    add(workspace, shown=observed(work_dir=folder), **changes)
    assert states(workspace)[id] == state
    assert said in words(workspace, id)
    others = {name: one for name, one in states(workspace).items() if name != id}
    assert "gap" not in others.values()


@pytest.mark.parametrize(
    ("id", "state", "said", "changes"),
    [
        ("npu", "refused", "lived on cpu", {"devices": "cpu"}),
        ("npu", "refused", "lived on npu emulated", {"devices": "npu emulated"}),
        ("npu", "refused", "no device that is told", {"processes": ()}),
        ("pins", "refused", "transformers 5.1 ran", {"versions": {"transformers": "5.1"}}),
        ("pins", "refused", "cann of no known version", {"required": {"cann": "8.3.RC1"}}),
        ("pins", "gap", "no run on an NPU tells which", {"required": {}}),
        ("overlay", "refused", "PYTHONPATH laid /x over", {"pythonpath": ("/x",)}),
        ("graph", "gap", "TORCHDYNAMO_DISABLE", {"variables": {"TORCHDYNAMO_DISABLE": "1"}}),
    ],
)
def test_the_engine_shows(workspace: Path, id: str, state: str, said: str, changes: dict[str, Any]) -> None:
    add_all(workspace)
    shown = observed()
    if kind := changes.pop("devices", ""):
        changes["processes"] = tuple(structs.replace(one, device=Device(kind)) for one in shown.processes)
    add(workspace, shown=structs.replace(shown, **changes))
    assert states(workspace)[id] == state
    assert said in words(workspace, id)


def test_a_main_run_without_graphs_shows_none_whatever_another_run_verified(workspace: Path) -> None:
    add_all(workspace)
    shown = observed()
    (process,) = shown.processes
    for mode, state in (("NONE", "gap"), ("FULL_DECODE_ONLY", "proven")):
        one = structs.replace(process, config=process.config | {"cudagraph_mode": mode})
        add(workspace, shown=structs.replace(shown, processes=(one,)))
        assert states(workspace)["graph"] == state


def test_weights_on_a_cpu_are_no_npu(workspace: Path) -> None:
    add_all(workspace, "CPU real")
    assert states(workspace)["npu"] == "gap"
    assert not known(workspace).on_npu
    assert "on a CPU only" in words(workspace, "npu")


def test_dummy_weights_prove_nothing(workspace: Path) -> None:
    analysed(workspace)
    for gate, more in (
        ("serve", {}),
        ("features", {"features": FEATURES}),
        ("capacity", {"capacity": CAPACITY}),
    ):
        add(workspace, gate, "NPU dummy", **more)
    found = states(workspace)
    assert (found["serve"], found["graph"], found["capacity"]) == ("refused", "gap", "gap")


def test_a_failed_gate_is_refused_whatever_passed_before(workspace: Path) -> None:
    add_all(workspace)
    add(workspace, "features", verdict="FAIL", summary="it died", features=FEATURES)
    assert states(workspace)["failed"] == "refused"
    assert "it died" in words(workspace, "failed")


def test_a_feature_that_does_not_work_is_a_gap_with_its_reason(workspace: Path) -> None:
    add_all(workspace)
    add(workspace, "features", verdict="FAIL", features=[row("graph", "unsupported", "no such mode")])
    found = states(workspace)
    assert (found["failed"], found["graph"]) == ("proven", "gap")
    assert "no such mode" in words(workspace, "graph")


def test_what_a_run_of_some_features_did_not_try_is_as_before(workspace: Path) -> None:
    add_all(workspace)
    add(workspace, "features", features=[row("mtp"), row("graph", "unsupported", "no replay")])
    before = states(workspace)
    add(workspace, "features", features=[row("graph")])
    assert (before["graph"], states(workspace)["graph"]) == ("gap", "proven")
    shown = {one.feature: (one.status, one.why) for one in known(workspace).features}
    assert shown["mtp"] == shown["graph"] == ("verified", "seen")


def test_each_modality_that_the_model_declares_is_asked(workspace: Path) -> None:
    towers = {kind: Tower([f"{kind}_config"], 3) for kind in ("image", "audio")}
    add_all(workspace)
    analysed(workspace, modalities=towers)
    found = states(workspace)
    assert (found["image"], found["audio"], found["video"]) == ("gap", "gap", "not needed")
    checks = [
        {"name": "image", "state": "SKIPPED", "why": "this server takes no images as it was started"},
        {"name": "semantic:audio", "state": "PASS"},
    ]
    add(workspace, checks=checks)
    found = states(workspace)
    assert (found["image"], found["audio"]) == ("gap", "proven")
    assert "takes no images as it was started" in words(workspace, "image")
    add(workspace, checks=[{"name": "image", "state": "PASS"}])
    assert states(workspace)["image"] == "proven"


def test_pictures_are_compared_where_the_model_takes_them(workspace: Path) -> None:
    """That the text of a model is right says nothing of its tower."""
    text = {
        "state": "equal",
        "why": "equals; no image: no processor",
        "kinds": ["text"],
        "label": "made here",
    }
    add_all(workspace)
    add(workspace, reference=text)
    assert states(workspace)["right"] == "proven"
    assert "made here" in words(workspace, "right")
    analysed(workspace, modalities={"image": Tower(["vision_config"], 3)})
    assert states(workspace)["right"] == "gap"
    assert "no picture was compared with Transformers: equals; no image" in words(workspace, "right")
    add(workspace, reference=text | {"kinds": ["image"]})
    assert states(workspace)["right"] == "proven"


def test_a_reference_that_the_plan_made_does_not_prove_the_plan(workspace: Path) -> None:
    add_all(workspace)
    held = {"state": "equal", "kinds": ["text"], "planned": "LlamaForCausalLM"}
    add(workspace, reference=held | {"assumed": ["a.w is not transposed", "b holds gate, then up"]})
    assert states(workspace)["right"] == "gap"
    told = words(workspace, "right")
    assert "shown by no shape: a.w is not transposed; b holds gate, then up" in told
    assert "those of LlamaForCausalLM in Transformers, its weights placed by this job's plan" in told


def test_a_mixture_needs_what_a_dense_model_does_not(workspace: Path) -> None:
    mixture = {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 4}
    add_all(workspace)
    assert states(workspace)["expert_parallel"] == "not needed"
    analysed(workspace, config=mixture)
    found = states(workspace)
    assert (found["expert_parallel"], found["flashcomm1"]) == ("gap", "gap"), "n/a is not what the files say"
    asked = known(workspace).gap("expert_parallel")
    assert asked is not None
    assert asked.command.passed_on == ("--tensor-parallel-size", "2"), "experts lie on ranks"
    assert not asked.elsewhere
    add(workspace, "features", features=[row("graph"), row("expert_parallel"), row("flashcomm1")])
    found = states(workspace)
    assert (found["expert_parallel"], found["flashcomm1"]) == ("proven", "proven")


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("ready", "verified", "proven"),
        ("ready", "not applicable", "gap"),
        ("ready", "unsupported", "gap"),
        ("checkpoint missing", "checkpoint missing", "not needed"),
        ("none", "not proven", "not needed"),
    ],
)
def test_mtp_where_the_checkpoint_has_it(workspace: Path, state: str, status: str, expected: str) -> None:
    add_all(workspace)
    analysed(workspace, mtp=Mtp(state, 1, 2, "model.mtp.weight"))
    add(workspace, "features", features=[row("graph"), row("mtp", status)])
    assert states(workspace)["mtp"] == expected


def test_a_cpu_is_not_asked_for_expert_parallel(workspace: Path) -> None:
    mixture = {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 4}
    add_all(workspace, "CPU real")
    analysed(workspace, config=mixture)
    add(workspace, "features", "CPU real", features=[row("expert_parallel", "not proven", "one rank")])
    assert next(gap for gap in known(workspace).gaps if gap.id == "expert_parallel").elsewhere


@pytest.mark.parametrize("status", ["unsupported", "not proven", "not applicable"])
def test_graphs_that_were_not_seen(workspace: Path, status: str) -> None:
    add_all(workspace, "CPU real")
    add(workspace, "features", "CPU real", features=[row("graph", status, "no vllm-ascend is here")])
    assert states(workspace)["graph"] == "gap"
    assert "no vllm-ascend is here" in words(workspace, "graph")
    assert "emulated" not in words(workspace, "graph")
    add(workspace, "features", "emulated dry-run", features=[row("graph")])
    assert states(workspace)["graph"] == "gap"
    assert words(workspace, "graph") == "graph was shown on an emulated NPU only"
    assert next(gap for gap in known(workspace).gaps if gap.id == "graph").elsewhere


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("verified", "graph was shown on an emulated NPU only"),
        ("not proven", "graph is not proven on an emulated NPU"),
        ("", "no CPU real run says anything about graph"),
    ],
)
def test_what_a_cpu_was_not_asked_for_is_as_the_emulated_npu_shows_it(
    workspace: Path, status: str, said: str
) -> None:
    add(workspace, "serve", "CPU dummy")
    add(workspace, "serve", "CPU real")
    if status:
        add(workspace, "features", "emulated dry-run", features=[row("graph", status)])
    assert words(workspace, "graph") == said
    assert next(gap for gap in known(workspace).gaps if gap.id == "graph").elsewhere is bool(status)


@pytest.mark.parametrize(
    ("changes", "more", "state", "said"),
    [
        ({}, {}, "proven", "131072 tokens"),
        ({"filled": False}, {}, "gap", "no request was of that length"),
        ({"max_num_seqs": 8}, {}, "gap", "were not tried"),
        ({"max_model_len": 2048}, {}, "gap", "131072 tokens with 16 sequences"),
        ({"max_model_len": 2048}, {"promised_max_model_len": 2048}, "proven", "2048 tokens"),
        ({"state": "FAIL", "root": {"cause": "no room"}}, {}, "gap", "no room"),
    ],
)
def test_capacity(workspace: Path, changes, more, state: str, said: str) -> None:
    add_all(workspace)
    add(workspace, "capacity", capacity=[CAPACITY[0] | changes], **more)
    assert states(workspace)["capacity"] == state
    assert said in words(workspace, "capacity")


def measured(name: str, **values: float) -> dict[str, Any]:
    metrics = [{"name": f"{key},none", "value": value} for key, value in values.items()]
    return ACCURACY | {"tasks": [{"name": name, "num_fewshot": 0, "metrics": metrics}]}


@pytest.mark.parametrize(
    ("accuracy", "state"),
    [
        (measured("gsm8k", exact_match=0.3), "proven"),
        (measured("gsm8k", exact_match=0.0), "gap"),
        (measured("some_choices", acc=0.5), "gap"),
        (measured("some_choices", acc=0.3), "gap"),
        (measured("some_choices", acc=0.8), "proven"),
        (measured("some_choices", acc=0.4, acc_norm=0.8), "proven"),
    ],
)
def test_accuracy_is_above_chance(workspace: Path, accuracy: dict[str, Any], state: str) -> None:
    add_all(workspace)
    add(workspace, "accuracy", accuracy=accuracy)
    assert states(workspace)["accuracy"] == state
    assert (known(workspace).accuracy is None) is (state == "gap")


@pytest.mark.parametrize(
    ("value", "error", "state"), [(0.3, 0.01, "proven"), (0.3, 0.04, "gap"), (0.25, 0.0, "gap")]
)
def test_what_guessing_gives_is_read_from_the_task(
    workspace: Path, value: float, error: float, state: str
) -> None:
    choices = {"output_type": "multiple_choice", "doc_to_choice": ["A", "B", "C", "D"]}
    results = {
        "configs": {"four": choices},
        "results": {"four": {"acc,none": value, "acc_stderr,none": error}},
        "higher_is_better": {"four": {"acc": True}},
    }
    add_all(workspace)
    add(workspace, "accuracy", accuracy=measured("four", acc=value), files={"lm_eval-results.json": results})
    assert states(workspace)["accuracy"] == state


@pytest.mark.parametrize(
    ("asked", "value", "state"), [(1, 1.0, "gap"), (2, 1.0, "gap"), (4, 1.0, "proven"), (400, 0.29, "gap")]
)
def test_a_few_right_answers_may_be_luck(workspace: Path, asked: int, value: float, state: str) -> None:
    """lm_eval tells no error of one answer, and none of several that are alike."""
    choices = {"output_type": "multiple_choice", "doc_to_choice": ["A", "B", "C", "D"]}
    results = {
        "configs": {"four": choices},
        "results": {"four": {"acc,none": value, "acc_stderr,none": "N/A" if asked == 1 else 0.0}},
        "n-samples": {"four": {"original": 2000, "effective": asked}},
    }
    add_all(workspace)
    add(workspace, "accuracy", accuracy=measured("four", acc=value), files={"lm_eval-results.json": results})
    assert states(workspace)["accuracy"] == state
    assert (f"of {asked} questions" in words(workspace, "accuracy")) is (state == "gap")


def test_a_task_of_ones_own_is_no_proof(workspace: Path) -> None:
    add_all(workspace)
    add(workspace, "accuracy", accuracy=ACCURACY, command=("--include-path", "tasks"))
    assert states(workspace)["accuracy"] == "gap"
    assert "nobody else can repeat" in words(workspace, "accuracy")


def test_throughput_is_measured_on_an_npu(workspace: Path) -> None:
    add_all(workspace)
    add(workspace, "performance", performance=[])
    assert "were not measured" in words(workspace, "throughput")
    add(workspace, "performance", performance=LOADS, resolved={"enforce_eager": True})
    shown = "1024+128 tokens, 16 at once: 812.5 tokens/s, first 310.25 ms, each 17.5 ms"
    assert f"measured in eager mode: {shown}" in words(workspace, "throughput")
    assert states(workspace)["throughput"] == "gap"
    add(workspace, "performance", performance=LOADS)
    assert states(workspace)["throughput"] == "proven"


def test_throughput_of_a_cpu_is_a_gap_that_tells_it(workspace: Path) -> None:
    add_all(workspace, "CPU real")
    assert "measured on the CPU: 1024+128 tokens, 16 at once: 812.5" in words(workspace, "throughput")
    assert states(workspace)["throughput"] == "gap"


def test_a_kept_pythonpath_is_refused(workspace: Path) -> None:
    add_all(workspace)
    add(workspace, command=("--keep-pythonpath",))
    assert states(workspace)["overlay"] == "refused"


def test_a_named_work_folder_is_one(workspace: Path) -> None:
    add_all(workspace)
    shown = observed(work_dir="/home/ada")
    add(workspace, shown=shown, work_dir="/home/ada", command=("--work-dir", "/home/ada"))
    assert states(workspace)["work-folder"] == "proven"


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (Finding("error", "layers-missing", "layer 3 is missing"), "refused"),
        (Finding("unsure", "weights-missing", "there are no weights here"), "gap"),
        (Finding("error", "name-unmapped", "a name has no place"), "proven"),
        (Finding("note", "code-own", "it has code"), "proven"),
    ],
)
def test_the_checkpoint_is_consistent(workspace: Path, finding: Finding, state: str) -> None:
    add_all(workspace)
    analysed(workspace, findings=[finding])
    assert states(workspace)["analysis"] == state
    (workspace / ".npu-upgrade/adapt" / NAME / "analysis.json").unlink()
    assert states(workspace)["analysis"] == "gap"


def test_what_ran_on_another_device_than_the_main_run_does_not_count(workspace: Path) -> None:
    analysed(workspace)
    add(workspace)
    for gate, more in (("features", {"features": FEATURES}), ("capacity", {"capacity": CAPACITY})):
        add(workspace, gate, "CPU real", **more)
    add(workspace, "accuracy", "CPU real", accuracy=ACCURACY, device=NPU)
    found = states(workspace)
    assert (found["serve"], found["npu"]) == ("proven", "proven")
    assert [found[name] for name in ("graph", "capacity", "accuracy")] == ["gap"] * 3


def test_a_run_without_an_observation(workspace: Path) -> None:
    add_all(workspace)
    add(workspace, shown=artifacts_kit.NOTHING)
    found = states(workspace)
    assert [found[name] for name in ("npu", "pins", "overlay")] == ["gap"] * 3
    assert "does not tell which device" in words(workspace, "npu")
    assert not known(workspace).on_npu


def test_an_accuracy_run_takes_no_examples_that_the_context_cannot_hold() -> None:
    command = gate_command("accuracy", "/models/Tiny", max_len=512)
    assert command.short == "adapt.py accuracy /models/Tiny --tasks gsm8k --num-fewshot 0"
    for tokens in (0, 131072):  # of which nothing is known, and a long one
        assert gate_command("accuracy", "/models/Tiny", max_len=tokens).short.endswith("--num-fewshot 5")
    assert "--num-fewshot" not in gate_command("capacity", "/models/Tiny", max_len=512).short
