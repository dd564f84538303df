"""The parts of ``make bench-gates`` that need no vLLM: damage, judging, observers, what is left."""

from __future__ import annotations

import json
import os
import re
import stat
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import serving_kit as kit

from bench import gates_damage
from bench.gates import _report
from bench.gates_cases import CASES, Case
from bench.gates_cost import Cost
from bench.gates_judge import faults
from bench.gates_observers import NAMES, Observers
from bench.gates_run import Outcome, _left
from npu_upgrade.gates.serving.server import HOST, choose_port, start, stop
from npu_upgrade.gates.serving.signatures import signatures

RIGHT = Outcome(["FAIL"], "start: it stands still", "port-in-use", 1.0, [], [], 1)
CASE = Case("a fault", ("FAIL",), "port-in-use", "stands still")


def safetensors(path: Path, tensors: dict[str, bytes]) -> None:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, value in tensors.items():
        place = [len(data), len(data) + len(value)]
        header[name] = {"dtype": "F32", "shape": [len(value) // 8, 2], "data_offsets": place}
        data += value
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def tensors_of(path: Path) -> dict[str, bytes]:
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    places = {name: one["data_offsets"] for name, one in header.items() if name != "__metadata__"}
    return {name: raw[8 + length + first : 8 + length + last] for name, (first, last) in places.items()}


@pytest.fixture
def sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A sound checkpoint in place of the one that torch makes; its tensors."""
    folder = tmp_path / "sound"
    folder.mkdir()
    tensors = {name: os.urandom(128) for name in ("a", "b", "c", "language_projection.weight")}
    tensors["lm_head.weight"] = bytes(range(128))
    safetensors(folder / gates_damage.WEIGHTS, tensors)
    (folder / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    monkeypatch.setattr(gates_damage, "tiny", lambda name: folder)
    return tensors


def damaged(name: str, folder: Path) -> Path:
    return gates_damage.damaged(name, folder)


def test_two_shards_hold_what_one_file_held(sound, tmp_path: Path) -> None:
    folder = damaged("missing-shard", tmp_path)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    there = tensors_of(folder / "model-00001-of-00002.safetensors")
    assert set(index) == set(sound)
    assert there == {name: sound[name] for name in there}
    assert {name for name, shard in index.items() if not (folder / shard).exists()} == set(sound) - set(there)


def test_every_damage_does_what_it_says(sound, tmp_path: Path) -> None:
    shard = "model-00002-of-00002.safetensors"
    assert (damaged("corrupt-shard", tmp_path) / shard).read_bytes()[:64] == b"\xff" * 64
    whole = damaged("missing-shard", tmp_path) / "model-00001-of-00002.safetensors"
    cut = damaged("cut-shard", tmp_path)
    assert (cut / whole.name).read_bytes() == whole.read_bytes()
    assert len(set(map(len, tensors_of(cut / shard).values()))) > 1
    assert "NewestForCausalLM" in (damaged("unknown-architecture", tmp_path) / "config.json").read_text()
    assert stat.S_ISFIFO((damaged("endless-read", tmp_path) / gates_damage.WEIGHTS).stat().st_mode)
    other = tensors_of(damaged("other-weights", tmp_path) / gates_damage.WEIGHTS)
    assert {name for name in sound if other[name] != sound[name]} == {"lm_head.weight"}
    assert sorted(other["lm_head.weight"]) == sorted(sound["lm_head.weight"])
    blind = tensors_of(damaged("blind", tmp_path) / gates_damage.WEIGHTS)
    assert blind == sound | {"language_projection.weight": bytes(128)}


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


def test_a_check_that_was_skipped_is_not_one_that_passed() -> None:
    case = replace(CASE, passed=("image",))
    assert faults(case, replace(RIGHT, passed=["generation", "image"])) == []
    assert faults(case, replace(RIGHT, passed=["generation"])) == ["check image did not pass"]


def test_a_root_cause_where_the_log_has_none_is_wrong() -> None:
    assert faults(replace(CASE, root=None), RIGHT) == ["root cause port-in-use, where the log has none"]


def test_the_cases_name_what_there_is() -> None:
    known = {one.id for one in signatures() if not one.wrapper}
    assert {one.root for one in CASES if one.root} <= known | {"UNKNOWN"}
    assert len({one.name for one in CASES}) == len(CASES) >= 25
    assert all(re.fullmatch(r"|[a-z-]+@[a-z]+", one.inject) for one in CASES)


def test_the_summary_counts_what_each_said(capsys: pytest.CaptureFixture[str]) -> None:
    said = replace(RIGHT, observers={"helper": "ready", "bench": "not ready", "curl": "ready"})
    assert _report([(CASE, said)], Cost([10.0, 20.0, 30.0], [25.0, 26.0, 27.0])) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert "right=1" in line
    assert "bench=1/1 curl=0/1 helper=0/1" in line
    assert "overhead=5.0%" in line
    assert _report([(CASE, said)], Cost([10.0], [17.0])) == 1
    assert _report([(CASE, replace(said, left=["x"]))], None) == 1


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
