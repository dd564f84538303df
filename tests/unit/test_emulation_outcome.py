"""What a scenario's result files say, and what the matched old pair makes of it."""

import json

import pytest

from npu_upgrade.gates.emulation.compare import Compared, not_shown, tiers, verdict
from npu_upgrade.gates.emulation.outcome import Outcome, judged, read_outcome
from npu_upgrade.ground.verdict import Verdict

ERROR = {"type": "TypeError", "text": "step() got an unexpected keyword 'x'", "where": "runner.py:7 in step"}


def test_a_result_without_an_error_or_a_wrong_probe_passes():
    result = {"classes": {"runner": "A", "expected_runner": "A"}, "probes": [{"name": "batch 1", "why": ""}]}
    assert judged(result, []) == ("PASS", "")


def test_an_error_of_the_code_under_test_fails():
    state, why = judged({"error": ERROR}, [])
    assert state == "FAIL"
    assert why == "TypeError: step() got an unexpected keyword 'x'"


def test_another_runner_than_expected_fails_though_its_tokens_are_right():
    result = {"classes": {"runner": "plain", "expected_runner": "omni"}, "probes": [{"name": "p", "why": ""}]}
    assert judged(result, []) == ("FAIL", "the runner that ran is plain, expected omni")


def test_wrong_tokens_fail_and_name_the_probe():
    probes = [{"name": "batch 1", "why": ""}, {"name": "batch 4", "why": "request 2: tokens [1]"}]
    assert judged({"probes": probes}, []) == ("FAIL", "batch 4: request 2: tokens [1]")


def test_a_missing_reference_is_inconclusive_and_named_once():
    missing = {"event": "missing", "name": "npu::npu_dynamic_quant"}
    state, why = judged({"error": ERROR | {"type": "NotImplementedError"}}, [missing, missing])
    assert (state, why) == ("INCONCLUSIVE", "no reference for npu::npu_dynamic_quant")


def test_a_missing_reference_that_the_code_works_around_is_no_obstacle():
    assert judged({"probes": []}, [{"event": "missing", "name": "npu::x"}]) == ("PASS", "")


@pytest.mark.parametrize(
    ("error", "events"),
    [
        (ERROR | {"type": "EmulatorFault"}, []),
        (ERROR | {"inside": True}, []),
        (ERROR, [{"event": "fault", "name": "npu::x"}]),
        ({"type": "Ended", "text": "the process ended with status -11", "late": False}, []),
    ],
)
def test_a_fault_of_the_emulator_never_reads_as_a_failure(error, events):
    assert judged({"error": error}, events)[0] == "INCONCLUSIVE"


def test_a_wait_of_the_release_that_came_to_its_end_may_be_the_machine() -> None:
    state, why = judged({"error": {"type": "TimeoutError", "text": ""}}, [])
    assert state == "INCONCLUSIVE"
    assert why.startswith("TimeoutError timed out; a request that waits for ever, or a machine with too much")
    assert judged({"error": {"type": "ValueError", "text": "no"}}, [])[0] == "FAIL"


def test_a_request_that_ran_out_of_time_is_no_fault_of_the_emulator():
    error = {"type": "NotServing", "text": "/v1/x was not answered: timed out", "inside": True}
    state, why = judged({"error": error}, [])
    assert state == "INCONCLUSIVE"
    assert why.startswith("/v1/x was not answered: timed out; a request that waits for ever")


NOT_SERVING = {
    "type": "NotServing",
    "text": "the server ended with status 1 before it served",
    "inside": True,
}
TRACEBACK = """INFO 11-22 05:05:57 [__init__.py:238] Platform plugin ascend is activated
Traceback (most recent call last):
  File "<frozen runpy>", line 189, in _run_module_as_main
  File "/cache/{place}", line 20, in <module>
    {source}
{error}
"""


