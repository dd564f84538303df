"""What a step costs: the record's lines together, and what of it the new pair has worse."""

from npu_upgrade.gates.emulation import costs
from npu_upgrade.gates.emulation.compare import by_costs
from npu_upgrade.gates.emulation.outcome import Outcome

OWN = "vllm_omni.runner:Runner.sample"
BELOW = "vllm.worker:Worker.step"


def event(number=0, stage="talker", kind="decode of 1", process="7", **more):
    return {"event": "step", "stage": stage, "kind": kind, "number": number, "process": process} | (
        {"operators": {}, "graphs": {}, "waits": {}} | more
    )


def waits(number, place=OWN, kind="value"):
    return costs.Cost("talker", "decode of 1", 8, {}, {}, {f"{kind} in {place}": number})


def test_the_parts_of_a_step_are_one_and_steps_are_a_mean():
    (one,) = costs.read(
        [
            event(0, operators={"aten::add": 4}, graphs={"replayed": 1}),
            event(0, operators={"aten::add": 1, "aten::argmax": 1}, waits={f"value in {OWN}": 1}),
            event(1, operators={"aten::add": 6}, graphs={"replayed": 1}),
            {"event": "end", "calls": {}},
        ]
    )
    assert (one.name, one.steps) == (("talker", "decode of 1"), 2)
    assert one.operators == {"aten::add": 5.5, "aten::argmax": 0.5}
    assert (one.replays, one.waited()) == (1.0, 0.5)


def test_stages_kinds_and_processes_are_apart():
    found = costs.read(
        [event(0), event(0, process="8"), event(1, kind="prompt of 1"), event(1, stage="thinker")]
    )
    assert [(*one.name, one.steps) for one in found] == [
        ("talker", "decode of 1", 2), ("talker", "prompt of 1", 1), ("thinker", "decode of 1", 1),
    ]  # fmt: skip


def test_a_new_wait_of_the_downstream_is_a_finding():
    (why,) = costs.findings([waits(0)], [waits(1)], "vllm_omni")
    assert why == f"talker decode of 1: the host waits, value in {OWN}: 1 a step, the old pair 0"


def test_a_wait_below_a_moved_one_and_a_copy_nobody_waits_for_are_none():
    assert not costs.findings([waits(0)], [waits(1, BELOW)], "vllm_omni")
    assert not costs.findings([waits(1)], [waits(1, "vllm_omni.runner:Runner.other")], "vllm_omni")
    assert not costs.findings([waits(1, BELOW)], [waits(1)], "vllm_omni")
    assert not costs.findings([waits(0)], [waits(1, kind=costs.NOT_WAITED)], "vllm_omni")


def test_a_renamed_function_is_none_where_only_the_projects_below_wait_more():
    old = costs.Cost("t", "decode of 1", 8, {}, {}, {f"value in {OWN}": 1.0})
    new = costs.Cost(
        "t", "decode of 1", 8, {}, {}, {"value in vllm_omni.runner:renamed": 1.0, f"value in {BELOW}": 1.0}
    )
    assert not costs.findings([old], [new], "vllm_omni")


def test_a_lost_graph_is_a_finding_and_only_in_decode():
    old, new = (
        [
            costs.Cost("t", kind, 8, {}, {"replayed": number}, {})
            for kind in ("decode of 1", "decode of 2", "prompt of 1")
        ]
        for number in (2.0, 0.0)
    )
    assert costs.findings(old, new, "vllm_omni") == [
        "t decode of 1, decode of 2: no graph is replayed, the old pair 2 a step"
    ]
    assert not costs.findings(old, old, "vllm_omni")


def test_more_operators_are_told_and_fail_nothing():
    old, new = (
        [costs.Cost("t", "decode of 1", 8, {"aten::add": number, "aten::mul": 1.0}, {}, {})]
        for number in (2.0, 5.0)
    )
    assert not costs.findings(old, new, "vllm_omni")
    (row,) = costs.as_rows(old, new)
    assert (row["operators"], row["waits"]) == ("3 -> 6", "0")
    text = costs.as_text("eager ar", [row])
    assert "decode of 1 of t: aten::add 5 a step, the old pair 2" in text


def test_a_run_that_passes_fails_by_its_costs_unless_the_old_one_did_not_pass():
    old, new = (Outcome("eager", "ar", "PASS", costs=(waits(number),)) for number in (0, 1))
    assert by_costs(old, new, "vllm_omni").state == "FAIL"
    assert by_costs(Outcome("eager", "ar", "INCONCLUSIVE"), new, "vllm_omni") is new
