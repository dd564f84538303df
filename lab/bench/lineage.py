"""Time and memory of lineage over a history of vllm-ascend, cold and warm.

The history is vllm-ascend's releases, or with --ascend git:PATH all commits of a full clone. Every run is a
process of its own with a cache folder of its own; releases are fetched before the clock starts.

A default run has four releases of vllm-omni, old and new; a whole run has all that the index has.
"""

from __future__ import annotations

import sys

from packaging.version import Version

from bench.shared import begin, options, own_cache, timed
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.tables import table
from npu_upgrade.sources.index import releases_of
from npu_upgrade.sources.tree import open_source

OMNI = ("0.16.0", "0.20.0", "0.24.0", "0.28.0")
RELEASES = "pypi:vllm-ascend"
GOALS = {"cold_s": 10.0, "warm_s": 1.0, "memory_mib": 1024.0}


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--ascend", default=RELEASES, metavar="SPEC", help="git:PATH: a full clone")
    parser.add_argument("--omni", nargs="+", metavar="VERSION", help="only these releases of vllm-omni")
    args = parser.parse_args(argv)
    run = begin("bench-lineage", args, args.omni or args.ascend != RELEASES)
    rows = []
    for version in args.omni or (_all() if run.whole else OMNI):
        given = [version, args.ascend]
        rows.append((version, run.result(version, given, list[float], _measure, *given)))
    shown = [(version, *(f"{value:.2f}" for value in values)) for version, values in rows]
    print(table(("vllm-omni", "cold s", "warm s", "MiB"), shown))
    worst = {name: max(values[place] for _, values in rows) for place, name in enumerate(GOALS)}
    missed = [f"{key}={worst[key]:.2f}, below {goal}" for key, goal in GOALS.items() if worst[key] >= goal]
    return run.close({key: f"{value:.2f}" for key, value in worst.items()}, missed)


def _all() -> list[str]:
    """The releases from the first one measured by default on."""
    found = [Version(release.version) for release in releases_of("vllm-omni") if not release.yanked]
    return [str(one) for one in sorted(found) if not one.is_prerelease and one >= Version(OMNI[0])]


def _measure(version: str, ascend: str) -> list[float]:
    """Seconds cold and warm, and the larger memory in MiB."""
    spec = f"pypi:vllm-omni=={version}"
    open_source(spec)
    command = ["lineage", "--omni", spec, "--ascend", ascend]
    if ascend == RELEASES:  # fetch them
        timed(command, str(cache_root().parent))
    with own_cache() as folder:
        (cold, first), (warm, second) = (timed(command, folder) for _ in range(2))
    return [cold, warm, max(first, second)]


if __name__ == "__main__":
    sys.exit(main())
