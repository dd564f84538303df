"""Replay upstream's commits between releases of vllm-omni, day by day, as the watch would have seen them.

What needed a hand is told by the releases themselves (``watch_truth``). A mention is a commit that the
watch calls broken or flagged. It is found when it needed a hand, noise when it did not, and not judged when
no later release had taken it over. Days of lead are from the mention to the release that took it over.
Without a clone of vllm-ascend's history (--clone, or WATCH_CLONE) the bench is BLOCKED and ends with 3.

A default run has two intervals, a whole run six more; others are named by --interval.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from multiprocessing import get_context

from packaging.version import Version

from bench.shared import Tally, begin, options
from bench.watch_truth import Upgrade, needed
from npu_upgrade.audit.triples import vllm_of
from npu_upgrade.ground.collector import no_collector
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.lineage.downstream import omni_side
from npu_upgrade.lineage.inference import infer
from npu_upgrade.lineage.records import Bases
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.index import releases_of
from npu_upgrade.sources.tree import open_source
from npu_upgrade.watch.line import open_line
from npu_upgrade.watch.look import look
from npu_upgrade.watch.open import open_asked, open_judge
from npu_upgrade.watch.records import State

INTERVALS = ("0.22.0:0.24.0", "0.24.0:0.26.0")
MORE = (
    "0.26.0:0.28.0",
    "0.20.0:0.22.0",
    "0.18.0:0.20.0",
    "0.16.0:0.18.0",
    "0.14.0:0.16.0",
    "0.28.0:0.30.0",
)
PACKAGE, BRANCH = "vllm_ascend", "main"
_PROCESSES = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


@dataclass
class Interval(Tally):
    """The counts of one interval; ``lead`` are days, ``seconds`` all looks, ``cases`` a line each."""

    commits: int = 0
    hand: int = 0
    found: int = 0
    noise: int = 0
    unjudged: int = 0
    green: int = 0
    seconds: float = 0.0
    lead: list[int] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)

    @property
    def mentions(self) -> int:
        return self.found + self.noise


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--clone", metavar="PATH", help="a clone of vllm-ascend (default: $WATCH_CLONE)")
    parser.add_argument("--interval", nargs="+", metavar="A:B", help="only these vllm-omni releases")
    parser.add_argument("--cases", action="store_true", help="list every mention and what was missed")
    args = parser.parse_args(argv)
    clone = args.clone or os.environ.get("WATCH_CLONE")
    if not clone:
        print("bench-watch: BLOCKED: no clone of vllm-ascend: BENCH_ARGS='--clone PATH', or WATCH_CLONE")
        return 3
    run = begin("bench-watch", args, args.interval)
    chosen = args.interval or [*INTERVALS, *(MORE if run.whole else ())]
    repo = Repo(clone)
    head = repo.resolve(BRANCH)
    ends = repo.commit_date(head)
    if beyond := [pair for pair in chosen if _released(pair.partition(":")[0]) >= ends]:
        print(f"bench-watch: BLOCKED: {clone} ends on {ends:%Y-%m-%d}, before {', '.join(beyond)} begins")
        chosen = [pair for pair in chosen if pair not in beyond]
        if not chosen:
            return 3
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:

        def play(pair: str) -> Interval:
            return pool.submit(replay, *pair.split(":"), clone).result()

        results = {pair: run.result(pair, head, Interval, play, pair) for pair in chosen}
    print(report(results, args.cases))
    peak = max(resource.getrusage(who).ru_maxrss for who in _PROCESSES) // 1024
    figures = summary(list(results.values())) | {"peak_mib": str(peak)}
    return run.close(figures, short_of_goals(figures))


def replay(before: str, after: str, clone: str) -> Interval:
    """Look every day from one release to the next, and compare with what the releases tell."""
    repo = Repo(clone)
    first, last = _released(before), _released(after)
    result = Interval()
    with no_collector():
        begun = time.monotonic()
        said = dict(_days(before, clone, repo, first, last, result))
        result.seconds = time.monotonic() - begun
        truth = _truth(before, repo, first, last)
    for sha, (why, released) in truth.items():
        mention = said.pop(sha, None)
        result.hand += bool(why)
        if why and mention:
            result.found += 1
            result.lead.append((released - mention[1]).days)
        result.noise += bool(mention and not why)
        if why or mention:
            kind = "found" if why and mention else "missed" if why else "noise"
            result.cases.append(f"{kind} {sha[:9]} {mention[0] if mention else ''} {'; '.join(why[:2])}")
    result.unjudged = len(said)
    return result


def _released(version: str) -> datetime:
    date = open_source(f"pypi:vllm-omni=={version}").date
    assert date
    return date


def _days(
    before: str, clone: str, repo: Repo, first: datetime, last: datetime, result: Interval
) -> Iterator[tuple[str, tuple[str, datetime]]]:
    """Commit -> its state and the day it was mentioned, of every look, on the vllm of that day."""
    seen, day = repo.before(first, BRANCH) or "", first
    judge, vllm = None, None
    while day < last:
        day = min(day + timedelta(days=1), last)
        until = f"git:{clone}@{repo.before(day, BRANCH)}"
        pinned = vllm_of(open_source(until))
        if judge is None or pinned != vllm:
            judge, vllm = open_judge(open_asked(f"pypi:vllm-omni=={before}", [until]), seen), pinned
        else:
            judge.line = open_line(until, PACKAGE, seen, judge.ours.paths)
        steps = judge.line.steps
        if not steps:
            continue
        say(f"the look of {day:%Y-%m-%d}: {len(steps)} commits")
        found = look(judge)
        result.commits += found.steps
        result.green += found.count(State.GREEN)
        for entry in found.entries:
            if entry.state is not State.GREEN:
                yield entry.spec.rpartition("@")[2], (entry.state.value, day)
        seen = steps[-1].spec.rpartition("@")[2]


def _truth(before: str, repo: Repo, first: datetime, last: datetime) -> dict[str, tuple[list[str], datetime]]:
    """Commit -> why it needed a hand, and when the release that took it over came out."""
    earlier, history = omni_side(open_source(f"pypi:vllm-omni=={before}")), f"git:{repo.path}@{BRANCH}"
    lineage = infer(earlier, history)
    upgrades: list[tuple[datetime, datetime, Upgrade]] = []
    for version in _later(first):
        tree = open_source(f"pypi:vllm-omni=={version}")
        side = omni_side(tree)
        taken = infer(side, history)
        base = taken.base
        if tree.date and base and base.date and base.version.sha:
            bases = Bases(lineage, target=base.version)
            texts = _texts(repo, base.version.sha)
            upgrades.append((base.date, tree.date, Upgrade(earlier, side, lineage, taken, texts, bases)))
    start, end = repo.before(first, BRANCH), repo.before(last, BRANCH)
    assert start
    assert end
    blobs: dict[str, str | None] = dict(repo.files(start))
    found = {}
    for change in repo.changes(start, end, PACKAGE):
        paths = [path for path in change.blobs if path.endswith(".py")]
        old = {path: _text(repo, blobs.get(path)) for path in paths}
        blobs |= change.blobs
        new = {path: _text(repo, change.blobs[path]) for path in paths}
        judged = next((one for one in upgrades if one[0] >= change.date), None)
        if judged:
            found[change.sha] = needed(judged[2], old, new), judged[1]
    return found


def _later(day: datetime) -> list[str]:
    """The releases after a day, oldest first; candidates only where nothing else came after them."""
    dated = sorted((one.date, one.version) for one in releases_of("vllm-omni") if one.date and not one.yanked)
    last = max((date for date, version in dated if not Version(version).is_prerelease), default=day)
    return [
        version
        for date, version in dated
        if date > day and (date > last or not Version(version).is_prerelease)
    ]


def _text(repo: Repo, blob: str | None) -> str:
    return repo.blob(blob).decode("utf-8-sig", "replace") if blob else ""


def _texts(repo: Repo, sha: str) -> dict[str, str]:
    files = {path: blob for path, blob in repo.files(sha).items() if path.startswith(f"{PACKAGE}/")}
    python = [path for path in files if path.endswith(".py")]
    return {path: data.decode("utf-8-sig", "replace") for path, data in repo.blobs_of(files, python).items()}


def report(results: dict[str, Interval], cases: bool) -> str:
    head = (
        "interval",
        "commits",
        "needed a hand",
        "found",
        "noise",
        "not judged",
        "green",
        "lead",
        "seconds each",
    )
    rows = [
        (name, r.commits, r.hand, r.found, r.noise, r.unjudged, r.green, _median(r.lead), f"{_each(r):.2f}")
        for name, r in results.items()
    ]
    text = table(head, [tuple(map(str, row)) for row in rows])
    return text + "".join(f"\n{name} {case}" for name, r in results.items() for case in r.cases if cases)


def _each(result: Interval) -> float:
    return result.seconds / max(1, result.commits)


def _median(days: list[int]) -> int:
    return sorted(days)[len(days) // 2] if days else 0


def summary(results: list[Interval]) -> dict[str, str]:
    """The figures of the last line."""
    whole = Interval()
    for one in results:
        whole.add(one)
    return {
        "commits": str(whole.commits),
        "needed_a_hand": str(whole.hand),
        "found": f"{whole.found / max(1, whole.hand):.3f}",
        "missed": str(whole.hand - whole.found),
        "mentions": str(whole.mentions),
        "noise": f"{whole.noise / max(1, whole.mentions):.3f}",
        "not_judged": str(whole.unjudged),
        "median_lead_days": str(_median(whole.lead)),
        "seconds_a_commit": f"{_each(whole):.2f}",
    }


def short_of_goals(figures: dict[str, str]) -> list[str]:
    """Which goals are missed, in words; nothing when all are met."""
    missed = [f"found={figures['found']}, at least 0.9"] if float(figures["found"]) < 0.9 else []
    most = {"noise": 0.2, "seconds_a_commit": 5.0, "peak_mib": 3000}
    return missed + [
        f"{key}={figures[key]}, at most {value}"
        for key, value in most.items()
        if float(figures.get(key, 0)) > value
    ]


if __name__ == "__main__":
    sys.exit(main())
