"""The life of a server, with real processes: a small server that fails in the ways that vLLM was seen to."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import serving_kit as kit

from npu_upgrade.gates.serving import gate
from npu_upgrade.gates.serving.device import CPU, Device
from npu_upgrade.gates.serving.gate_file import load
from npu_upgrade.gates.serving.server import (
    HOST,
    TOKEN,
    check_port,
    choose_port,
    engines,
    leftovers,
    members,
    sockets,
    start,
    stop,
)
from npu_upgrade.gates.serving.session import clear_leftovers
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.verdict import Verdict


def processes_of(folder: Path) -> list[psutil.Process]:
    """What still runs of the fake servers that were started in ``folder``."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN) and process.cwd() == str(folder):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.parametrize("load_format", ["dummy", "real"])
def test_a_server_that_serves(load_format: str, tmp_path: Path) -> None:
    served = kit.serve(tmp_path, "none", load_format)
    assert served.verdict is Verdict.PASS, served.summary
    assert kit.states(served)["image"] == "SKIPPED"
    assert ("repeat" in kit.states(served)) == (load_format == "real")
    assert [name for name, _ in served.phases] == ["start", "load"]
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("fault", "check", "why"),
    [
        ("early", "start", "the server ended (exit code 0) before it served"),
        ("wrong-name", "start", "another server answers on its port: it serves other"),
        ("root-cause", "start", "ended (exit code 1)"),
        ("die-1", "generation", "generation 1 of 3: no answer"),
        ("die-2", "generation", "generation 2 of 3: no answer: the server ended (exit code 0)"),
        ("engine-2", "generation", "ended while the server ran"),
        ("halt-1", "generation", "is stopped (SIGSTOP)"),
        ("error", "generation", "generation 1 of 3: no answer: HTTP 500: no"),
        ("no-tokens", "generation", "no token was counted"),
        ("uncounted", "metrics", "40 tokens were answered, 0 counted"),
        ("wrong-weights", "configuration", "it loads 'auto' weights, asked for dummy"),
        ("late", "quiet", "the server ended (exit code 0), after it had served"),
        ("engine-late", "quiet", "ended while the server ran, after it had served"),
    ],
)
def test_every_fault_is_named_and_nothing_is_left(fault: str, check: str, why: str, tmp_path: Path) -> None:
    served = kit.serve(tmp_path, fault, "real" if fault == "uncounted" else "dummy")
    bad = next(one for one in served.checks if one.state == "FAIL")
    assert served.verdict is Verdict.FAIL
    assert bad.name == check
    assert why in bad.why
    assert processes_of(tmp_path) == []


def test_the_root_cause_is_in_the_summary(tmp_path: Path) -> None:
    served = kit.serve(tmp_path, "root-cause")
    assert served.root is not None
    assert served.root["id"] in served.summary
    assert "No available memory" in served.summary


@pytest.mark.parametrize(
    ("fault", "check", "state"),
    [
        ("empty", "generation", "FAIL"),
        ("one-token", "generation", "FAIL"),
        ("no-reason", "generation", "FAIL"),
        ("one-answer", "variety", "INCONCLUSIVE"),
        ("unsteady", "repeat", "INCONCLUSIVE"),
        ("no-template", "chat", "SKIPPED"),
        ("image", "image", "PASS"),
        ("image-ignored", "image", "FAIL"),
        ("image-probabilities", "image", "INCONCLUSIVE"),
    ],
)
def test_what_real_weights_are_judged_by(fault: str, check: str, state: str, tmp_path: Path) -> None:
    assert kit.states(kit.serve(tmp_path, fault, "real", quiet=0.2))[check] == state


@pytest.mark.parametrize(
    "fault", ["empty", "one-token", "no-reason", "one-answer", "unsteady", "image-ignored"]
)
def test_dummy_weights_only_have_to_answer(fault: str, tmp_path: Path) -> None:
    served = kit.serve(tmp_path, fault, "dummy", quiet=0.2)
    assert served.verdict is Verdict.PASS, served.summary


def test_a_server_that_stands_still_while_it_loads(tmp_path: Path) -> None:
    served = kit.serve(tmp_path, "hang", still=8.0)
    assert served.verdict is Verdict.FAIL
    assert "stands still in phase load" in served.summary


def test_an_engine_that_failed_and_goes_on_working_is_not_waited_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("npu_upgrade.gates.serving.watch._DIES", 1.0)
    served = kit.serve(tmp_path, "dying", still=20.0)
    assert served.verdict is Verdict.FAIL
    assert "its engine failed, and 1 s later the server has not ended" in served.summary


