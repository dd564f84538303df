"""The commands features and capacity over a fake vllm: real processes, evidence, verdicts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import serving_kit
from features_kit import VLLM, checkpoint
from model_kit import shard
from sources_kit import write_tree

from npu_upgrade.checkpoint.likeness import Likeness
from npu_upgrade.checkpoint.weights import read_weights
from npu_upgrade.cli import main as cli
from npu_upgrade.cli.programs import ADAPT, UPGRADE
from npu_upgrade.gates.features import adapter

CONFIG = {
    "num_experts": 8,
    "num_nextn_predict_layers": 1,
    "num_hidden_layers": 1,
    "max_position_embeddings": 262144,
}
WEIGHTS = ("model.layers.0.self_attn.q_proj.weight", "model.layers.1.a")
QUICK = ["--quiet", "1", "--generations", "1", "--still", "30"]
PARALLEL = ["--", "--tensor-parallel-size", "2"]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace, a model and an interpreter whose vllm is the fake one, with sources to read."""
    site = tmp_path / "site"
    files = {
        "vllm/__init__.py": "",
        **VLLM,
        "vllm-0.30.0+cpu.dist-info/METADATA": "Name: vllm\nVersion: 0.30.0+cpu\n",
    }
    write_tree(site, files)
    monkeypatch.setenv("PYTHONPATH", str(site))
    checkpoint(tmp_path / "Tiny", CONFIG, *WEIGHTS)
    serving_kit.installation(tmp_path)
    return tmp_path


def run(
    folder: Path,
    capsys: pytest.CaptureFixture,
    *words: str,
    fault: str = "none",
    program: str = "upgrade.py",
) -> tuple[int, dict[str, Any]]:
    command, *rest = words
    at = rest.index("--") if "--" in rest else len(rest)
    python = folder / "bin" / "python"
    options = [
        "--python",
        str(python),
        "--workspace",
        str(folder),
        "--env",
        f"FAULT={fault}",
        "--keep-pythonpath",
    ]
    argv = [command, str(folder / "Tiny"), *rest[:at], *options, *QUICK, *rest[at:]]
    output = folder / "result.json"
    output.unlink(missing_ok=True)
    names = ADAPT if program == "adapt.py" else UPGRADE
    code = cli.main(program, "", names, [*argv[:1], "--output", str(output), *argv[1:]])
    printed = json.loads(capsys.readouterr().out)
    return code, json.loads(output.read_text("utf-8")) if output.exists() else printed


def statuses(result: dict[str, Any]) -> dict[str, str]:
    return {row["feature"]: row["status"] for row in result["features"]}


def test_the_matrix_of_a_model_that_serves(served: Path, capsys: pytest.CaptureFixture) -> None:
    code, result = run(served, capsys, "features", *PARALLEL)
    assert statuses(result) == {
        "graph": "not applicable",
        "expert_parallel": "verified",
        "flashcomm1": "not applicable",
        "mtp": "verified",
        "multimodal": "not applicable",
        "quantization": "not applicable",
        "lora": "not proven",
    }
    assert code == 4
    kept = json.loads((Path(result["folder"]) / "result.json").read_text("utf-8"))
    assert kept["features"] == result["features"]
    assert (kept["gate"], kept["label"], kept["starts"]) == ("features", "CPU real", 1)
    (evidence,) = [row["evidence"] for row in result["features"] if row["feature"] == "expert_parallel"]
    assert "start-1/server.log:2: (Worker_TP0_EP0 pid=7) one of two ranks" in evidence
    log = Path(result["folder"]) / "start-1" / "server.log"
    assert log.read_text("utf-8").splitlines()[1].startswith("(Worker_TP0_EP0")


def test_with_dummy_weights_no_draft_proves_anything(served: Path, capsys: pytest.CaptureFixture) -> None:
    _, result = run(served, capsys, "features", "--load-format", "dummy", "--only", "mtp")
    assert statuses(result) == {"mtp": "not proven"}
    assert result["label"] == "CPU dummy"


