"""vLLM's own answers about checkpoints, from an interpreter that has it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from npu_upgrade.ground.errors import BadInput

_PROBE = Path(__file__).with_name("oracle_probe.py")
_SECONDS = 600


class Difference(msgspec.Struct, frozen=True):
    """A property that vLLM sees otherwise."""

    property: str
    analysis: Any
    vllm: Any


class Oracle(msgspec.Struct, frozen=True):
    """vLLM's ``answer`` about a configuration; ``error`` in it is vLLM's error message."""

    answer: dict[str, Any]
    differences: list[Difference]


def consult(python: Path, folder: Path, own: msgspec.Struct) -> Oracle:
    """The answer about one folder, and where it differs from ``own`` properties."""
    answer = ask(python, [folder])[0]
    return Oracle(answer, [] if "error" in answer else differences(own, answer))


def ask(python: Path, folders: list[Path]) -> list[dict[str, Any]]:
    """One answer per folder, in order; ``error`` in an answer is vLLM's error message.

    Raises :class:`BadInput` when the interpreter does not run or has no vLLM.
    """
    try:
        done = subprocess.run(
            # the folder of the script is not on the path (-P), nor is the present one
            [str(python), "-P", str(_PROBE)],
            input=json.dumps([str(folder.absolute()) for folder in folders]),
            capture_output=True,
            encoding="utf-8",
            timeout=_SECONDS,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise _no_oracle(python, str(problem)) from problem
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(answers) != len(folders):
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise _no_oracle(python, last)
    return answers


def differences(own: msgspec.Struct, answer: dict[str, Any]) -> list[Difference]:
    """Where the properties of an analysis and vLLM's answer disagree."""
    pairs = ((name, value, answer[name]) for name, value in asdict(own).items() if name in answer)
    return [Difference(*pair) for pair in pairs if pair[1] != pair[2]]


def _no_oracle(python: Path, why: str) -> BadInput:
    return BadInput(
        f"{python} gave no answer about the model: {why}",
        expected="the interpreter of an environment in which vLLM can be imported",
        try_="--python /path/to/venv/bin/python, or leave --python out",
    )
