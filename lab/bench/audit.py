"""What the audit finds: incident cases, gaps of releases, precision, time and memory.

The cases are recipes in lab/recipes/cases, rebuilt from released packages; the verdicts
on findings are in lab/recipes/reviews. Ends with 1 below any goal.

A default run has all cases, the precision on three releases, time and memory, and what the first runs of the
blind sets said, against which their goals are held. A whole run has the blind sets as they are found now, and
random mutations of the whole side, five of each kind.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.audit_blind import blind_sets, first_run, run_set
from bench.audit_runs import Bench, Result, run_cases
from bench.audit_sweep import sweep
from bench.incidents import COUNTED, FOLDER, Case, Trees, load_cases
from bench.shared import Run, begin, options, own_cache, some, timed
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import check_names, run_checks
from npu_upgrade.audit.triples import old_triple
from npu_upgrade.audit.world import World
from npu_upgrade.ground.tables import table
from npu_upgrade.sources.tree import open_source

GOALS = {"recall": 0.9, "gaps": 8, "precision": 0.8}
BELOW = {"cold_s": 10.0, "warm_s": 3.0, "memory_mib": 1024.0}
FEWEST = 40
# The release gaps that have to come out right one by one.
NAMED = ("omni-3517", "negative-3517-fixed", "omni-0.26-dummy-run")
# vllm-omni with the vllm-ascend and vllm that belong with it
RELEASES = {
    "0.22.0": ("0.22.1rc1", "0.22.1"),
    "0.26.0": ("0.26.0rc1", "0.26.0"),
    "0.30.0": ("0.30.0rc2", "0.30.0"),
}
SWEEP = (5, 1)  # mutations of each kind in a whole run, and what draws them
NOTICED = 38 / 45  # of the mutations
_ENDS = (0, 1, 4)  # PASS, FAIL, INCONCLUSIVE


@dataclass(frozen=True)
class Reviewed:
    """A finding on a release and the verdict on it; None where nobody has looked."""

    release: str
    finding: Finding
    verdict: bool | None


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument(
        "--case", nargs="+", metavar="ID", help="run these cases and print all their findings"
    )
    parser.add_argument("--cases-only", action="store_true", help="no precision, no time and memory")
    parser.add_argument(
        "--sweep", nargs=2, type=int, metavar=("N", "SEED"), help="only N random mutations of each kind"
    )
    parser.add_argument("--blind", nargs="+", metavar="SET", help="only these blind sets")
    parser.add_argument("--jobs", type=int, help="processes for the cases (default: one for each core)")
    args = parser.parse_args(argv)
    run = begin("bench-audit", args, args.case or args.sweep or args.cases_only or args.blind)
    if args.blind:
        names = [name for name in blind_sets() if name in args.blind]
        return run.close(*_blind(some(names, args.blind), run, again=True))
    cases = load_cases()
    if args.case:
        return _show(some([case for case in cases if case.id in args.case], args.case))
    figures: dict[str, str] = {}
    missed: list[str] = []
    if not args.sweep:
        # First: a child counts the memory of the process that started it, and this one grows.
        times = {} if args.cases_only else _measured_times()
        results = run_cases(cases, run, args.jobs)
        print(_cases_table(results))
        figures = case_figures(results)
        if not args.cases_only:
            items = reviewed(run)
            print("\n" + _precision_table(items))
            open_ = [one for one in items if one.verdict is None]
            rows = (
                f'- {{release: "{i.release}", key: {i.finding.key}}}  # {_line(i.finding)}' for i in open_
            )
            print("\n".join(["", "not reviewed:", *rows]) if open_ else "")
            figures |= {"precision": f"{precision(items):.3f}"} | times
        missed = short_of_goals(figures, results)
    if not args.sweep and not args.cases_only:
        more, short = _blind(blind_sets(), run, again=run.whole)
        figures |= more
        missed += short
    if args.sweep or run.whole:
        text, figures["mutations"] = sweep(specs_of(max(RELEASES)), *(args.sweep or SWEEP), run)
        print("\n" + text)
        noticed, tried = map(int, figures["mutations"].split("/"))
        if noticed < NOTICED * tried:
            missed.append(f"mutations={figures['mutations']}, goal {NOTICED:.3f} of them")
    return run.close(figures, missed)


def _blind(names: Sequence[str], run: Run, *, again: bool) -> tuple[dict[str, str], list[str]]:
    """The figures of blind sets at their first run (and now, when they run ``again``), and the goals
    that the first runs missed."""
    figures: dict[str, str] = {}
    missed: list[str] = []
    for name in names:
        of_first, short = first_run(name)
        figures |= of_first
        missed += short
        if again:
            text, figures[f"{name}-now"] = run_set(name, run)
            print("\n" + text)
    return figures, missed


def case_figures(results: Sequence[Result]) -> dict[str, str]:
    """The figures of the last line that the cases give."""
    counted = [result for result in results if result.case.counted]
    groups = {
        "negatives": [r for r in results if r.case.group == "negative"],
        "gaps": [r for r in results if r.case.group == "gap"],
        "held_out": [r for r in results if r.case.held_out],
    }
    figures = {
        "cases": str(sum(r.case.group == "incident" and not r.case.held_out for r in results)),
        "recall": f"{sum(r.passed for r in counted) / len(counted):.3f}",
    }
    return figures | {name: f"{sum(r.passed for r in rows)}/{len(rows)}" for name, rows in groups.items()}


def short_of_goals(figures: dict[str, str], results: Sequence[Result]) -> list[str]:
    """The goals that are not reached, in words."""
    values = {key: float(value.partition("/")[0]) for key, value in figures.items()}
    missed = [f"{k}={figures[k]}, goal {g}" for k, g in GOALS.items() if k in values and values[k] < g]
    missed += [f"{k}={figures[k]}, below {g}" for k, g in BELOW.items() if k in values and values[k] >= g]
    if values["cases"] < FEWEST:
        missed.append(f"{figures['cases']} cases, at least {FEWEST}")
    silent, negatives = figures["negatives"].split("/")
    if silent != negatives:
        missed.append(f"negatives={figures['negatives']}")
    wrong = [r.case.id for r in results if r.case.id in NAMED and not r.passed]
    return missed + [f"{name} did not come out right" for name in wrong]


def reviewed(run: Run) -> list[Reviewed]:
    """All findings on the releases with the verdicts."""
    verdicts = load_reviews()
    found = []
    for release in RELEASES:
        findings = run.result(f"release {release}", {}, list[Finding], _findings, release)
        found += [Reviewed(release, item, verdicts.get((release, item.key))) for item in findings]
    return found


def _findings(release: str) -> list[Finding]:
    """The findings on a release, seen beside the release before as the command does."""
    triple = Trees().triple(specs_of(release))
    before = old_triple(triple)
    return run_checks(World(triple, World(before) if before else None))


def load_reviews(folder: Path = FOLDER / "reviews") -> dict[tuple[str, str], bool]:
    """Release and key -> whether the finding is true."""
    entries = [
        e for path in sorted(folder.glob("*.yaml")) for e in yaml.safe_load(path.read_text("utf-8")) or []
    ]
    return {(str(entry["release"]), entry["key"]): bool(entry["verdict"]) for entry in entries}


def specs_of(release: str) -> dict[str, str]:
    """The matching triple of a vllm-omni release."""
    ascend, vllm = RELEASES[release]
    return {
        "omni": f"pypi:vllm-omni=={release}",
        "ascend": f"pypi:vllm-ascend=={ascend}",
        "vllm": f"pypi:vllm=={vllm}",
    }


def precision(items: Sequence[Reviewed]) -> float:
    """The share of true findings; one that nobody reviewed counts as not true."""
    return sum(item.verdict is True for item in items) / len(items) if items else 0.0


def _measured_times() -> dict[str, str]:
    """Of one audit of the newest triple alone; with the release before beside it they are only shown."""
    triple = specs_of(max(RELEASES))
    print(f"with the release before: {_time_audit(triple)}")
    return _time_audit(triple, "--baseline", "none")


def _time_audit(specs: dict[str, str], *options: str) -> dict[str, str]:
    """Seconds of the first audit (nothing remembered) and the second, and the larger memory in MiB.

    Each is a command of its own, with a cache folder of its own; archives are unpacked before.
    """
    for spec in specs.values():
        open_source(spec)
    command = ["audit", *(word for part, spec in specs.items() for word in (f"--{part}", spec)), *options]
    with own_cache() as folder:
        (cold, first), (warm, second) = (timed(command, folder, _ENDS) for _ in range(2))
    return {"cold_s": f"{cold:.2f}", "warm_s": f"{warm:.2f}", "memory_mib": f"{max(first, second):.0f}"}


def _cases_table(results: Sequence[Result]) -> str:
    rows = [
        (r.case.id, r.case.kind, _expected(r.case), _found(r), r.state)
        for r in sorted(results, key=lambda r: (r.case.held_out, r.case.group, r.case.id))
    ]
    parts = [table(("case", "class", "expected", "found by", ""), rows)]
    by_check: dict[str, list[bool]] = {}
    for result in results:
        if result.case.counted and result.case.expect:
            by_check.setdefault(result.case.expect.checks[0], []).append(result.passed)
    there = check_names()
    rows = [
        (check, f"{sum(done)} of {len(done)}", "" if check in there else "no such check yet")
        for check, done in sorted(by_check.items())
    ]
    parts.append(table(("check", "found", ""), rows))
    for kind in COUNTED:
        done = [r.passed for r in results if r.case.counted and r.case.kind == kind]
        parts.append(f"class {kind}: {sum(done)} of {len(done)}")
    return "\n\n".join(parts)


def _expected(case: Case) -> str:
    wanted = case.wanted
    return f"{'/'.join(wanted.checks)}: {wanted.subject}" if wanted else "-"


def _found(result: Result) -> str:
    items = [f"{item.check} {item.owner} {item.subject}" for item in result.found]
    return items[0] + (f" (+{len(items) - 1})" if len(items) > 1 else "") if items else "-"


def _precision_table(items: Sequence[Reviewed]) -> str:
    rows = []
    for name in [*RELEASES, *sorted({item.finding.check for item in items})]:
        own = [item for item in items if name in (item.release, item.finding.check)]
        verdicts = [item.verdict for item in own]
        counts = [verdicts.count(verdict) for verdict in (True, False, None)]
        rows.append((name, *map(str, [len(own), *counts]), f"{precision(own):.2f}"))
    return table(("release or check", "findings", "true", "false", "not reviewed", "precision"), rows)


def _show(cases: Sequence[Case]) -> int:
    bench = Bench()
    passed = True
    for case in cases:
        result = bench.result(case)
        passed = passed and result.passed
        print(f"{case.id}: {result.state}; expected {_expected(case)}")
        for finding in bench.run(case, check_names()):
            print(f"  {'*' if finding in result.found else ' '} {_line(finding)}")
    return 0 if passed else 1


def _line(finding: Finding) -> str:
    return (
        f"{finding.check} {finding.kind} [{finding.owner}] {finding.subject}: {finding.what} ({finding.here})"
    )


if __name__ == "__main__":
    sys.exit(main())
