"""`upgrade.py explain` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npu_upgrade.cli.main import main

LOGS = Path(__file__).parents[1] / "fixtures" / "serve_logs"


def explain(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict]:
    code = main("upgrade.py", "", ["explain"], ["explain", "--format", "json", *argv])
    return code, json.loads(capsys.readouterr().out)


def test_a_known_root_cause_fails_and_names_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = explain(capsys, str(LOGS / "npu-out-of-memory.log"))
    assert (code, said["verdict"], said["root"]["id"]) == (1, "FAIL", "npu-out-of-memory")
    assert "--max-model-len" in said["root"]["next_step"]
    assert "engine-dead" in said["wrappers"]


def test_wrappers_alone_are_inconclusive(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = explain(capsys, str(LOGS / "engine-dead.log"))
    assert (code, said["root"]) == (4, None)


def test_no_error_proves_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "log").write_text("INFO 11-03 08:14:02 [x.py:1] started\n", "utf-8")
    code, said = explain(capsys, str(tmp_path / "log"))
    assert code == 0
    assert "does not prove" in said["summary"]


def test_people_get_the_cause_and_the_wrappers(capsys: pytest.CaptureFixture[str]) -> None:
    main("upgrade.py", "", ["explain"], ["explain", str(LOGS / "shard-corrupt.log"), "--format", "text"])
    said = capsys.readouterr().out
    assert "root cause  shard-corrupt" in said
    assert "wrapper: passes an error on" in said


def test_a_missing_log_and_no_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert explain(capsys, str(tmp_path / "none"))[0] == 2
    assert explain(capsys)[0] == 2


def test_the_reference_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(capsys, "--check")[0] == 0


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("vLLM API server version 0.30.0", "pypi:vllm==0.30.0"),
        ("Initializing a V1 LLM engine (v0.30.0+cpu) with config: x", "pypi:vllm==0.30.0"),
        ("vLLM API server version 0.30.1rc2", "pypi:vllm==0.30.1rc2"),
        ("vLLM API server version 0.30.1.dev12+gabc", "SPEC"),  # no release has it
        ("nothing of a version", "SPEC"),
    ],
)
def test_the_release_that_the_log_names_is_in_the_next_step(
    said: str, asked: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "serve.log"
    error = "TypeError: NPUThing.run() missing 1 required positional argument: 'n'"
    log.write_text(f"INFO 11-03 08:14:07 [api.py:1] {said}\n{error}\n")
    root = explain(capsys, str(log))[1]["root"]
    assert f"audit --ascend SPEC --vllm {asked} " in root["next_step"]
