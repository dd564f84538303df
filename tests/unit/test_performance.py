"""`performance`: what `vllm bench serve` measures of a server, and what stands for nothing."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import serving_kit as kit

from npu_upgrade.gates.performance import Bench, Load

# answers for the fake vllm's `bench serve`: writes what it was asked, or fails
BENCH = """
import json, pathlib, sys, urllib.request
given = dict(zip(sys.argv, sys.argv[1:]))
if "{fault}" == "ends":
    sys.exit("ValueError: the tokenizer is gone")
urllib.request.urlopen(given["--base-url"] + "/health").read()
done = int(given["--num-prompts"]) - (1 if "{fault}" == "loses" else 0)
values = {{"completed": done, "output_throughput": 812.456, "total_token_throughput": 7000}}
values |= {{"median_ttft_ms": 31.25, "median_tpot_ms": 4.5, "asked": sys.argv[1:]}}
pathlib.Path(given["--result-dir"], given["--result-filename"]).write_text(json.dumps(values))
"""


def bench(folder: Path, fault: str = "") -> tuple[Bench, dict[str, str], Any]:
    """A server measured at one and at four requests at once: the bench, its checks, and what served."""
    launch = kit.launch(folder, "none")
    measure = folder / "measure.py"
    measure.write_text(BENCH.format(fault=fault))
    script = folder / "bin/vllm"
    serve = script.read_text().partition("\n")[2]
    own = shlex.join([sys.executable, str(measure)])
    script.write_text(f'#!/bin/sh\n[ "$1" = bench ] && exec {own} "$@"\n{serve}')
    found = Bench(launch, folder, 32, 16, (1, 4))
    served = kit.serve(folder, "none", extra=found.extra)
    return found, kit.states(served), served


def test_each_number_of_requests_at_once_is_measured_with_its_lengths(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # knows nothing of our server
    found, states, _ = bench(tmp_path)
    assert (states["performance:1"], states["performance:4"]) == ("PASS", "PASS")
    assert found.loads == [
        Load(32, 16, 1, 8, 812.46, 7000.0, 31.25, 4.5),
        Load(32, 16, 4, 16, 812.46, 7000.0, 31.25, 4.5),
    ]
    assert found.loads[1].shown == "32+16 tokens, 4 at once: 812.46 tokens/s, first 31.25 ms, each 4.5 ms"
    assert sorted(found.logs()) == ["bench-1.json", "bench-1.log", "bench-4.json", "bench-4.log"]
    asked = (tmp_path / "bench-4.json").read_text()
    assert '"--random-input-len", "32", "--random-output-len", "16"' in asked
    assert '"--max-concurrency", "4"' in asked


@pytest.mark.parametrize(
    ("fault", "why"), [("ends", "the tokenizer is gone"), ("loses", "7 of 8 requests were answered")]
)
def test_what_was_not_measured_has_no_value(tmp_path: Path, fault: str, why: str) -> None:
    found, states, served = bench(tmp_path, fault)
    assert (states["performance:1"], found.loads) == ("FAIL", [])
    assert any(why in one.why for one in served.checks)
