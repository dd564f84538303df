"""What a request asks for, and what the runner remembers of it."""

from types import SimpleNamespace

import pytest

from omni_runners import options
from omni_runners.core.requests import Requests


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
        scheduled_new_reqs=[SimpleNamespace(req_id=one, sampling_params=given) for one, given in new],
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
