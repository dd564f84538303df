"""The status of a feature, from what a start showed and from the checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from features_kit import ASCEND, VLLM, checkpoint, package, started

from npu_upgrade.gates.features.capability import Capability
from npu_upgrade.gates.features.judge import judge, not_started
from npu_upgrade.gates.features.model import (
    MISSING,
    NOT_APPLICABLE,
    NOT_PROVEN,
    UNSUPPORTED,
    VERIFIED,
    Row,
    asked_mode,
    best_way,
    read,
    ruled_out,
)
from npu_upgrade.gates.features.probe import probe
from npu_upgrade.gates.serving.starts import Start
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Verdict

MOE = {"num_experts": 8, "num_hidden_layers": 2}
MTP = {"num_nextn_predict_layers": 1, "num_hidden_layers": 2}
WORKER = "(Worker_TP0 pid=7) INFO 11-22 03:04:05 [x.py:9] "
CAPTURED = f"{WORKER}Graph capturing finished in 7 secs\n"
READY = "(APIServer pid=3) INFO:     Application startup complete.\n"
REPLAYED = f"{WORKER}Replaying the graph of the model\n"
ON = {"enforce_eager": False, "cudagraph_mode": 2}


@pytest.fixture
def known(tmp_path: Path) -> dict[str, Capability]:
    return probe(package(tmp_path, "vllm_ascend", ASCEND), package(tmp_path, "vllm", VLLM))


def row(
    folder: Path,
    one: Capability,
    log: str = "",
    asked: tuple[str, ...] = (),
    config: dict[str, Any] | None = None,
    dummy: bool = False,
    **more: Any,
) -> Row:
    model = checkpoint(folder / "model", config or {})
    return judge(one, best_way(one, model, asked), started(folder, Start("s"), log, **more), dummy)


def test_a_graph_is_proven_by_its_replay_after_the_server_is_ready(tmp_path: Path, known: dict) -> None:
    found = row(tmp_path, known["graph"], CAPTURED + READY + REPLAYED, resolved=ON)
    assert found.status == VERIFIED
    assert "s/server.log:3: (Worker_TP0 pid=7) Replaying the graph of the model" in found.evidence
    assert found.resolved == "enforce_eager=False, cudagraph_mode=FULL"


@pytest.mark.parametrize(
    ("log", "resolved", "said"),
    [
        (CAPTURED + REPLAYED + READY, ON, "Replaying"),  # only while it warmed up
        (READY + REPLAYED, ON, "capturing"),
        (CAPTURED + READY, ON, "Replaying"),
        (CAPTURED + READY + REPLAYED, {}, "enforce_eager=False"),
        (CAPTURED + READY + REPLAYED, ON | {"enforce_eager": True}, "resolved configuration"),
        (CAPTURED + READY + REPLAYED, ON | {"cudagraph_mode": 0}, "resolved configuration"),
        (
            CAPTURED + READY + REPLAYED,
            ON | {"cudagraph_mode": "CUDAGraphMode.NONE"},
            "resolved configuration",
        ),
        (f"{WORKER}the backend NEW has no graphs at all\n" + CAPTURED + READY + REPLAYED, ON, "taken away"),
    ],
)
def test_a_graph_is_not_proven(tmp_path: Path, known: dict, log: str, resolved: dict, said: str) -> None:
    found = row(tmp_path, known["graph"], log, resolved=resolved)
    assert found.status == NOT_PROVEN
    assert said in found.why


def test_a_lesser_mode_is_said(tmp_path: Path, known: dict) -> None:
    less = f"{WORKER}pooling takes the lesser graphs\n"
    found = row(tmp_path, known["graph"], less + CAPTURED + READY + REPLAYED, resolved=ON)
    assert found.status == VERIFIED
    assert "became less: s/server.log:1" in found.why


def test_another_mode_than_asked_for_is_not_proven(tmp_path: Path, known: dict) -> None:
    asked = ("--compilation-config", '{"cudagraph_mode": "full_decode_only"}')
    log = CAPTURED + READY + REPLAYED
    assert row(tmp_path, known["graph"], log, asked, resolved=ON).status == NOT_PROVEN
    assert (
        row(tmp_path, known["graph"], log, asked, resolved=ON | {"cudagraph_mode": [2, 0]}).status == VERIFIED
    )


@pytest.mark.parametrize(
    ("asked", "mode"),
    [
        (("-cc.cudagraph_mode=full",), "FULL"),
        (("-cc", '{"cudagraph_mode":"NONE"}'), "NONE"),
        (('--compilation-config={"cudagraph_mode":"PIECEWISE"}',), "PIECEWISE"),
        (("--compilation-config", "3"), None),
        (("--compilation-config", "{oops"), None),
        (("--compilation-config",), None),
        ((), None),
    ],
)
def test_the_mode_a_user_asks_for(asked: tuple[str, ...], mode: str | None) -> None:
    assert asked_mode(asked) == mode


def test_expert_parallel_is_proven_by_the_names_of_the_workers(tmp_path: Path, known: dict) -> None:
    one, on = known["expert_parallel"], {"enable_expert_parallel": True}
    line = "(Worker_TP1_EP1 pid=8) INFO 11-22 03:04:05 [x.py:9] hello\n"
    assert row(tmp_path, one, line, resolved=on).status == VERIFIED
    assert row(tmp_path, one, line, resolved={"enable_expert_parallel": False}).status == NOT_PROVEN
    assert row(tmp_path, one, line.replace("_EP1", ""), resolved=on).status == NOT_PROVEN
    assert row(tmp_path, one, f"{WORKER}Worker_TP1_EP1 is somebody else\n", resolved=on).status == NOT_PROVEN


def test_drafts_have_to_be_accepted_and_mean_nothing_with_dummy_weights(tmp_path: Path, known: dict) -> None:
    counted = {"vllm:spec_decode_num_drafts": 9.0, "vllm:spec_decode_num_accepted_tokens": 4.0}
    one, on = known["mtp"], {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}
    found = row(tmp_path, one, metrics=counted, resolved=on)
    assert (found.status, found.resolved) == (
        VERIFIED,
        "speculative_config={'method': 'mtp', 'num_speculative_tokens': 1}",
    )
    assert row(tmp_path, one, metrics=counted, resolved=on, dummy=True).status == NOT_PROVEN
    none = counted | {"vllm:spec_decode_num_accepted_tokens": 0.0}
    assert "accepted" in row(tmp_path, one, metrics=none, resolved=on).why
    assert row(tmp_path, one, metrics=counted, resolved={"speculative_config": None}).status == NOT_PROVEN


def test_a_release_that_logs_nothing_proves_nothing(tmp_path: Path, known: dict) -> None:
    found = row(tmp_path, known["flashcomm1"], READY)
    assert found.status == NOT_PROVEN
    assert "logs nothing when it is on" in found.why


def test_a_key_that_the_server_dropped_is_found(tmp_path: Path) -> None:
    said = 'on = additional_config["enable_flashcomm1"]\nlogger.info("FlashComm1 is enabled.")\n'
    one = probe(package(tmp_path, "vllm_ascend", {"vllm_ascend/c.py": said}), None)["flashcomm1"]
    line = f"{WORKER}FlashComm1 is enabled.\n"
    on = {"additional_config": {"enable_flashcomm1": True}}
    assert row(tmp_path, one, line, resolved=on).status == VERIFIED
    assert row(tmp_path, one, line, resolved={"additional_config": {}}).status == NOT_PROVEN


@pytest.mark.parametrize(
    ("state", "status"), [("PASS", VERIFIED), ("FAIL", NOT_PROVEN), ("SKIPPED", NOT_PROVEN)]
)
def test_an_answered_image_proves_multimodal(tmp_path: Path, known: dict, state: str, status: str) -> None:
    assert row(tmp_path, known["multimodal"], checks={"image": (state, "")}).status == status


def test_a_feature_that_is_refused_is_unsupported(tmp_path: Path, known: dict) -> None:
    one = known["lora"]
    way = best_way(one, checkpoint(tmp_path / "model", {}))
    root = {
        "id": "lora-unsupported",
        "cause": "no",
        "line": 3,
        "text": "ValueError: X does not support LoRA yet.",
    }
    bad = started(tmp_path, Start("s"), verdict=Verdict.FAIL, summary="start: ended", root=root)
    found = not_started(one, way, bad)
    assert (found.status, found.evidence) == (
        UNSUPPORTED,
        "s/server.log:3: ValueError: X does not support LoRA yet.",
    )
    other = replace(bad, root={"id": "UNKNOWN", "line": 3, "text": "KeyError: 7"})
    assert not_started(one, way, other).status == NOT_PROVEN


@pytest.mark.parametrize(
    ("feature", "config", "weights", "status", "evidence"),
    [
        ("expert_parallel", {}, (), NOT_APPLICABLE, "TinyForCausalLM"),
        ("flashcomm1", {"num_shared_experts": 2}, (), NOT_APPLICABLE, "TinyForCausalLM"),
        ("expert_parallel", MOE, (), None, ""),
        ("flashcomm1", {"text_config": {"n_routed_experts": 64}}, (), None, ""),
        ("mtp", {}, (), NOT_APPLICABLE, "no number of MTP layers"),
        ("mtp", {"num_nextn_predict_layers": 0}, (), NOT_APPLICABLE, "no number of MTP layers"),
        ("mtp", MTP, ("model.layers.0.a", "model.layers.1.a"), MISSING, "none of 2 names"),
        ("mtp", MTP, ("model.layers.1.a", "model.layers.2.a"), None, ""),
        ("mtp", {"mtp_num_hidden_layers": 1}, ("mtp.layers.0.a",), None, ""),
        ("mtp", {"num_hidden_layers": 1}, ("model.layers.1.a",), MISSING, "model.layers.1.a"),
        ("multimodal", {}, (), NOT_APPLICABLE, "no configuration of an encoder"),
        ("multimodal", {"vision_config": {"depth": 2}}, (), None, ""),
        ("quantization", {}, (), NOT_APPLICABLE, "no quantization_config"),
        ("quantization", {"text_config": {"quantization_config": {"quant_method": "fp8"}}}, (), None, ""),
        (
            "quantization",
            {"quantization_config": {"quant_method": "awq"}},
            (),
            UNSUPPORTED,
            "quantization_config: awq",
        ),
    ],
)
def test_what_the_checkpoint_rules_out(
    tmp_path: Path, known: dict, feature: str, config: dict, weights: tuple, status: str | None, evidence: str
) -> None:
    model = checkpoint(tmp_path / "model", config, *weights)
    found = ruled_out(known[feature], model, dummy=False, on_cpu=False, ranks=2)
    assert (found and found.status) == status
    assert found is None or evidence in found.evidence


def test_with_dummy_weights_the_configuration_is_enough_for_drafts(tmp_path: Path, known: dict) -> None:
    model = checkpoint(tmp_path / "model", MTP)
    assert ruled_out(known["mtp"], model, dummy=True, on_cpu=False, ranks=1) is None
    found = ruled_out(known["mtp"], model, dummy=False, on_cpu=False, ranks=1)
    assert found is not None
    assert found.status == MISSING


def test_one_rank_shows_no_parallelism(tmp_path: Path, known: dict) -> None:
    model = checkpoint(tmp_path / "model", MOE)
    found = ruled_out(known["expert_parallel"], model, dummy=True, on_cpu=False, ranks=1)
    assert found is not None
    assert found.status == NOT_PROVEN


def test_a_cpu_has_no_graphs_and_a_removed_feature_is_unsupported(tmp_path: Path) -> None:
    vllm = package(tmp_path, "vllm", VLLM)
    model = checkpoint(tmp_path / "model", MOE)
    alone = probe(None, vllm)
    graph = ruled_out(alone["graph"], model, dummy=True, on_cpu=True, ranks=2)
    assert graph is not None
    assert graph.status == NOT_APPLICABLE
    bare = probe(package(tmp_path, "vllm_ascend", {}), vllm)
    removed = ruled_out(bare["flashcomm1"], model, dummy=True, on_cpu=False, ranks=2)
    assert removed is not None
    assert removed.status == UNSUPPORTED


@pytest.mark.parametrize("text", [None, "{", "[1]"])
def test_a_folder_without_a_configuration_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, "utf-8")
    with pytest.raises(BadInput):
        read(tmp_path)


def test_broken_weights_are_no_reason_to_end(tmp_path: Path) -> None:
    model = checkpoint(tmp_path, MTP)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 40)
    assert not model.weights()
