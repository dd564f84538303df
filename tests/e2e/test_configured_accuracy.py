"""Serve the model of an accuracy config and measure it: ``pytest tests/e2e --config FILE``.

Nothing runs without --config. Without lm_eval or a device the test is skipped, with what is missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

UPGRADE = Path(__file__).resolve().parents[2] / "scripts" / "upgrade.py"
BLOCKED = 3


def test_a_model(config_file: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    command = [sys.executable, str(UPGRADE), "accuracy", "--config", str(config_file.absolute())]
    command += ["--python", option("--python"), "--workspace", str(tmp_path), "--format", "json"]
    command += ["--lm-eval", option("--lm-eval")] if option("--lm-eval") else []
    command += ["--include-path", option("--tasks-folder")] if option("--tasks-folder") else []
    command += [option("--model")] if option("--model") else []
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=variables, check=False)
    said = json.loads(done.stdout)
    if done.returncode == BLOCKED:
        pytest.skip(str(said))
    assert done.returncode == 0, said["summary"]
    if wanted := option("--label"):
        assert said["label"] == wanted
