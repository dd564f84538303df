"""A served dry run: the server's process group, its identity, and what its processes tell."""

from __future__ import annotations

import json
import logging
import os
import sys
import time

import pytest

from npu_emulator import record
from npu_emulator.dry_run import observe, server

SERVER = """
import http.server, json, os, signal, sys, time
port, name, leaves = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "leaves"
if leaves and os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def answer(self, body):
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def do_GET(self):
        self.answer(json.dumps({"data": [{"id": name}]}).encode() if "models" in self.path else b"")
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("refuse"):
            self.send_response(400); self.end_headers(); self.wfile.write(b"no such thing"); return
        done = b"" if asked.get("cut") else b"data: [DONE]\\n\\n"
        events = b'data: {"n": 1}\\n\\ndata: {"n": 2}\\n\\n' + done
        self.answer(events if asked.get("stream") else b'{"n": 3}')
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(record.FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def running():
    started = []

    def start(name="mine", served="mine", leaves=""):
        port = server.free_port()
        command = [sys.executable, "-c", SERVER, str(port), served, leaves]
        started.append(server.start(command, dict(os.environ), port, name))
        return started[-1]

    yield start
    for one in started:
        server.stop(one)


def test_a_server_answers_and_ends_with_an_empty_group(running, folder):
    one = running()
    assert server.post(one, "/v1/completions", {})["n"] == 3
    assert [event["n"] for event in server.stream(one, "/v1/completions", {})] == [1, 2]
    assert json.loads((folder / f"{os.getpid()}.jsonl").read_text())["group"] == one.process.pid
    assert server.stop(one) == ""
    assert server.members(one.process.pid) == []


def test_a_refusal_and_a_cut_stream_are_told(running):
    one = running()
    with pytest.raises(server.NotServing, match="400: no such thing"):
        server.post(one, "/v1/completions", {"refuse": True})
    with pytest.raises(server.NotServing, match=r"without \[DONE\]"):
        list(server.stream(one, "/v1/completions", {"cut": True}))


def test_what_outlives_the_server_is_named_and_ended(running, monkeypatch):
    monkeypatch.setattr(server, "STOP_SECONDS", 1)
    one = running(leaves="leaves")
    time.sleep(0.3)
    assert "1 s after SIGTERM there still are: python" in server.stop(one)
    deadline = time.monotonic() + 5
    while server.members(one.process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.members(one.process.pid) == []


def test_a_server_that_ended_by_itself_did_not_end_well(running):
    one = running()
    one.process.kill()
    one.process.wait()
    assert server.stop(one) == "the server had ended with status -9"


def test_a_server_that_ends_early_or_is_another_one_does_not_serve_and_is_ended(running, folder):
    with pytest.raises(server.NotServing, match="ended with status 3 before it served"):
        server.start([sys.executable, "-c", "exit(3)"], dict(os.environ), server.free_port(), "mine")
    with pytest.raises(server.NotServing, match="another server answers"):
        running(served="somebody else's")
    started = [json.loads(line) for line in (folder / f"{os.getpid()}.jsonl").read_text().splitlines()]
    assert [server.members(one["group"]) for one in started] == [[], []]


def test_engine_arguments_become_options():
    found = server.flags({"max_num_seqs": 4, "enforce_eager": False, "compilation_config": {"a": [1]}})
    assert found == [
        "--max-num-seqs", "4", "--no-enforce-eager", "--compilation-config", '{"a": [1]}',
    ]  # fmt: skip


def test_the_lines_of_all_processes_come_together(folder):
    (folder / "1.jsonl").write_text(json.dumps({"event": "lines", "files": {"a": [3, 1], "b": [7]}}) + "\n")
    assert observe.all_lines({"a": [1, 2]}) == {"a": [1, 2, 3], "b": [7]}


def test_the_first_failure_of_another_process_is_the_reason(folder):
    def failure(at, text):
        return json.dumps({"event": "failure", "time": at, "error": {"text": text}}) + "\n"

    (folder / "1.jsonl").write_text(failure(2.0, "late"))
    (folder / "2.jsonl").write_text(failure(1.0, "first"))
    (folder / f"{os.getpid()}.jsonl").write_text(failure(0.0, "own"))
    assert observe.first_failure() == {"text": "first"}


def test_logged_exceptions_are_recorded(folder):
    observe.failures()
    logger = logging.getLogger("vllm")
    try:
        raise KeyError("request 7")
    except KeyError:
        logger.exception("WorkerProc hit an exception.")
        logger.warning("not an error", exc_info=True)
    lines = [json.loads(line) for line in (folder / f"{os.getpid()}.jsonl").read_text().splitlines()]
    kinds = [(line["event"], line["error"]["type"], line["logged"]) for line in lines]
    assert ("failure", "KeyError", "WorkerProc hit an exception.") in kinds
    assert all(logged != "not an error" for _, _, logged in kinds)
