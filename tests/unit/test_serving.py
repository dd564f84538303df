"""The life of a server, with real processes: a small server that fails in the ways that vLLM was seen to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from npu_upgrade.errors import Blocked
from npu_upgrade.gates.serving.preflight import check_port, leftovers
from npu_upgrade.gates.serving.ready import Wanted, failure
from npu_upgrade.gates.serving.requests import Client
from npu_upgrade.gates.serving.server import HOST, Server, members, start, stop
from npu_upgrade.gates.serving.watch import Watch

FAKE = Path(__file__).with_name("fake_server.py")
BUDGETS = {"start": 60.0, "load": 60.0, "compile": 60.0, "capture": 60.0}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


@pytest.fixture
def served(tmp_path: Path) -> Iterator:
    running: list[Server] = []

    def serve(fault: str) -> Server:
        argv = [sys.executable, str(FAKE), fault]
        running.append(start(argv, dict(os.environ), port=free_port(), log=tmp_path / "log", cwd=tmp_path))
        return running[-1]

    yield serve
    for one in running:
        stop(one, 5)


def judged(server: Server, still: float = 30.0, budgets: dict[str, float] = BUDGETS) -> str:
    watch = Watch(server.log, server.group, budgets, still)
    return failure(server, Client(server.url, 20), watch, Wanted(quiet=1.5))


def test_a_server_that_serves(served) -> None:
    server = served("none")
    assert judged(server) == ""
    assert [one.run for one in leftovers()].count(server.name) == 2
    assert stop(server) == []
    assert members(server.group) == []


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("early", "ended before it served (exit code 0)"),
        ("wrong-name", "another server answers on its port: it serves other"),
        ("die-1", "ended in generation 1 of 3 (exit code 0)"),
        ("die-2", "ended in generation 2 of 3 (exit code 0)"),
        ("error", "generation 1 of 3 was answered with 500"),
        ("empty", "generation 1 of 3 is empty"),
        ("uncounted", "24 tokens were answered, 0 counted"),
        ("late", "ended after it had served (exit code 0)"),
        ("engine-late", "processes of the server ended after it had served"),
    ],
)
def test_every_fault_is_named_and_nothing_is_left(fault: str, why: str, served) -> None:
    server = served(fault)
    assert why in judged(server)
    stop(server, 5)
    assert members(server.group) == []


def test_a_server_that_stands_still_while_it_loads(served) -> None:
    assert "stands still in phase load" in judged(served("hang"), still=3.0)


def test_a_phase_that_takes_longer_than_its_budget(served) -> None:
    assert "phase load takes longer than its budget" in judged(
        served("hang"), budgets=BUDGETS | {"load": 1.0}
    )


def test_what_ignores_the_end_is_ended_with_its_group(served) -> None:
    server = served("stubborn")
    assert judged(server) == ""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        assert len(stop(server, 2)) == 1
        assert members(server.group) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_port_that_is_taken_blocks_and_names_the_port(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(Blocked, match=f"port {port} of {HOST} is not free"):
            start(["false"], {}, port=port, log=tmp_path / "log", cwd=tmp_path)
    check_port(HOST, free_port())
