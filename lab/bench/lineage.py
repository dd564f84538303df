"""Time and memory of lineage, cold and warm, and its copies beside a plain count of them.

Of vllm-omni's NPU side over a history of vllm-ascend: its releases, or with --ascend git:PATH all commits of
a full clone. Of vllm-ascend on vLLM the whole tree, whose copies are held against a plain count of statements
(lineage_copies.py). Every run is a process of its own with a cache folder of its own; releases, and the files
of releases that are read alone, are fetched before the clock starts.

A default run has four releases of vllm-omni, old and new; a whole run has all that the index has.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import msgspec
from packaging.version import Version

from bench.lineage_copies import CopiesScore, score_copies
from bench.shared import begin, options, own_cache, timed
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.tables import table
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.origins import Origins
from npu_upgrade.sources.index import releases_of
from npu_upgrade.sources.tree import open_source

OMNI = ("0.16.0", "0.20.0", "0.24.0", "0.28.0")
RELEASES = "pypi:vllm-ascend"
GOALS = {"cold_s": 10.0, "warm_s": 1.0, "memory_mib": 1024.0}
WHOLE = (("0.30.0rc2", "0.30.0"), ("0.26.0rc1", "0.26.0"))
"""Releases of vllm-ascend, and of the vLLM that each is for."""
WHOLE_GOALS = {"whole_cold_s": 60.0, "whole_warm_s": 3.0}
RECALL = 0.95


@dataclass
class WholeTree:
    """Seconds cold and warm, MiB, and the copies of one vllm-ascend on its vLLM."""

    measured: list[float]
    copies: CopiesScore


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--ascend", default=RELEASES, metavar="SPEC", help="git:PATH: a full clone")
    parser.add_argument("--omni", nargs="+", metavar="VERSION", help="only these releases of vllm-omni")
    parser.add_argument(
        "--tree", nargs="+", metavar="VERSION:VLLM", help="only these vllm-ascend releases, each on this vLLM"
    )
    parser.add_argument("--cases", action="store_true", help="list the copies that were missed")
    args = parser.parse_args(argv)
    run = begin("bench-lineage", args, args.omni or args.tree or args.ascend != RELEASES)
    figures: dict[str, str] = {}
    missed: list[str] = []
    if not args.tree:
        rows = []
        for version in args.omni or (_all() if run.whole else OMNI):
            given = [version, args.ascend]
            rows.append((version, run.result(version, given, list[float], _measure, *given)))
        _times("vllm-omni", rows, GOALS, figures, missed)
    if args.tree or run.kind != "chosen":
        pairs = [tuple(pair.split(":")) for pair in args.tree] if args.tree else WHOLE
        trees = [(a, run.result(f"tree-{a}", [a, v], WholeTree, _whole, a, v)) for a, v in pairs]
        _times("vllm-ascend", [(name, tree.measured) for name, tree in trees], WHOLE_GOALS, figures, missed)
        _copies(trees, args.cases, figures, missed)
    return run.close(figures, missed)


def _times(
    name: str,
    rows: list[tuple[str, list[float]]],
    goals: dict[str, float],
    figures: dict[str, str],
    missed: list[str],
) -> None:
    shown = [(version, *(f"{value:.2f}" for value in values)) for version, values in rows]
    print(table((name, "cold s", "warm s", "MiB"), shown))
    for place, (key, goal) in enumerate(goals.items()):
        worst = max(values[place] for _, values in rows)
        figures[key] = f"{worst:.2f}"
        missed += [f"{key}={worst:.2f}, below {goal}"] if worst >= goal else []


def _copies(
    trees: list[tuple[str, WholeTree]], cases: bool, figures: dict[str, str], missed: list[str]
) -> None:
    total = CopiesScore()
    for _, tree in trees:
        total.add(tree.copies)
    counts = [
        (name, *map(str, (one.copies.copies, one.copies.found, one.copies.right))) for name, one in trees
    ]
    print(table(("vllm-ascend", "copies", "found", "right base"), counts))
    if cases:
        print("".join(f"{name} {case}\n" for name, tree in trees for case in tree.copies.cases), end="")
    for key, value in (("copies_found", total.found), ("copies_right", total.right)):
        share = value / max(1, total.copies)
        figures[key] = f"{share:.3f}"
        missed += [f"{key}={share:.3f}, at least {RECALL}"] if share < RECALL else []


def _all() -> list[str]:
    """The releases from the first one measured by default on."""
    found = [Version(release.version) for release in releases_of("vllm-omni") if not release.yanked]
    return [str(one) for one in sorted(found) if not one.is_prerelease and one >= Version(OMNI[0])]


def _whole(version: str, vllm: str) -> WholeTree:
    """A vllm-ascend on its vLLM."""
    specs = f"pypi:vllm-ascend=={version}", f"pypi:vllm=={vllm}"
    command = ["lineage", "--downstream", specs[0], "--upstream", specs[1]]
    measured = _cold_and_warm(command, fetch=True)
    side = Downstream(open_source(specs[0]), {"vllm": open_source(specs[1])})
    units = [msgspec.to_builtins(unit) for unit in Origins(side, {"vllm": specs[1]}).units]
    return WholeTree(measured, score_copies(*specs, units))


def _measure(version: str, ascend: str) -> list[float]:
    """Of the NPU side of a vllm-omni."""
    spec = f"pypi:vllm-omni=={version}"
    open_source(spec)
    return _cold_and_warm(["lineage", "--omni", spec, "--ascend", ascend], fetch=ascend == RELEASES)


def _cold_and_warm(command: list[str], *, fetch: bool) -> list[float]:
    """Seconds cold and warm, and the larger memory in MiB."""
    if fetch:
        timed(command, str(cache_root().parent))
    with own_cache() as folder:
        (cold, first), (warm, second) = (timed(command, folder) for _ in range(2))
    return [cold, warm, max(first, second)]


if __name__ == "__main__":
    sys.exit(main())
