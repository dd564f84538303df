"""The parts of ``make bench-gates`` that need no vLLM: judging, observers, what is left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import serving_kit as kit

from bench.gates_cases import CASES, Case
from bench.gates_observers import NAMES, Observers
from bench.gates_run import Outcome, _left, faults
from npu_upgrade.gates.serving.server import HOST, choose_port, start, stop
from npu_upgrade.gates.serving.signatures import signatures

RIGHT = Outcome(["FAIL"], "start: it stands still", "port-in-use", 1.0, [], [], 1)
CASE = Case("a fault", ("FAIL",), "port-in-use", "stands still")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"verdicts": ["PASS"]}, "verdict PASS, expected FAIL"),
        ({"verdicts": ["FAIL", "PASS"]}, "verdict PASS"),
        ({"root": None}, "root cause None"),
        ({"root": "UNKNOWN"}, "root cause UNKNOWN"),
        ({"summary": "start: it ended"}, "it says"),
        ({"left": ["VLLM::Worker (7)"]}, "left running"),
        ({"evidence": ["scratch left: 1-x"]}, "evidence"),
    ],
    ids=str,
)
def test_only_what_is_all_right_is_judged_right(changed: dict, why: str) -> None:
    found = faults(CASE, replace(RIGHT, **changed))
    assert (why in found[0]) if why else found == []


def test_the_cases_name_what_there_is() -> None:
    known = {one.id for one in signatures() if not one.wrapper}
    assert {one.root for one in CASES if one.root} <= known | {"UNKNOWN"}
    assert len({one.name for one in CASES}) == len(CASES)
    assert all(re.fullmatch(r"|[a-z-]+@[a-z]+", one.inject) for one in CASES)


@pytest.mark.parametrize(("fault", "ready"), [("none", set(NAMES)), ("error", {"helper", "curl"})])
def test_the_observers_see_what_they_look_at(fault: str, ready: set[str], tmp_path: Path) -> None:
    launch = kit.launch(tmp_path, fault)
    port = choose_port(HOST, None)
    server = start(launch.command(), launch.variables(), port=port, log=tmp_path / "log", cwd=tmp_path)
    observers = Observers(port, server.process.pid)
    observers.start()
    try:
        for thread in observers._threads:
            thread.join(5.0)
    finally:
        stop(server, 5.0)
    assert {name for name, said in observers.stop().items() if said == "ready"} == ready


def test_what_is_left_is_found_by_its_mark_and_ended() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    orphan = subprocess.Popen(command, env=os.environ | {"BENCH_GATES_CASE": "mine"}, start_new_session=True)
    other = subprocess.Popen(command, env=os.environ | {"BENCH_GATES_CASE": "other"}, start_new_session=True)
    try:
        assert [f"({orphan.pid})" in one for one in _left(set(), [], "mine")] == [True]
        assert orphan.wait(10) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
