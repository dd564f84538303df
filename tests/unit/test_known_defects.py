"""What a failure of an emulated run came of in releases."""

from npu_upgrade.gates.emulation.compare import Compared, not_shown
from npu_upgrade.gates.emulation.known_defects import (
    beside_runners,
    ended_beside,
    ends_beside,
    known_defects,
    met_before,
)
from npu_upgrade.gates.emulation.outcome import Outcome

CACHED = "cached: request 0: payload 'hidden' has shape (29, 128), the reference (157, 128)"


def test_a_failure_is_told_with_what_it_came_of_in_each_release():
    told = met_before("eager", "ar-cached", CACHED)
    assert told.startswith(
        "known of vllm-omni 0.22.0, vllm-omni 0.24.0: vllm-omni makes its prefix cache in "
    )
    assert met_before("eager", "ar", CACHED) == "", "of another scenario it says nothing"
    assert met_before("eager", "ar-cached", "ValueError: a") == ""


def test_a_defect_of_one_tier_is_not_told_of_another():
    stuck = "task updates that never came"
    assert "set_attn_backend" in met_before("graph", "ar", stuck)
    assert met_before("eager", "ar", stuck) == ""


def test_every_defect_is_told_of_the_failure_that_it_was_seen_by():
    for one in known_defects():
        told = met_before(one.tier or "eager", one.scenario or "ar", one.says.replace("\\[", "["))
        assert one.incident in told
        assert one.release in told


def test_where_one_failure_has_several_causes_none_is_told_as_the_only_one():
    told = met_before("graph", "idle-dp", "task updates that never came")
    ours, other = told.index("_dummy_run calls the model itself"), told.index("set_attn_backend")
    assert ours < other, "what was seen in this scenario comes first"
    assert "; or of vllm-omni 0.30.0: " in told


def test_only_what_failed_or_shows_nothing_has_a_cause():
    failed = Outcome("eager", "ar-cached", "FAIL", CACHED, "worker.py:3")
    assert Compared(Outcome("eager", "ar-cached", "PASS", CACHED), None).known == ""
    assert Compared(failed, None).known
    (line,) = not_shown([Compared(failed, failed)])
    assert line.startswith(f"eager ar-cached: LAG, {CACHED}; known of vllm-omni 0.22.0")


def test_a_race_is_behind_a_failure_only_where_its_code_is():
    why = "streamed: request 0: payload 'answer' has shape (38400,), the reference (21120,)"
    has, without = "finished = bool(is_finished or request.is_finished())", "finished = bool(is_finished)"
    assert "sends frames twice" in beside_runners("pipelines", "qwen3-tts", why, lambda path: has)
    assert not ended_beside("pipelines", "qwen3-tts", why, lambda path: has), "the next run may pass"
    assert beside_runners("pipelines", "qwen3-tts", why, lambda path: without) == ""
    assert beside_runners("pipelines", "qwen3-tts", "TypeError: step() takes 2", lambda path: has) == ""
    assert beside_runners("pipelines", "qwen3-omni", why, lambda path: has) == ""


def test_a_run_that_may_end_beside_the_runners_is_told_before_it_runs():
    has = "tensors = {}\ntensors.update({name: value})"
    told = ends_beside("pipelines", "qwen3-omni", lambda path: has)
    assert told.startswith("it may end by a known defect of vllm_omni/model_executor/models/qwen3_omni/")
    why = "E: Assigning / modifying buffers of nn.Module"
    assert beside_runners("pipelines", "qwen3-omni", why, lambda _: has)
    assert ended_beside("pipelines", "qwen3-omni", why, lambda _: has)
    assert not ended_beside("pipelines", "qwen3-omni", why, lambda _: "tensors = {**tensors}")
    assert ends_beside("pipelines", "qwen3-omni", lambda path: "tensors = {**tensors}") == ""
    race = "finished = bool(is_finished or request.is_finished())"
    assert ends_beside("pipelines", "qwen3-tts", lambda path: race) == "", "it may as well pass"


def test_a_failed_run_is_told_with_the_releases_that_pass_it():
    failed = Outcome("graph", "talker", "FAIL", "tokens [1]", "worker.py:3")
    assert Compared(failed, failed).passed_in == "vllm-omni 0.24.0, vllm-omni 0.26.0"
    assert Compared(Outcome("graph", "talker", "PASS"), None).passed_in == ""
    assert Compared(Outcome("graph", "unheard", "FAIL"), None).passed_in == ""
