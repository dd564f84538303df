"""Which starts the matrix makes, and what it says when some of them do not serve."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from features_kit import ASCEND, VLLM, checkpoint, package, started

from npu_upgrade.gates.features.capability import FEATURES, Capability
from npu_upgrade.gates.features.matrix import Matrix, Setting, make
from npu_upgrade.gates.features.probe import probe
from npu_upgrade.gates.serving.starts import Start, Started
from npu_upgrade.ground.verdict import Verdict

KEYED = ASCEND | {
    "vllm_ascend/envs.py": "",
    "vllm_ascend/config.py": """
def init(additional_config):
    on = additional_config.get("enable_flashcomm1")
    if on:
        logger.info_once("FlashComm1 is enabled.")
""",
}
CONFIG = {"num_experts": 8, "num_nextn_predict_layers": 2, "num_hidden_layers": 1}
WEIGHTS = ("model.layers.0.a", "model.layers.1.a")
LOG = """(Worker_TP0_EP0 pid=7) INFO 11-22 03:04:05 [x.py:9] FlashComm1 is enabled.
(Worker_TP0_EP0 pid=7) INFO 11-22 03:04:05 [x.py:9] Graph capturing finished in 7 secs
(APIServer pid=3) INFO:     Application startup complete.
(Worker_TP0_EP0 pid=7) INFO 11-22 03:04:05 [x.py:9] Replaying the graph of the model
"""
COUNTED = {"vllm:spec_decode_num_drafts": 2.0, "vllm:spec_decode_num_accepted_tokens": 1.0}


class Machine:
    """Starts servers of which some combinations of arguments do not serve."""

    def __init__(self, folder: Path, *broken: Iterable[str], why: str = "not supported") -> None:
        self.folder, self.broken, self.starts, self.why = folder, broken, list[Start](), why

    def __call__(self, start: Start) -> Started:
        self.starts.append(start)
        said = " ".join(start.arguments)
        if any(all(word in said for word in words) for words in self.broken):
            root = {"id": "x", "cause": "y", "line": 1, "text": f"NotImplementedError: {self.why}"}
            return started(self.folder, start, verdict=Verdict.FAIL, summary="start: it ended", root=root)
        resolved = {
            "enforce_eager": False,
            "enable_expert_parallel": "--enable-expert-parallel" in said,
            "additional_config": {"enable_flashcomm1": "flashcomm" in said},
        }
        checks = {"lora": ("PASS", "")}
        return started(self.folder, start, LOG, resolved=resolved, metrics=COUNTED, checks=checks)


@pytest.fixture
def known(tmp_path: Path) -> dict[str, Capability]:
    return probe(package(tmp_path, "vllm_ascend", KEYED), package(tmp_path, "vllm", VLLM))


def matrix(folder: Path, known: dict, machine: Machine, asked: tuple[str, ...] = (), **more) -> Matrix:
    model = checkpoint(folder / "model", CONFIG, *WEIGHTS)
    setting = Setting(model, dummy=False, on_cpu=False, ranks=2, asked=asked)
    return make(known, setting, machine, **more)


def statuses(found: Matrix) -> dict[str, str]:
    return {name: row.status for name, row in found.rows.items()}


ALL = {
    "graph": "verified",
    "expert_parallel": "verified",
    "flashcomm1": "verified",
    "mtp": "verified",
    "multimodal": "not applicable",
    "quantization": "not applicable",
    "lora": "verified",
}


def test_one_start_is_enough_when_all_of_it_serves(tmp_path: Path, known: dict) -> None:
    machine = Machine(tmp_path)
    found = matrix(tmp_path, known, machine)
    assert statuses(found) == ALL
    assert list(found.rows) == list(FEATURES)
    (start,) = machine.starts
    assert start.arguments == (
        *("--enable-expert-parallel", "--speculative-config", '{"method":"mtp","num_speculative_tokens":2}'),
        *("--enable-lora", "--additional-config", '{"enable_flashcomm1":true}'),
    )


def test_what_breaks_the_rest_is_found_one_by_one(tmp_path: Path, known: dict) -> None:
    machine = Machine(tmp_path, ["--speculative-config"])
    found = matrix(tmp_path, known, machine)
    assert statuses(found) == ALL | {"mtp": "unsupported"}
    assert found.serves
    assert len(machine.starts) == 7  # all, nothing, four alone, the three that work
    assert found.rows["mtp"].evidence.endswith("server.log:1: NotImplementedError: not supported")
    assert "mtp" not in machine.starts[-1].features


def test_flashcomm_is_asked_for_with_expert_parallel_and_not_blamed_for_it(
    tmp_path: Path, known: dict
) -> None:
    machine = Machine(tmp_path, ["--enable-expert-parallel"])
    found = matrix(tmp_path, known, machine, only=["flashcomm1"])
    assert machine.starts[0].features == ("expert_parallel", "flashcomm1")
    assert statuses(found) == {"flashcomm1": "not proven"}


def test_two_that_only_work_apart(tmp_path: Path, known: dict) -> None:
    machine = Machine(tmp_path, ["--speculative-config", "--enable-lora"])
    found = matrix(tmp_path, known, machine)
    assert statuses(found) == ALL
    assert len(machine.starts) == 6
    assert machine.starts[-1].features == ("lora",)


def test_the_feature_that_a_failure_names_is_tried_apart_first(tmp_path: Path, known: dict) -> None:
    machine = Machine(
        tmp_path,
        ["--enable-expert-parallel", "--enable-lora"],
        why="MoE LoRA requires what FlashComm1 has not",
    )
    found = matrix(tmp_path, known, machine)
    assert statuses(found) == ALL
    assert found.serves
    assert [start.name for start in machine.starts] == ["start-1", "start-2", "start-3"]
    assert "lora" not in machine.starts[1].features
    assert machine.starts[2].features == ("lora",)
    others = "expert_parallel, flashcomm1, mtp"
    assert f"alone only: not together with {others}" in found.rows["lora"].why
    assert "alone only" not in found.rows["mtp"].why


REFUSING = KEYED | {
    "vllm_ascend/ops/fused_moe/experts.py": """