@pytest.mark.parametrize(
    ("place", "error", "state"),
    [
        ("vllm_omni-1/vllm_omni/entrypoints/x.py", "ImportError: cannot import name 'a' from 'b'", "FAIL"),
        ("vllm_omni-1/vllm_omni/entrypoints/x.py", "TypeError: f() got an unexpected keyword 'x'", "FAIL"),
        ("site-packages/npu_emulator/x.py", "ImportError: cannot import name 'a' from 'b'", "INCONCLUSIVE"),
        ("vllm_omni-1/vllm_omni/entrypoints/x.py", "RuntimeError: device is gone", "INCONCLUSIVE"),
    ],
)
def test_a_server_that_ended_is_judged_by_its_own_error(tmp_path, place, error, state):
    (tmp_path / "serve-x.json").write_text(json.dumps({"error": NOT_SERVING}))
    (tmp_path / "serve-x.log").write_text(
        TRACEBACK.format(place=place, source="from b import a", error=error)
    )
    found = read_outcome(tmp_path, "serve", "x")
    assert found.state == state
    if state == "FAIL":
        assert found.why.startswith(error)
        assert found.where == f"/cache/{place}:20 in <module>"


def test_a_server_that_ended_without_a_word_is_not_judged(tmp_path):
    (tmp_path / "serve-x.json").write_text(json.dumps({"error": NOT_SERVING}))
    assert read_outcome(tmp_path, "serve", "x").state == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("kind", "text", "lacks"),
    [
        ("OSError", "libcudart.so.12: cannot open shared object file: No such file", "libcudart.so.12"),
        (
            "RuntimeError",
            "Could not load libtorchcodec. Likely causes: FFmpeg is not installed",
            "libtorchcodec",
        ),
        ("ImportError", "/env/torchvision/_C.so: undefined symbol: _ZN3c10", "_C.so"),
        ("ModuleNotFoundError", "No module named 'soundfile'", "soundfile"),
    ],
)
def test_what_the_environment_lacks_is_no_failure_of_the_pair(kind, text, lacks):
    state, why = judged({"error": ERROR | {"type": kind, "text": text}}, [])
    assert state == "INCONCLUSIVE"
    assert why.startswith(f"this environment lacks {lacks}: ")


@pytest.mark.parametrize("name", ["vllm_omni.gone", "transformers.models.gone", "vllm_ascend"])
def test_a_module_that_moved_is_a_failure(name):
    error = ERROR | {"type": "ModuleNotFoundError", "text": f"No module named '{name}'"}
    assert judged({"error": error}, [])[0] == "FAIL"


def test_a_call_outside_of_documented_limits_fails_though_the_emulator_raised_it():
    limit = {"event": "limit", "name": "npu::x", "text": "x: gamma must have 4 columns"}
    state, why = judged({"error": ERROR | {"type": "OperatorLimit", "inside": True}}, [limit])
    assert state == "FAIL"
    assert why == "outside of an operator's documented limits: x: gamma must have 4 columns"


@pytest.mark.parametrize(
    ("why", "found"),
    [
        ("", ("PASS", "")),
        ("is 3 away", ("FAIL", "npu.turned, in the place of vllm_omni.model:turned, is 3 away")),
    ],
)
def test_a_replacement_that_computes_something_else_fails_though_every_answer_is_right(why, found):
    same = {"event": "replaced", "name": "vllm_omni.model:kept", "by": "npu.kept", "why": ""}
    other = {"event": "replaced", "name": "vllm_omni.model:turned", "by": "npu.turned", "why": why}
    assert judged({"probes": [{"name": "speech", "why": ""}]}, [same, other]) == found


def test_a_function_that_the_emulated_cann_lacks_is_named():
    text = "init failed, error is Failed to find function aclrtX\n[ERROR] ERR00008 PTA resource not found"
    assert judged({"error": ERROR | {"text": text}}, []) == (
        "INCONCLUSIVE",
        "the emulated CANN has no aclrtX",
    )


def test_a_graph_that_would_not_finish_fails_wherever_its_results_are_read():
    text = "ACL graph: a replay waits for 2 of 2 task updates that never came"
    assert judged({"error": ERROR | {"text": text, "inside": True}}, [])[0] == "FAIL"


def test_a_scenario_that_hangs_fails():
    error = {"type": "Ended", "text": "no result after 240 s", "late": True, "idle": True}
    assert judged({"error": error}, []) == ("FAIL", "Ended: no result after 240 s")


