"""What leaves an engine core is read for each request under the name it was added with."""

from __future__ import annotations

from types import SimpleNamespace

from npu_emulator.dry_run import payloads


def engine(*steps):
    """An engine whose core gives ``steps``, each a list of outputs, for a request known inside as "a-77"."""
    left = list(steps)
    running = {"a-77": SimpleNamespace(request_id="a-77", num_preemptions=2)}
    core = SimpleNamespace(
        get_output=lambda: SimpleNamespace(outputs=left.pop(0)),
        engine_core=SimpleNamespace(scheduler=SimpleNamespace(requests=running)),
    )
    states = {"a-77": SimpleNamespace(external_req_id="a")}
    return SimpleNamespace(engine_core=core, output_processor=SimpleNamespace(request_states=states))


def output(request="a-77", pooling=None, **fields):
    return SimpleNamespace(request_id=request, pooling_output=pooling, **fields)


def test_the_values_of_all_steps_are_kept_in_order():
    running = engine(
        [output(multimodal_output={"hidden": 1})], [output(multimodal_output={"hidden": 2, "sr": 3})]
    )
    seen = payloads.observe(running)
    for _ in range(2):
        running.engine_core.get_output()
    assert seen.payloads == {"a": {"hidden": [1, 2], "sr": [3]}}
    assert seen.preemptions == {"a": 2}


def test_a_payload_in_place_of_a_pooling_output_does_not_reach_vllm():
    one = output(pooling={"hidden": 1})
    running = engine([one])
    seen = payloads.observe(running)
    running.engine_core.get_output()
    assert seen.payloads == {"a": {"hidden": [1]}}
    assert one.pooling_output is None


def test_a_pooling_models_own_output_is_left_alone():
    one = output("b", pooling=[0.5], multimodal_output=None)
    running = engine([one])
    assert payloads.observe(running).payloads == {}
    running.engine_core.get_output()
    assert one.pooling_output == [0.5]


def test_observing_twice_reads_once():
    running = engine([output(multimodal_output={"hidden": 1})])
    seen = payloads.observe(running)
    assert payloads.observe(running) is seen
    running.engine_core.get_output()
    assert seen.payloads == {"a": {"hidden": [1]}}
