"""What a step costs, counted on the emulated device: where the host waits, operators, graphs."""

import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

WAITS = {
    "item": (lambda one, mask, cpu: one[0].item(), "value"),
    "condition": (lambda one, mask, cpu: bool(mask.any()), "value"),
    "equal": (lambda one, mask, cpu: torch.equal(one, one), "value"),
    "tolist": (lambda one, mask, cpu: one.tolist(), "copy to host"),
    "copy_": (lambda one, mask, cpu: cpu.copy_(one), "copy to host"),
    "asynchronous copy": (
        lambda one, mask, cpu: one.to("cpu", non_blocking=True),
        "copy to host, not waited for",
    ),
    "to the device": (lambda one, mask, cpu: cpu.npu(), "copy from host"),
    "asynchronous to the device": (lambda one, mask, cpu: cpu.to("npu", non_blocking=True), None),
    "mask": (lambda one, mask, cpu: one[mask], "shape"),
    "nonzero": (lambda one, mask, cpu: mask.nonzero(), "shape"),
    "index": (lambda one, mask, cpu: one[one], None),
    "computation": (lambda one, mask, cpu: one.float() + 1, None),
    "device": (lambda one, mask, cpu: torch.npu.synchronize(), "synchronise"),
    "stream": (lambda one, mask, cpu: torch.npu.current_stream().synchronize(), "synchronise"),
}


@pytest.mark.parametrize(("does", "expected"), WAITS.values(), ids=WAITS)
def test_where_the_host_waits(does, expected):
    from npu_emulator.kernels import native

    one, cpu, told = torch.arange(4).npu(), torch.arange(4), []
    native.on_wait(told.append)
    native.stepping(True)
    try:
        does(one, one > 1, cpu)
    finally:
        native.stepping(False)
    does(one, one > 1, cpu)  # outside of a step nothing is told
    assert told == ([expected] if expected else [])


def test_a_step_of_a_worker_is_written_down(tmp_path, monkeypatch):
    from npu_emulator.dry_run import costs

    monkeypatch.setenv("NPU_EMULATOR_RECORD", str(tmp_path))

    class Worker:
        rank = 1
        model_runner = None
        vllm_config = SimpleNamespace(model_config=SimpleNamespace(model_stage="talker"))

        def execute_model(self, asked):
            return torch.arange(4).npu().sum()

        def sample_tokens(self, grammar):
            return torch.ones(2).npu().max().item()

    worker = Worker()
    costs.observe(worker)
    for tokens, new in (({"a": 3, "b": 1}, ["a"]), ({"a": 1}, []), ({}, [])):
        worker.execute_model(SimpleNamespace(num_scheduled_tokens=tokens, scheduled_new_reqs=new))
        assert worker.sample_tokens(None) == 1
    (file,) = tmp_path.glob("*.jsonl")
    steps = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [(one["stage"], one["kind"], one["number"]) for one in steps] == [
        *[("talker, rank 1", "prompt of 2", 0)] * 2,
        *[("talker, rank 1", "decode of 1", 1)] * 2,
    ]
    assert steps[0]["operators"]["aten::sum"] == 1
    assert steps[1]["waits"] == {
        "copy from host in no function of the projects": 1, "value in no function of the projects": 1,
    }  # fmt: skip