def test_a_slow_machine_does_not_fail():
    error = {"type": "Ended", "text": "no result after 240 s", "late": True, "idle": False}
    assert judged({"error": error}, [])[0] == "INCONCLUSIVE"


def test_what_a_release_does_not_have_is_absent():
    assert judged({"absent": "no async_chunk"}, []) == ("ABSENT", "no async_chunk")


def test_outcomes_are_read_with_the_events_of_all_processes(tmp_path):
    (tmp_path / "graph-ar.json").write_text(json.dumps({"error": ERROR, "lines": {"a.py": [1]}}))
    record = tmp_path / "graph-ar.record"
    record.mkdir()
    (record / "12.jsonl").write_text('{"event": "missing", "name": "npu::y"}\n{"event": "mi')
    outcome = read_outcome(tmp_path, "graph", "ar")
    assert (outcome.state, outcome.why) == ("INCONCLUSIVE", "no reference for npu::y")
    assert outcome.lines == {"a.py": [1]}
    assert read_outcome(tmp_path, "eager", "ar").state == "NOT REACHED"


def _outcome(state, why="", tier="eager", scenario="ar", where=""):
    return Outcome(tier, scenario, state, why, where)


def _failed(package: str, why: str = "KeyError: 12", line: int = 3, function: str = "step") -> Outcome:
    place = f"/cache/packages/vllm_omni-{package * 16}/vllm_omni/runner.py:{line} in {function}"
    return _outcome("FAIL", f"{why} ({place})", where=place)


def test_a_failure_both_pairs_have_is_lag_fails_nothing_and_is_told():
    both = [
        Compared(_failed("a"), _failed("b", "KeyError: 7", 4)),
        Compared(_outcome("PASS", tier="import"), None),
    ]
    assert both[0].state == "LAG"
    assert verdict(both) is Verdict.PASS
    assert [one.partition(",")[0] for one in not_shown(both)] == ["eager ar: LAG"]


@pytest.mark.parametrize(
    "before",
    [
        None,
        _outcome("PASS"),
        _outcome("ABSENT"),
        _outcome("INCONCLUSIVE", "y"),
        _outcome("NOT REACHED", "y"),
        _failed("b", "TypeError: step() takes 2"),
        _failed("b", function="other"),
    ],
)
def test_any_other_old_outcome_excuses_nothing(before):
    both = [Compared(_failed("a"), before)]
    assert verdict(both) is Verdict.FAIL
    assert not not_shown(both)


def test_what_was_not_reached_or_never_ran_is_not_a_pass():
    for state in ("NOT REACHED", "ABSENT"):
        assert verdict([Compared(_outcome(state), None)]) is Verdict.INCONCLUSIVE
    assert verdict([]) is Verdict.INCONCLUSIVE


def test_a_tier_is_as_good_as_its_worst_scenario():
    outcomes = [_outcome("PASS"), _outcome("FAIL", "x", scenario="b"), _outcome("PASS", tier="graph")]
    assert tiers([Compared(one, None) for one in outcomes]) == {"eager": "FAIL", "graph": "PASS"}


def test_a_scenario_that_a_release_has_not_got_hides_nothing_that_passed():
    outcomes = [_outcome("ABSENT"), _outcome("PASS", scenario="b"), _outcome("ABSENT", tier="graph")]
    assert tiers([Compared(one, None) for one in outcomes]) == {"eager": "PASS", "graph": "ABSENT"}


@pytest.mark.parametrize(
    ("old", "state"),
    [
        ("streamed: request 0: payload 'answer' has shape (38400,), the reference (21120,)", "LAG"),
        ("streamed: request 0: payload 'answer' is 0.5 away from the reference", "FAIL"),
        ("streamed: request 0: no payload 'answer'", "FAIL"),
    ],
)
def test_an_answer_that_ends_elsewhere_from_run_to_run_is_the_old_pairs_too(old: str, state: str) -> None:
    why = "two at once: request 1: payload 'answer' has shape (21120,), the reference (38400,)"
    new = Outcome("pipelines", "qwen3-tts", "FAIL", why)
    assert Compared(new, Outcome("pipelines", "qwen3-tts", "FAIL", old)).state == state