def check(index):
    if index is None:
        raise AssertionError("MoE LoRA requires either expanded_row_idx+topk_ids " "or lora_indices")
"""
}


def test_what_the_release_refuses_together_is_not_started_together(tmp_path: Path) -> None:
    known = probe(package(tmp_path, "vllm_ascend", REFUSING), package(tmp_path, "vllm", VLLM))
    machine = Machine(tmp_path, ["--enable-expert-parallel", "--enable-lora"])
    found = matrix(tmp_path, known, machine)
    assert statuses(found) == ALL
    assert [start.features for start in machine.starts] == [
        ("expert_parallel", "flashcomm1", "mtp"),
        ("lora",),
    ]
    said = "alone only: the release refuses it beside expert_parallel and flashcomm1"
    assert f"{said} (vllm_ascend/ops/fused_moe/experts.py:4)" in found.rows["lora"].why
    alone = Machine(tmp_path)
    assert statuses(matrix(tmp_path, known, alone, only=["lora"])) == {"lora": "verified"}
    assert len(alone.starts) == 1


def test_a_dense_model_is_started_with_all_of_it(tmp_path: Path) -> None:
    known = probe(package(tmp_path, "vllm_ascend", REFUSING), package(tmp_path, "vllm", VLLM))
    machine = Machine(tmp_path)
    model = checkpoint(tmp_path / "dense", {"num_nextn_predict_layers": 2, "num_hidden_layers": 1}, *WEIGHTS)
    make(known, Setting(model, dummy=False, on_cpu=False, ranks=2), machine)
    assert [start.features for start in machine.starts] == [("mtp", "lora")]


def test_a_feature_that_does_not_serve_alone_either_is_named_and_the_others_stay(
    tmp_path: Path, known
) -> None:
    found = matrix(tmp_path, known, Machine(tmp_path, ["--enable-lora"], why="LoRA is not supported"))
    assert statuses(found) == ALL | {"lora": "unsupported"}
    assert len(found.starts) == 3


def test_a_failure_that_names_the_wrong_feature_costs_one_start(tmp_path: Path, known: dict) -> None:
    machine = Machine(tmp_path, ["--speculative-config"], why="LoRA: not supported")
    found = matrix(tmp_path, known, machine)
    assert statuses(found) == ALL | {"mtp": "unsupported"}
    assert len(machine.starts) == 8


def test_three_of_which_two_go_together(tmp_path: Path, known: dict) -> None:
    machine = Machine(tmp_path, ["--speculative-config"], ["--enable-lora", "flashcomm"])
    found = matrix(tmp_path, known, machine)
    assert "alone only: not together with" in found.rows["lora"].why
    assert len(machine.starts) <= len(FEATURES) + 4


def test_a_model_that_never_serves_ends_it_after_two_starts(tmp_path: Path, known: dict) -> None:
    machine = Machine(tmp_path, [])
    found = matrix(tmp_path, known, machine)
    assert found.serves is False
    assert len(machine.starts) == 2
    assert not {"verified", "unsupported"} & set(statuses(found).values())


def test_only_what_is_asked_for_is_tried(tmp_path: Path, known: dict) -> None:
    machine = Machine(tmp_path)
    assert statuses(matrix(tmp_path, known, machine, only=["graph", "quantization"])) == {
        "graph": "verified",
        "quantization": "not applicable",
    }
    assert [start.arguments for start in machine.starts] == [()]


def test_nothing_is_started_for_what_cannot_matter(tmp_path: Path, known: dict) -> None:
    machine = Machine(tmp_path)
    matrix(tmp_path, known, machine, only=["quantization"])
    assert machine.starts == []


def test_the_users_own_arguments_are_kept(tmp_path: Path, known: dict) -> None:
    machine = Machine(tmp_path)
    asked = ("--enable-expert-parallel", '--additional-config={"refresh":true}')
    matrix(tmp_path, known, machine, asked)
    (start,) = machine.starts
    assert "--enable-expert-parallel" not in start.arguments
    assert json.loads(start.arguments[-1]) == {"refresh": True, "enable_flashcomm1": True}


def test_the_table_fits_a_terminal_and_names_every_feature(tmp_path: Path, known: dict) -> None:
    text = matrix(tmp_path, known, Machine(tmp_path)).as_text()
    assert all(name in text for name in FEATURES)
