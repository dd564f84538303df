"""Time and memory of one audit command in a process of its own, cold and warm."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.own_cache import own_cache
from npu_upgrade.sources.tree import open_source

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "upgrade.py"
_ENDS = (0, 1, 4)  # PASS, FAIL, INCONCLUSIVE


@dataclass(frozen=True)
class Timing:
    """Seconds of the first run (nothing remembered) and the second, and the larger memory in MiB."""

    cold: float
    warm: float
    memory: float


def time_audit(specs: dict[str, str], *options: str) -> Timing:
    """Run ``upgrade.py audit`` twice with a cache folder of its own, archives unpacked before."""
    for spec in specs.values():
        open_source(spec)
    with own_cache() as folder:
        (cold, first), (warm, second) = (_run(specs, options, folder) for _ in range(2))
    return Timing(cold, warm, max(first, second))


def _run(specs: dict[str, str], options: tuple[str, ...], cache: str) -> tuple[float, float]:
    """Seconds and MiB of one command."""
    command = [sys.executable, str(SCRIPT), "audit"]
    for part, spec in specs.items():
        command += [f"--{part}", spec]
    command += options
    begun = time.monotonic()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=cache,
            env=os.environ | {"XDG_CACHE_HOME": cache},
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in _ENDS:
            log.seek(0)
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{log.read().decode()}")
    return seconds, usage.ru_maxrss / 1024
