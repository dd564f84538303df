"""The emulator's native parts, built once for each torch, torch-npu and Python."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

from npu_upgrade.environments import locks
from npu_upgrade.gates.emulation.catalogue import EMULATOR
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say

STAMP = "npu-upgrade-native.json"


def native_parts(python: Path) -> Path:
    """The folder with the native parts for the torch and torch-npu of an environment.

    Raises :class:`Blocked` with the compiler's text when they cannot be built.
    """
    made_from = _made_from(python)
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_root().absolute() / "emulation" / "native" / digest
    locks.use(folder)
    if not (folder / STAMP).exists():
        with locks.alone(folder):
            if not (folder / STAMP).exists():
                _build(python, folder, made_from)
        locks.use(folder)
    os.utime(folder / STAMP)
    return folder


def _made_from(python: Path) -> dict[str, str]:
    """All that decides what gets built."""
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    versions = {found.name: found.version for found in distributions(path=[str(packages)])}
    sources = [EMULATOR / "npu_emulator" / "build.py", *sorted((EMULATOR / "npu_emulator/native").iterdir())]
    content = b"".join(path.read_bytes() for path in sources if path.is_file())
    return {
        "torch": versions["torch"],
        "torch-npu": versions.get("torch-npu") or versions["torch_npu"],
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "sources": hashlib.sha256(content).hexdigest(),
    }


def _build(python: Path, folder: Path, made_from: dict[str, str]) -> None:
    say(f"building the emulator's native parts for torch-npu {made_from['torch-npu']} (about 30 s, once)")
    shutil.rmtree(folder, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
    try:
        finished = scratch / "finished"
        variables = os.environ | {"PYTHONPATH": str(EMULATOR), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(python), "-P", "-m", "npu_emulator.build", str(finished)]
        done = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        if done.returncode != 0:
            tail = "\n    ".join(done.stderr.strip().splitlines()[-14:])
            raise Blocked(
                f"the emulator's native parts cannot be built (exit {done.returncode}):\n    {tail}",
                expected="g++ with C++17, and torch and torch-npu as their wheels are",
                try_="another g++ (11 or newer); upgrade.py env prune --all if the environment is damaged",
            )
        (finished / STAMP).write_text(json.dumps(made_from, indent=2) + "\n", encoding="utf-8")
        finished.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