def test_a_feature_that_is_refused_fails_with_the_line_that_says_so(
    served: Path, capsys: pytest.CaptureFixture
) -> None:
    code, result = run(served, capsys, "features", "--only", "mtp", fault="refuse:--speculative-config")
    assert code == 1
    (row,) = result["features"]
    assert row["status"] == "unsupported"
    assert "start-1/server.log:2: ValueError: TinyForCausalLM does not support" in row["evidence"]
    assert sorted(path.name for path in Path(result["folder"]).glob("start-*")) == [
        "start-1",
        "start-2",
    ]


def test_a_model_that_does_not_serve_is_diagnosed_and_passes_nothing(
    served: Path, capsys: pytest.CaptureFixture
) -> None:
    code, result = run(served, capsys, "features", "--only", "mtp", fault="root-cause")
    assert code == 1
    assert [one["step"] for one in result["ladder"]] == ["same", "eager", "dynamo off"]
    assert all(one["state"] == "FAIL" and one["diagnostic"] for one in result["ladder"])
    assert "does not serve, with no feature asked for" in result["summary"]


def test_the_ladder_of_a_serve_that_failed(served: Path, capsys: pytest.CaptureFixture) -> None:
    code, result = run(served, capsys, "serve", "--ladder", fault="needs:--enforce-eager")
    assert code == 1
    assert [(one["step"], one["state"]) for one in result["ladder"]] == [("same", "FAIL"), ("eager", "PASS")]
    assert "graphs" in result["ladder"][-1]["why"]
    folder = Path(result["folder"])
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["ladder-1", "ladder-2"]
    assert (folder / "server.log").is_file()


def test_a_serve_that_passes_has_no_ladder(served: Path, capsys: pytest.CaptureFixture) -> None:
    code, result = run(served, capsys, "serve", "--ladder")
    assert code == 0
    assert "ladder" not in result


