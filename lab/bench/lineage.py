"""Time and memory of lineage over the whole history of a vllm-ascend clone, cold and warm.

Needs a full clone: --ascend git:PATH. Every run is a process of its own with a cache folder
of its own; the release of vllm-omni is fetched before the clock starts.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from bench.own_cache import own_cache
from npu_upgrade.ground.tables import table
from npu_upgrade.sources.tree import open_source

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "upgrade.py"
OMNI = ("0.16.0", "0.20.0", "0.24.0", "0.28.0")
GOALS = {"cold_s": 10.0, "warm_s": 1.0, "memory_mib": 1024.0}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ascend", required=True, metavar="git:PATH", help="a full clone of vllm-ascend")
    parser.add_argument("--omni", nargs="+", default=list(OMNI), metavar="VERSION")
    args = parser.parse_args(argv)
    rows = []
    for version in args.omni:
        spec = f"pypi:vllm-omni=={version}"
        open_source(spec)
        with own_cache() as folder:
            cold, warm = (seconds(spec, args.ascend, folder) for _ in range(2))
        rows.append((version, cold, warm))
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(table(("vllm-omni", "cold s", "warm s"), [(v, f"{c:.2f}", f"{w:.2f}") for v, c, w in rows]))
    worst = {
        "cold_s": max(cold for _, cold, _ in rows),
        "warm_s": max(warm for _, _, warm in rows),
        "memory_mib": memory,
    }
    print("bench-lineage: " + " ".join(f"{key}={value:.2f}" for key, value in worst.items()))
    missed = [f"{key}={worst[key]:.2f}, below {goal}" for key, goal in GOALS.items() if worst[key] >= goal]
    print("\n".join(f"not reached: {text}" for text in missed), file=sys.stderr)
    return 1 if missed else 0


def seconds(omni: str, ascend: str, cache: str) -> float:
    """The wall time of one lineage command."""
    command = [sys.executable, str(SCRIPT), "lineage", "--omni", omni, "--ascend", ascend]
    begun = time.monotonic()
    env = os.environ | {"XDG_CACHE_HOME": cache}
    subprocess.run(command, env=env, check=True, capture_output=True)
    return time.monotonic() - begun


if __name__ == "__main__":
    sys.exit(main())
