"""Tokens of the plain models by vLLM itself on this CPU, computed once for each checkpoint and scenario."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_upgrade.gates.emulation.catalogue import EMULATOR, digest
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say

_MODULE = "npu_emulator.dry_run.cpu_reference"
_SECONDS = 600


def references(wanted: Sequence[tuple[str, Any]]) -> dict[str, str]:
    """Scenario -> file with vLLM's tokens on CPU, for the scenarios that are compared with it.

    Raises :class:`Blocked` when vLLM for CPU cannot be installed or does not run.
    """
    names = dict.fromkeys(one.name for _, one in wanted if one.vllm_reference)
    return {name: str(_reference(name)) for name in names}


def models_folder() -> Path:
    """Where the tiny checkpoints are: by the content of the code that makes them."""
    return cache_root() / "emulation" / "models" / digest(EMULATOR / "npu_emulator" / "dry_run" / "models")


def _reference(name: str) -> Path:
    from npu_upgrade.gates.vllm_cpu import DEFAULT  # most runs need no vLLM for CPU

    content = digest(EMULATOR / "npu_emulator" / "dry_run")
    target = cache_root() / "emulation" / "references" / f"{name}-{DEFAULT}-{content}.json"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _compute(name, target, DEFAULT)
    return target


def _compute(name: str, target: Path, version: str) -> None:
    from npu_upgrade.gates.vllm_cpu import cpu_python

    python = cpu_python(version)
    say(f"reference of {name}: vLLM {version} on this CPU (once)")
    variables = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", ""),
        "PYTHONPATH": str(EMULATOR),
        "PYTHONPYCACHEPREFIX": str(cache_root().absolute() / "emulation" / "pycache"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    command = [str(python), "-P", "-m", _MODULE, name, str(models_folder()), str(target)]
    log = target.with_suffix(".log")
    with open(log, "wb") as stream:
        try:
            ended = subprocess.run(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise _failed(name, f"no result after {_SECONDS} s", log) from error
    if ended.returncode != 0 or not target.exists():
        raise _failed(name, f"exit {ended.returncode}", log)


def _failed(name: str, why: str, log: Path) -> Blocked:
    return Blocked(
        f"vLLM on this CPU gave no reference for {name}: {why}",
        expected="a vLLM for CPU that runs a tiny model",
        try_=f"see {log}; upgrade.py env prune --all makes the environment anew",
    )
