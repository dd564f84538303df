"""What a server is started with: its environment, its folder, and the code it imports."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import serving_kit as kit

from npu_upgrade.commands.serving_arguments import add_serving_arguments, asked
from npu_upgrade.gates.serving import session
from npu_upgrade.gates.serving.launch import Launch
from npu_upgrade.gates.validation import pack_program
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.job import serving
from npu_upgrade.sources.installed import toolkit_folders


def launched(tmp_path: Path, *words: str) -> Launch:
    parser = argparse.ArgumentParser()
    add_serving_arguments(parser)
    python = kit.machine(tmp_path / "machine")
    place = ["--python", str(python), "--workspace", str(tmp_path)]
    split = words.index("--") if "--" in words else len(words)
    args = parser.parse_args([str(kit.model(tmp_path)), *place, *words[:split]])
    args.passed_on = [*words[split + 1 :]]
    return asked(args).launch


def test_an_overlay_is_taken_away_unless_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert "PYTHONPATH" not in launched(tmp_path).variables()
    assert launched(tmp_path, "--keep-pythonpath").variables()["PYTHONPATH"] == "/somewhere"


def test_the_folders_of_the_cann_toolkit_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its set_env.sh puts them on PYTHONPATH, and the compiler of the operators is imported from them."""
    toolkit, patched = tmp_path / "cann", tmp_path / "patched"
    for folder in (toolkit / "python/site-packages/tbe", toolkit / "fast/vllm_ascend", patched / "vllm"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(toolkit))
    mine = [str(toolkit / "python/site-packages"), "/usr/local/Ascend/driver/python"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(patched), *mine, str(toolkit / "fast"), ""]))
    variables = launched(tmp_path).variables()
    assert variables["PYTHONPATH"].split(os.pathsep) == mine  # what hides a package of the engine goes
    assert toolkit_folders(variables) == mine
    assert toolkit_folders({"PYTHONPATH": str(patched)}) == []


def test_there_are_as_many_emulated_devices_as_ranks(tmp_path: Path) -> None:
    ranks = ("-tp", "2", "--pipeline-parallel-size", "2")
    name = "NPU_EMULATOR_DEVICES"
    assert launched(tmp_path, "--emulated", "--", *ranks).environment[name] == "4"
    assert launched(tmp_path, "--emulated", "--env", f"{name}=8", "--", *ranks).environment[name] == "8"
    assert name not in launched(tmp_path, "--", *ranks).environment


def test_ranks_of_a_cpu_need_no_numa_node_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "named_python", lambda _: kit.machine(tmp_path / "cpu"))
    name, ranks = "VLLM_CPU_OMP_THREADS_BIND", ("--python", "cpu", "--", "-tp", "2")
    assert launched(tmp_path, *ranks).environment[name] == "nobind"
    assert launched(tmp_path, "--env", f"{name}=0-1", *ranks).environment[name] == "0-1"
    assert name not in launched(tmp_path, "--python", "cpu").environment
    assert name not in launched(tmp_path, "--", "-tp", "2").environment


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ((), True),
        (("--max-model-len", "512"), True),
        (("--compilation-config", '{"cudagraph_mode": "FULL_DECODE_ONLY"}'), True),
        (("--compilation-config", '{"cudagraph_capture_sizes": [1, 2]}'), False),
        (("--max-num-seqs=4",), False),
        (("--enforce-eager",), False),
    ],
)
def test_an_emulated_npu_captures_few_graphs_unless_it_is_told(
    given: tuple[str, ...], added: bool, tmp_path: Path
) -> None:
    few = ("--max-num-seqs", "4") if added else ()
    assert launched(tmp_path, "--emulated", "--", *given).arguments == (*given, *few)
    assert launched(tmp_path, "--", *given).arguments == given


def test_nothing_is_imported_from_where_it_is_started(tmp_path: Path) -> None:
    """vLLM starts interpreters of its own: a checkout that it is started in is not what is installed."""
    (tmp_path / "a_checkout.py").write_text("")
    run = [sys.executable, "-c", "import a_checkout"]
    assert subprocess.run(run, cwd=tmp_path, stderr=subprocess.PIPE).returncode == 0
    variables = launched(tmp_path).variables()
    assert subprocess.run(run, cwd=tmp_path, env=variables, stderr=subprocess.PIPE).returncode == 1


def test_it_starts_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, models, other = (tmp_path / name for name in ("usual", "models", "other"))
    for folder in (usual, models / "Tiny", other):
        folder.mkdir(parents=True)
    monkeypatch.setattr("npu_upgrade.commands.serving_arguments.WORK_DIR", usual)
    monkeypatch.setattr(session, "MODELS", models)
    assert launched(tmp_path).cwd == usual
    assert launched(tmp_path, "--work-dir", str(other)).cwd == other
    monkeypatch.chdir(other)
    assert session.model_place("Tiny") == str(models / "Tiny")


def test_a_vllm_on_path_may_lie_elsewhere_than_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, local = kit.machine(tmp_path / "machine"), tmp_path / "local/bin"
    local.mkdir(parents=True)
    (local / "python").symlink_to("/usr/bin/python3")  # what pip of another Python found there before
    script = local / "vllm"
    script.write_text(f"#!{python}\nimport vllm\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(local))
    found = (session.named_python("auto"), pack_program._serving(""))
    assert found == (python, python)
    script.write_text('#!/bin/sh\nexec python "$0"\n')
    found = (session.named_python("auto"), pack_program._serving(""))
    assert found == (local / "python", local / "python")


def test_an_npu_gets_its_defaults_and_what_somebody_set_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HCCL_OP_EXPANSION_MODE", raising=False)
    assert "HCCL_OP_EXPANSION_MODE" not in launched(tmp_path).environment
    (site,) = (tmp_path / "machine").glob("lib/python3*/site-packages")
    (site / "vllm_ascend").mkdir()
    (site / "vllm_ascend/__init__.py").write_text("")
    assert "HCCL_OP_EXPANSION_MODE" not in launched(tmp_path).environment  # no driver shows an NPU
    monkeypatch.setattr("npu_upgrade.gates.serving.device.npu_count", lambda: 1)
    assert launched(tmp_path).environment["HCCL_OP_EXPANSION_MODE"] == "AIV"
    given = launched(tmp_path, "--env", "HCCL_OP_EXPANSION_MODE=HOST")
    assert given.environment["HCCL_OP_EXPANSION_MODE"] == "HOST"
    monkeypatch.setenv("HCCL_OP_EXPANSION_MODE", "RING")
    assert launched(tmp_path).variables()["HCCL_OP_EXPANSION_MODE"] == os.environ["HCCL_OP_EXPANSION_MODE"]


def test_a_package_from_elsewhere_is_refused(tmp_path: Path) -> None:
    assert launched(tmp_path, "--expect-import", f"vllm={tmp_path / 'machine'}")
    with pytest.raises(BadInput, match="vllm is imported from"):
        launched(tmp_path, "--expect-import", f"vllm={tmp_path / 'checkout'}")
    with pytest.raises(BadInput, match="my_models is not installed"):
        launched(tmp_path, "--expect-import", f"my_models={tmp_path}")
    (site,) = (tmp_path / "machine").glob("lib/python3*/site-packages")
    (site / "my_models").mkdir()
    (site / "my_models/__init__.py").write_text("")
    assert launched(tmp_path, "--expect-import", f"my_models={site}")  # whatever it is called
