"""When a run stood still, and what its outcome says then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from npu_upgrade.gates.emulation import standstill
from npu_upgrade.gates.emulation.outcome import FAIL, INCONCLUSIVE, judged
from npu_upgrade.gates.emulation.standstill import Quiet, Watch, quiet

LATE = {"type": "NotServing", "text": "/v1/chat/completions was not answered: timed out"}
EVENTS = [
    {"event": "classes", "process": "1", "worker": "w", "runner": "x.NPUARModelRunner"},
    {"event": "step", "process": "1", "stage": "thinker"},
    {"event": "classes", "process": "2", "worker": "w", "runner": "x.NPUGenerationModelRunner"},
]


@pytest.mark.parametrize(
    ("seconds", "cpu", "stands"),
    [(80, 70, True), (80, 1, False), (80, 10, False), (50, 45, False), (0, 0, False)],
)
def test_a_run_stands_still_that_had_the_processor(seconds, cpu, stands) -> None:
    assert Quiet(seconds, cpu).stands_still is stands


def test_a_request_that_no_stage_takes_up_is_a_failure() -> None:
    state, why = judged({"error": LATE}, EVENTS, Quiet(80, 70))
    assert state == FAIL
    after = "the stage of NPUGenerationModelRunner after it is given nothing to run"
    assert why.endswith(f"goes no further than thinker, and {after}")
    assert judged({"error": LATE}, EVENTS, Quiet(80, 10))[0] == INCONCLUSIVE
    every = [*EVENTS, {"event": "step", "process": "2", "stage": "decoder"}]
    assert judged({"error": LATE}, every, Quiet(80, 70))[0] == INCONCLUSIVE  # all of them ran
    assert judged({"error": LATE}, EVENTS[2:], Quiet(80, 70))[0] == INCONCLUSIVE  # none did


def test_the_longest_time_without_a_line_is_kept(tmp_path: Path, monkeypatch) -> None:
    record, now = tmp_path / "pipelines-a.record", [0.0]
    record.mkdir()
    mine = record / f"{os.getpid()}.jsonl"
    monkeypatch.setattr(standstill.time, "monotonic", lambda: now[0])
    watch = Watch(tmp_path)
    for at, text in ((0, "x"), (5, "x"), (30, "xx"), (95, "xx"), (100, "xxx"), (140, "xxx")):
        now[0] = at
        mine.write_text(text)
        watch.look(["pipelines-a"])
    watch.ended("pipelines-a")
    assert quiet(tmp_path, "pipelines-a").seconds == 65
    assert quiet(tmp_path, "pipelines-b") == Quiet()
