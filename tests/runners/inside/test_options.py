"""What a request asks for, and what the runner remembers of it."""

import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run by test_on_vllm.py in vLLM's environment")

from omni_runners import options  # noqa: E402
from omni_runners.core.requests import Requests  # noqa: E402
from omni_runners.tensors import pack, unpacked  # noqa: E402


def params(kind="FINAL_ONLY", **extra):
    return SimpleNamespace(output_kind=SimpleNamespace(name=kind), extra_args=extra or None)


@pytest.mark.parametrize(
    ("request_id", "sampling", "expected"),
    [
        ("cmpl-1", params(), options.RESPONSE),
        ("cmpl-1", params("CUMULATIVE"), options.RESPONSE),
        ("cmpl-1", None, None),
        ("cmpl-1", params("DELTA"), None),
        ("cmpl-1", params("DELTA", omni_payload=True), options.CHOICE),
        ("cmpl-1", params("CUMULATIVE", omni_payload="parts"), options.PARTS),
        ("cmpl-1", params("FINAL_ONLY", omni_payload="parts"), options.RESPONSE),
        ("1_cmpl-1", params(omni_payload="parts"), options.CHOICE),
        ("1_cmpl-1", params(), None),
        ("1_cmpl-1", params(omni_payload=1), options.CHOICE),
        ("0-17ab", params(), options.RESPONSE),
        *[("cmpl-1", params(omni_payload=off), None) for off in (False, 0, "false", "0", "No", 0.0)],
    ],
)
def test_delivery(request_id, sampling, expected):
    assert options.delivery(request_id, sampling) == expected


def step(new=(), finished=()):
    return SimpleNamespace(
        finished_req_ids=set(finished),
        scheduled_new_reqs=[
            SimpleNamespace(req_id=one, sampling_params=given, prompt_token_ids=[1, 2], num_computed_tokens=0)
            for one, given in new
        ],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], num_computed_tokens=[]),
        num_scheduled_tokens={},
    )


def test_a_request_is_known_until_it_is_finished():
    requests = Requests()
    requests.update(step(new=[("a", params(global_request_id="g", omni_info={"speaker": 3})), ("b", None)]))
    assert requests.wants_payload("a")
    assert not requests.wants_payload("b")
    assert (requests.global_id("a"), requests.global_id("b")) == ("g", "b")
    requests.add("a", {"codes": {"audio": 1}})
    requests.add("a", {"codes": {"text": 2}})
    assert requests.info("a") == {"global_request_id": "g", "speaker": 3, "codes": {"audio": 1, "text": 2}}
    requests.update(step(finished=["a"]))
    requests.add("a", {"late": 1})
    assert requests.info("a") == {}
    assert not requests.wants_payload("a")


def test_a_preempted_request_that_comes_again_keeps_its_info():
    requests = Requests()
    requests.update(step(new=[("a", params())]))
    requests.add("a", {"text": 1})
    requests.update(step(new=[("a", params())]))
    assert requests.info("a")["text"] == 1


def test_the_next_part_of_a_request_brings_information_of_its_own():
    requests = Requests()
    requests.update(step(new=[("a", params(omni_info={"chunk": 1, "codes": {"left": 0}}))]))
    requests.add("a", {"seen": 1})
    requests.update(step(new=[("a", params(omni_info={"chunk": 2, "codes": {"right": 9}}))]))
    info = requests.info("a")
    assert (info["chunk"], info["seen"], info["codes"]) == (2, 1, {"left": 0, "right": 9})


def test_what_a_stage_of_vllm_omni_sends_along_is_taken():
    entry = SimpleNamespace(
        tensor_data=b"\0\0\x80?", tensor_shape=[1], tensor_dtype="float32", list_data=None, scalar_data=None
    )
    others = SimpleNamespace(tensor_data=None, list_data=[1, 2], scalar_data=None)
    sent = step(new=[("a", params())])
    sent.scheduled_new_reqs[0].additional_information = SimpleNamespace(
        entries={"embed.prefill": entry, "ids.all": others}
    )
    requests = Requests()
    requests.update(sent)
    assert requests.info("a")["embed"]["prefill"].tolist() == [1.0]
    assert requests.info("a")["ids"] == {"all": [1, 2]}
    later = step()
    later.scheduled_cached_reqs.additional_information = {"a": {"codes": {"audio": [3]}}}
    requests.update(later)
    assert requests.info("a")["codes"] == {"audio": [3]}


def test_tensors_survive_json():
    sent = json.loads(
        json.dumps({"codes": {"audio": pack(torch.arange(6, dtype=torch.bfloat16).view(2, 3))}})
    )
    found = unpacked(sent)["codes"]["audio"]
    assert found.dtype is torch.bfloat16
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert unpacked({"empty": pack(torch.empty(0, 4))})["empty"].shape == (0, 4)


def test_a_tensor_in_an_info_is_a_copy():
    requests, buffer = Requests(), torch.zeros(2)
    requests.update(step(new=[("a", params())]))
    requests.add("a", {"last": buffer, "codes": {"audio": [buffer]}})
    buffer.fill_(1)
    assert requests.info("a")["last"].tolist() == requests.info("a")["codes"]["audio"][0].tolist() == [0, 0]