def test_two_signals_end_the_server_and_keep_what_was_found(served: Path) -> None:
    program = Path(cli.__file__).parents[2]
    run = "import sys; from npu_upgrade.cli.main import main as run\n"
    run += "sys.exit(run('x', '', ['features'], sys.argv[1:]))"
    words = ["features", str(served / "Tiny"), "--python", str(served / "bin" / "python"), "--only", "mtp"]
    words += ["--workspace", str(served), "--env", "FAULT=hang", "--keep-pythonpath"]
    paths = os.pathsep.join([str(program), os.environ["PYTHONPATH"]])
    with subprocess.Popen(
        [sys.executable, "-c", run, *words],
        env=os.environ | {"PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
    ) as gate:
        assert gate.stderr is not None
        started = next(line for line in gate.stderr if "started Tiny" in line)
        gate.send_signal(signal.SIGTERM)
        gate.send_signal(signal.SIGTERM)
        assert "interrupted" in gate.stderr.read()
        assert gate.wait() == 130
    assert not psutil.pid_exists(int(started.rpartition(" ")[2]))
    (result,) = (served / ".npu-upgrade" / "evidence" / "runs").glob("*/result.json")
    kept = json.loads(result.read_text("utf-8"))
    assert (kept["verdict"], kept["starts"]) == ("INCONCLUSIVE", 1)


def test_capacity_lowers_the_context_to_what_fits(served: Path, capsys: pytest.CaptureFixture) -> None:
    code, result = run(served, capsys, "capacity", "--sequences", "2", "5", fault="room:7000")
    steps = [(one["max_model_len"], one["max_num_seqs"], one["state"]) for one in result["capacity"]]
    assert steps == [(131072, 5, "FAIL"), (6912, 2, "PASS"), (6912, 5, "PASS")]
    assert code == 4
    last = result["capacity"][-1]
    assert (last["theoretical_max_model_len"], last["practical_max_model_len"]) == (7000, 6912)
    assert "5 requests at once, 40 tokens, 5 seen running together" in last["why"]
    assert result["capacity"][0]["root"]["id"] != "UNKNOWN"


@pytest.mark.parametrize(
    ("fault", "state", "said"),
    [
        ("one-by-one", "INCONCLUSIVE", "1 seen running together: the engine was not seen to run all of them"),
        ("read-one-by-one", "PASS", "3 seen running together"),  # by the engine's own count
        ("too-fast", "PASS", "3 requests at once, 576 tokens, 3 seen running together"),
        ("preempting", "INCONCLUSIVE", "3 seen running together, but 1 were preempted"),
        ("broken-stream", "FAIL", "3 of 3 requests at once were not answered: HTTP 500: the engine is gone"),
        ("silent-stream", "FAIL", "3 of 3 answers count no token"),
    ],
)
def test_capacity_is_of_requests_that_run_together(
    served: Path, capsys: pytest.CaptureFixture, fault: str, state: str, said: str
) -> None:
    _, result = run(served, capsys, "capacity", "--length", "64", "--sequences", "3", fault=fault)
    (step,) = result["capacity"]
    assert step["state"] == state
    assert said in step["why"]
    assert state == "PASS" or said in result["summary"]


@pytest.mark.parametrize(("fault", "state"), [("none", "PASS"), ("half-read", "FAIL")])
def test_a_context_may_be_filled(served: Path, capsys: pytest.CaptureFixture, fault: str, state: str) -> None:
    words = ("--length", "640", "--sequences", "2", "3", "--fill")
    _, result = run(served, capsys, "capacity", *words, fault=fault)
    first, *_, last = result["capacity"]
    assert first["state"] == state
    if fault == "none":
        assert [one.get("filled", False) for one in result["capacity"]] == [False, True]
        assert "a request of 640 tokens took" in last["why"]
        assert result["capacity"][-1]["filled_max_model_len"] == 640
        assert "filled 640 tokens" in result["summary"]
    else:
        assert "a request of 640 tokens was counted as 316 and 8" in first["why"]
        assert "filled_max_model_len" not in first


def test_capacity_of_a_model_that_does_not_serve(served: Path, capsys: pytest.CaptureFixture) -> None:
    code, result = run(served, capsys, "capacity", fault="early")
    assert code == 1
    # the most sequences first, then the fewest
    assert [one["state"] for one in result["capacity"]] == ["FAIL", "FAIL", "not tried"]


@pytest.mark.parametrize(
    "words",
    [
        ("capacity", "--sequences", "0"),
        ("capacity", "--length", "-3"),
        ("capacity", "--sequences", "16", "16"),
        ("capacity", "--", "--max-model-len", "9"),
        ("features", "--only", "speed"),
        ("features", "--lora", "nowhere"),
        ("features", "--vllm", "pypi:vllm==0.30.0"),
    ],
)
def test_what_a_user_gets_wrong(served: Path, capsys: pytest.CaptureFixture, words: tuple[str, ...]) -> None:
    code, result = run(served, capsys, *words)
    assert code == 2
    assert result["expected"]


def test_the_sources_of_a_model_are_those_of_its_plan(served: Path, capsys: pytest.CaptureFixture) -> None:
    code, result = run(served, capsys, "features", "--ascend", "pypi:vllm-ascend==0.30.0rc2")
    assert code == 2
    assert "adapt.py plan" in result["try"]
    assert result["try"].endswith("--ascend pypi:vllm-ascend==0.30.0rc2")


def test_probing_needs_sources_and_no_model(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    nothing = ["features", "--probe", "--python", "nowhere/python"]
    assert cli.main("upgrade.py", "", ["features"], nothing) == 3
    assert cli.main("upgrade.py", "", ["features"], ["features"]) == 2
    write_tree(tmp_path, {"vllm/__init__.py": "", **VLLM})
    capsys.readouterr()
    words = ["features", "--probe", "--format", "json", "--vllm", f"dir:{tmp_path}"]
    assert cli.main("upgrade.py", "", ["features"], words) == 0
    found = {one["feature"]: one["exists"] for one in json.loads(capsys.readouterr().out)["features"]}
    assert found["expert_parallel"]
    assert not found["flashcomm1"]


def test_what_an_interpreter_would_serve_is_probed(served: Path, capsys: pytest.CaptureFixture) -> None:
    python = str(served / "bin" / "python")
    assert cli.main("upgrade.py", "", ["features"], ["features", "--probe", "--python", python]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == "5 of 7 features in vllm 0.30.0+cpu"


@pytest.mark.parametrize(
    ("modules", "adapted"),
    [
        (["q_proj", "v_proj", "o_proj", "down_proj"], ["v_proj", "o_proj"]),
        (["qkv_proj", "out"], ["qkv_proj"]),
        (["up_proj", "down_proj"], ["down_proj"]),
        (["q_proj"], []),  # queries and keys alone may change nothing
    ],
)
def test_an_adapter_is_made_that_fits_the_weights(
    modules: list[str], adapted: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    whole = shard({f"layers.0.{name}.weight": (6, 4) for name in modules})
    (folder / "model.safetensors").write_bytes(whole)
    made = adapter.make(folder, tmp_path / "adapter")
    if not adapted:
        assert made is None
        return
    assert made is not None
    tensors = read_weights(made.folder).tensors
    assert {name: one.shape for name, one in tensors.items()} == {
        f"base_model.model.layers.0.{name}.lora_{side}.weight": shape
        for name in adapted
        for side, shape in (("A", (8, 4)), ("B", (6, 8)))
    }
    assert adapter.given(made.folder).arguments() == ("--lora-modules", f"gate-lora={made.folder}")


def test_an_adapter_of_a_model_that_a_plan_explains_is_in_the_words_of_its_family(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    shapes = {"rows.3.look.v_in.weight": (6, 4), "rows.3.look.all.weight": (12, 4), "seeds.weight": (9, 4)}
    (folder / "model.safetensors").write_bytes(shard(shapes))
    own, theirs = "rows.*.look.", "model.layers.*.self_attn."
    like = Likeness(
        "LlamaForCausalLM",
        weights={
            f"{own}v_in.weight": [f"{theirs}v_proj.weight"],
            f"{own}all.weight": [f"{theirs}q_proj.weight", f"{theirs}o_proj.weight"],
        },
        rows={f"{own}all.weight": [4, 8]},
    )
    assert adapter.make(folder, tmp_path / "none") is None
    made = adapter.make(folder, tmp_path / "adapter", like)
    assert made is not None
    stem = "base_model.model.model.layers.3.self_attn"
    shapes = {f"{stem}.{one}.lora_B.weight": (rows, 8) for one, rows in (("v_proj", 6), ("o_proj", 8))}
    found = {name: one.shape for name, one in read_weights(made.folder).tensors.items()}
    assert {name: shape for name, shape in found.items() if "lora_B" in name} == shapes


@pytest.mark.parametrize(("fault", "least"), [("none", "teardown"), ("error", "generation")])
def test_what_serve_says_fits_a_screen(
    served: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, fault: str, least: str
) -> None:
    monkeypatch.chdir(served)
    words = ["--python", str(served / "bin/python"), "--env", f"FAULT={fault}", "--keep-pythonpath", *QUICK]
    argv = ["serve", str(served / "Tiny"), "--load-format", "dummy", *words]
    assert cli.main("upgrade.py", "", UPGRADE, argv) == int(fault != "none")
    shown = capsys.readouterr().out
    said = json.loads(shown)
    assert shown.count("\n") <= 30
    assert least in said["passed"] + str(said.get("checks"))
    whole = json.loads(Path(said["whole_result"]).read_text())
    assert {"versions", "imports", "environment", "resolved"} <= whole.keys()


def test_a_gate_of_an_adaptation_names_its_next_step(served: Path, capsys: pytest.CaptureFixture) -> None:
    code, result = run(served, capsys, "serve", *PARALLEL, program="adapt.py")
    assert code == 0, result
    model, where = served / "Tiny", f"--python {served / 'bin/python'} --env FAULT=none --keep-pythonpath"
    where += " --quiet 1 --generations 1 --still 30"
    passed_on = "-- --tensor-parallel-size 2"
    assert result["next"] == f"adapt.py features {model} {where} --workspace {served} {passed_on}"
    code, result = run(served, capsys, "features", "--only", "mtp", fault="root-cause", program="adapt.py")
    assert result["next"] == f"adapt.py evidence show {result['run']} --workspace {served}"