def test_weights_that_come_slowly_from_a_far_disk_are_no_standstill(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("npu_upgrade.gates.serving.watch._SAMPLE", 0.5)
    served = kit.serve(tmp_path, "far-disk", "dummy", still=2.0, quiet=0.2)
    assert served.verdict is Verdict.PASS, served.summary


def test_what_an_engine_forked_is_no_engine(tmp_path: Path) -> None:
    engine = """
import os, subprocess, sys, time
if sys.argv[-1] == "engine":
    os.fork()
    print("there", flush=True)
else:
    subprocess.Popen(["VLLM::Worker_TP0", "-c", sys.argv[1], "", "engine"], executable=sys.executable)
time.sleep(60)
"""
    worker = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"]
    command = [*worker, sys.executable, "-c", engine, engine]
    log = tmp_path / "log"
    server = start(command, os.environ, port=choose_port(HOST, None), log=log, cwd=tmp_path)
    try:
        while log.read_text().count("there") < 2:
            time.sleep(0.1)
        parents = {one.pid: one.ppid() for one in members(server) if "VLLM::" in one.cmdline()[0]}
        assert len(parents) == 2
        assert set(parents) & engines(server) == set(parents.values()) & set(parents)
    finally:
        stop(server, 0.2)


def test_one_that_works_on_past_its_budget_is_not_judged(tmp_path: Path) -> None:
    served = kit.serve(tmp_path, "busy", budgets=kit.BUDGETS | {"load": 7.0}, still=20.0)
    assert served.verdict is Verdict.INCONCLUSIVE
    assert "phase load takes longer than its budget of 7 s" in served.summary
    assert processes_of(tmp_path) == []


def test_a_log_without_end_is_a_fault(tmp_path: Path) -> None:
    served = kit.serve(tmp_path, "flood", longest_log=8 << 20)
    assert "floods its log" in served.summary
    served.log.unlink()


def test_stages_of_vllm_omni_are_asked_chats_and_counted_together(tmp_path: Path) -> None:
    launch = kit.launch(tmp_path, "none", omni=True)
    options = gate.Options(quiet=1.0, budgets=kit.BUDGETS, answer=20.0, patience=5.0)
    served = gate.judge(launch, Device(CPU), options, tmp_path / "log")
    assert served.verdict is Verdict.PASS, served.checks
    assert {one.path for one in served.exchanges} == {"/v1/chat/completions"}
    assert kit.states(served)["metrics"] == "PASS"


def test_what_a_server_says_while_it_is_ended_is_no_root_cause(tmp_path: Path) -> None:
    served = kit.serve(tmp_path, "loud-end")
    assert "LookupError" in served.log.read_text()
    assert served.verdict is Verdict.FAIL
    assert served.root is None


def test_what_ignores_the_end_is_ended_and_said(tmp_path: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        served = kit.serve(tmp_path, "stubborn", "dummy", patience=2.0)
        assert kit.states(served)["teardown"] == "INCONCLUSIVE"
        assert processes_of(tmp_path) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_process_that_left_the_group_is_found_by_its_token(tmp_path: Path) -> None:
    kit.serve(tmp_path, "escaped", "dummy", patience=2.0)
    assert processes_of(tmp_path) == []


def test_an_interruption_ends_the_server_and_is_said(tmp_path: Path) -> None:
    # what a shell starts in the background ignores interrupts
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        served = kit.serve(tmp_path, "hang")
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert served.interrupted
    assert served.verdict is Verdict.INCONCLUSIVE
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("interrupted", "ready", "expected"), [(True, None, 5.0), (True, 9.0, 30.0), (False, None, 30.0)]
)
def test_somebody_who_interrupts_a_start_does_not_wait_long(
    interrupted: bool, ready: float | None, expected: float, tmp_path: Path
) -> None:
    served = gate.Served(kit.launch(tmp_path, "none"), Device(CPU), tmp_path / "log", 1, "")
    served.interrupted, served.ready_seconds = interrupted, ready
    assert gate._patience(gate.Options(), served) == expected


def test_what_a_killed_gate_left_is_found_and_ended(tmp_path: Path) -> None:
    killed = f"""
import sys; sys.path[:0] = {sys.path!r}
import os, pathlib, serving_kit as kit
from npu_upgrade.gates.serving.server import start
one = kit.launch(pathlib.Path({str(tmp_path)!r}), "none")
start(one.command(), one.variables(), port={free_port()}, log=one.cwd / "log", cwd=one.cwd)
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", killed], cwd=tmp_path)
    deadline = time.monotonic() + 20
    while len(processes_of(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert {one.pid for one in leftovers()} >= {one.pid for one in processes_of(tmp_path)}
    clear_leftovers()
    assert processes_of(tmp_path) == []


def test_a_server_whose_gate_lives_is_no_leftover(tmp_path: Path) -> None:
    one = kit.launch(tmp_path, "none")
    server = start(one.command(), one.variables(), port=free_port(), log=tmp_path / "log", cwd=tmp_path)
    try:
        assert server.name not in {left.run for left in leftovers()}
    finally:
        stop(server, 5)
    assert members(server) == []


def test_ending_one_server_leaves_another_and_whoever_else_serves(tmp_path: Path) -> None:
    other = [sys.executable, "-c", "import time; time.sleep(60)  # vllm serve of somebody else"]
    with subprocess.Popen(other, env={**os.environ, "VLLM_HOST_IP": "127.0.0.1"}) as somebody:
        one, two = (
            start(made.command(), made.variables(), port=free_port(), log=made.cwd / "log", cwd=made.cwd)
            for made in (kit.launch(below(tmp_path / name), "none") for name in ("one", "two"))
        )
        try:
            assert somebody.pid not in {left.pid for left in leftovers()}
            stop(one, 5)
            assert (members(one), two.process.poll(), somebody.poll()) == ([], None, None)
        finally:
            stop(one, 5)
            stop(two, 5)
            somebody.kill()


def below(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_what_another_container_runs_is_no_leftover(tmp_path: Path) -> None:
    inside = ["unshare", "-rpf", "--kill-child", "env", f"{TOKEN}=gate:1:1.0", "sleep", "60"]
    if not shutil.which("unshare") or subprocess.run([*inside[:3], "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no namespace of processes")
    with subprocess.Popen(inside) as other:
        try:
            deadline = time.monotonic() + 10
            while not (there := psutil.Process(other.pid).children()) and time.monotonic() < deadline:
                time.sleep(0.05)
            # A process has its new name before its environment can be read.
            while TOKEN not in there[0].environ() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert there[0].environ()[TOKEN] == "gate:1:1.0"
            assert there[0].pid not in {one.pid for one in leftovers()}
        finally:
            other.kill()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


def test_sockets_of_a_killed_engine_are_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with sockets({"A": "b"}) as environment:
        place = Path(environment["VLLM_RPC_BASE_PATH"])
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(place / "00d1f291-98a0-476b-ad12-c2c155f2cc7c"))
    assert environment["A"] == "b"
    assert not place.exists()
    with sockets({"VLLM_RPC_BASE_PATH": "/mine"}) as environment:
        assert environment == {"VLLM_RPC_BASE_PATH": "/mine"}
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/long" * 15)
    with sockets({}) as environment:
        assert not environment


def test_a_port_that_is_taken_blocks_and_names_the_port(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(Blocked, match=f"port {port} of {HOST} is not free"):
            start(["false"], {}, port=port, log=tmp_path / "log", cwd=tmp_path)
    check_port(HOST, free_port())


def test_a_gate_file_expects_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text("""
requests:
  - {name: a, chat: hello, weights: any, expect: {sequence: ["</think>", "<recaption>"], twice: same}}
  - {name: b, chat: hello, expect: {same_as: a, least_tokens: 8, finish_reason: length}}
  - {name: c, completion: other, expect: {differs_from: a, matches: "<think>[0-9]+"}}
  - {name: wrong, chat: hello, expect: {sequence: ["<recaption>", "</think>"]}}
  - {name: sound, chat: hello, expect: {audio: 0.1}}
  - {name: seen, chat: hello, image: squares-3, expect: {not_matches: think}}
""")
    served = kit.serve(tmp_path, "none", "real", requests=load(path), quiet=0.2)
    found = {name.partition(":")[2]: state for name, state in kit.states(served).items() if ":" in name}
    assert found == {"a": "PASS", "b": "PASS", "c": "PASS", "wrong": "FAIL", "sound": "FAIL", "seen": "FAIL"}
    dummy = kit.states(kit.serve(tmp_path, "none", "dummy", requests=load(path), quiet=0.2))
    assert (dummy["semantic:a"], dummy["semantic:b"]) == ("PASS", "SKIPPED")
