"""Replay real upgrades of the NPU runners and compare with what the maintainers did by hand.

For a sync A to B: ours is vllm-omni A, the target is the vllm-ascend that B's runners are
nearest to, and the person's result is vllm-omni B. Releases come from the package index;
with --ascend git:PATH the exact commits of a clone are used instead.

After these come the copies that vllm-ascend has of vLLM, in all its files (replay_copies.py), and what a
merge proposes beside them: pins and conditions on the version (replay_pins.py).

A default run has the syncs that the merge was built on; a whole run adds those that were not looked at.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from bench.imports_score import ImportScore, score_imports
from bench.replay_copies import STEPS, replay_copies
from bench.replay_pins import Beside, replay_pins
from bench.replay_pins import report as report_pins
from bench.replay_pins import summary as count_pins
from bench.replay_score import FEWEST, Score, Texts, score_method
from bench.shared import begin, options
from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import undefined_names
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.lineage.downstream import omni_side
from npu_upgrade.lineage.history import Version
from npu_upgrade.lineage.import_sources import UpstreamFile
from npu_upgrade.lineage.inference import Lineage, infer
from npu_upgrade.lineage.records import Bases
from npu_upgrade.merge.gone import vllm_tree
from npu_upgrade.merge.runners import MergedRunners, MethodOutcome, merge_runners
from npu_upgrade.sources.tree import SourceTree, open_source

SYNCS = ("0.14.0:0.16.0", "0.16.0:0.18.0", "0.18.0:0.20.0", "0.24.0:0.26.0", "0.26.0:0.28.0")
UNSEEN = (
    *("0.28.0:0.30.0", "0.30.0:0.32.0rc1", "0.22.0:0.24.0"),
    *("0.24.0rc1:0.25.0rc1", "0.27.0rc1:0.29.0rc1", "0.18.0:0.26.0"),
)
RELEASES = "pypi:vllm-ascend"
COPIES_GOALS = {
    **{"reproduced_of_ceiling": 0.95, "clean": 0.85},
    **dict.fromkeys(("garbage", "duplicated", "undefined"), 0.0),
}
LABELS = ("ours", "base", "theirs")


@dataclass
class Replay:
    """One replayed sync: what was merged onto what, and its score."""

    name: str
    base: str
    target: str
    score: Score
    imports: ImportScore
    undefined: int
    seconds: float


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--ascend", default=RELEASES, metavar="SPEC", help="the history of vllm-ascend")
    parser.add_argument("--sync", nargs="+", metavar="A:B", help="only these vllm-omni releases")
    parser.add_argument("--step", nargs="+", metavar="A:B", help="only these vllm-ascend releases")
    parser.add_argument("--cases", action="store_true", help="list what fell short, method by method")
    args = parser.parse_args(argv)
    run = begin("bench-replay", args, args.sync or args.step or args.ascend != RELEASES)
    figures: dict[str, str] = {}
    missed: list[str] = []
    if not args.step:
        chosen = args.sync or [*SYNCS, *(UNSEEN if run.whole else ())]
        replays = [
            run.result(sync, args.ascend, Replay, replay, *sync.split(":"), args.ascend) for sync in chosen
        ]
        print(report(replays, args.cases))
        figures = summary(replays)
        missed = short_of_goals(figures)
    if args.step or run.kind != "chosen":
        steps = args.step or STEPS
        replays = [run.result(step, "copies", Replay, _copies, *step.split(":")) for step in steps]
        print(report(replays, args.cases))
        copies = summary(replays)
        figures |= {f"copies_{name}": copies[name] for name in ("git_of_ceiling", "git_clean", *COPIES_GOALS)}
        beside = {step: run.result(step, "beside", Beside, replay_pins, *step.split(":")) for step in steps}
        print(report_pins(beside, args.cases))
        figures |= {name: str(count) for name, count in count_pins(beside.values()).items()}
        missed += [
            f"copies_{name}={copies[name]}, {'at least' if goal else 'at most'} {goal}"
            for name, goal in COPIES_GOALS.items()
            if (float(copies[name]) < goal if goal else float(copies[name]) > 0)
        ]
    return run.close(figures, missed)


def _copies(before: str, after: str) -> Replay:
    was, target, merged, score = replay_copies(before, after)
    gone = undefined(merged)
    return Replay(f"{before} -> {after}", was, target, score, ImportScore(), gone, merged.method_seconds)


def replay(before: str, after: str, ascend: str) -> Replay:
    """Merge release ``before`` to where ``after`` was taken from, and compare with ``after``."""
    say(f"replaying {before} -> {after}")
    omni, human = (open_source(f"pypi:vllm-omni=={v}") for v in (before, after))
    ours, theirs = infer(omni, ascend), infer(human, ascend)
    assert ours.base, "the runners of a release are copies"
    assert theirs.base
    target = open_source(theirs.base.spec)
    upstream = omni_side(omni).upstream
    bases = Bases(ours, target=theirs.base.version)
    base, vllm = open_source(ours.base.spec), vllm_tree(target)
    merged = merge_runners(omni, target, upstream, bases, labels=LABELS, base=base, vllm=vllm)
    score = Score()
    for outcome in merged.methods:
        texts = _texts(outcome, ours, theirs.base.version, omni, human)
        if texts and outcome.merged:
            score.add(score_method(texts, outcome.merged))
    imports = _imports(omni, human, target)
    return Replay(
        f"{before} -> {after}",
        ours.base.label,
        theirs.base.label,
        score,
        imports,
        undefined(merged),
        merged.method_seconds,
    )


def _texts(
    outcome: MethodOutcome, ours: Lineage, target: Version, omni: SourceTree, human: SourceTree
) -> Texts | None:
    """The texts to compare; None when the person dropped the method."""
    entry = outcome.entry
    person = parse_module(human.read(entry.path)).units.get(entry.name)
    own = parse_module(omni.read(entry.path)).units[entry.name]
    version = entry.best
    if person is None or version is None or outcome.upstream_text is None:
        return None
    history = ours.history
    place, end = history.versions.index(version), history.versions.index(target)
    between = history.versions[place : end + 2]
    step = max(1, len(between) // 12) if not history.lazy else 1
    upstream = tuple(filter(None, (history.unit(v, entry.upstream) for v in between[::step])))
    return Texts(
        f"{entry.runner}.{entry.name.rpartition('.')[2]}",
        history.unit(version, entry.upstream) or "",
        own.source,
        outcome.upstream_text,
        person.source,
        tuple(_gpu(tree, entry.path, entry.name) for tree in (omni, human)),
        upstream,
        outcome.base_text,
    )


def _gpu(tree: SourceTree, path: str, name: str) -> str:
    """The GPU runner's method of the same name, with the helpers beside it."""
    runner = next(r for r in omni_side(tree).runners if r.path == path)
    if not tree.exists(runner.gpu_path):
        return ""
    units = parse_module(tree.read(runner.gpu_path)).units
    return "\n".join(u.source for u in units.values() if u.name == name.rpartition(".")[2])


def _imports(omni: SourceTree, human: SourceTree, target: SourceTree) -> ImportScore:
    side = omni_side(human)
    paths = [r.path for r in side.runners]
    return score_imports(
        {path: omni.read(path) for path in paths},
        {path: human.read(path) for path in paths},
        UpstreamFile(side.upstream.path, target.read(side.upstream.path)),
        {r.gpu_path: human.read(r.gpu_path) for r in side.runners if r.gpu_path},
        target,
        human,
    )


def undefined(merged: MergedRunners) -> int:
    """Names undefined in the merged files and not before, whatever a conflict is decided for."""
    count = 0
    for path, text in merged.files.items():
        known = undefined_names(merged.ours[path])
        count += len(set.intersection(*(undefined_names(a.text) for a in answers(text))) - known)
    return count


def report(replays: Iterable[Replay], cases: bool) -> str:
    head = ("sync", "base", "target", "methods", "clean", "hunks", "git", "reproduced", "git ", "ceiling")
    head += (
        "of",
        "again",
        "extra",
        "garbage",
        "unjudged",
        "twice",
        "flagged",
        "undefined",
        "imports",
        "seconds",
    )
    rows = [_row(r) for r in replays]
    text = table(head, rows)
    if cases:
        text += "".join(f"\n{r.name} {case}" for r in replays for case in [*r.score.cases, *r.imports.cases])
    return text


def _row(r: Replay) -> tuple[str, ...]:
    s, i = r.score, r.imports
    merge = (r.name, r.base, r.target, s.methods, s.clean, s.hunks, f"{s.git_clean}/{s.git_hunks}")
    statements = (s.reproduced, s.git_reproduced, s.ceiling, s.attributable, s.readopted, s.not_in_human)
    guards = (s.garbage, s.unjudged, s.duplicated, f"{s.flagged}/{s.automatic}", r.undefined)
    imports = f"{i.added_right + i.dropped_right}/{i.added + i.dropped}"
    return tuple(map(str, (*merge, *statements, *guards, imports, f"{r.seconds:.1f}")))


def summary(replays: list[Replay]) -> dict[str, str]:
    """The figures of the last line; ratios only over syncs with enough attributable statements."""
    whole, counted, imports = Score(), Score(), ImportScore()
    for r in replays:
        whole.add(r.score)
        if r.score.attributable >= FEWEST:
            counted.add(r.score)
        imports.add(r.imports)
    right, all_ = imports.added_right + imports.dropped_right, imports.added + imports.dropped
    return {
        "reproduced_of_ceiling": f"{counted.reproduced / max(1, counted.ceiling):.3f}",
        "git_of_ceiling": f"{counted.git_reproduced / max(1, counted.ceiling):.3f}",
        "clean": f"{whole.clean / max(1, whole.methods):.3f}",
        "git_clean": f"{whole.git_clean / max(1, whole.methods):.3f}",
        "hunks_per_sync": f"{whole.hunks / len(replays):.2f}",
        "git_hunks_per_sync": f"{whole.git_hunks / len(replays):.2f}",
        "flagged": f"{whole.flagged / max(1, whole.automatic):.3f}",
        "garbage": str(whole.garbage),
        "duplicated": str(whole.duplicated),
        "undefined": str(sum(r.undefined for r in replays) + imports.undefined),
        "imports_right": f"{right / max(1, all_):.3f}",
        "slowest_merge_s": f"{max(r.seconds for r in replays):.2f}",
    }


def short_of_goals(figures: dict[str, str]) -> list[str]:
    """Which goals are missed, in words; nothing when all are met."""
    least = {"reproduced_of_ceiling": 0.97, "clean": 0.90, "imports_right": 0.95}
    most = {"hunks_per_sync": 1.0, "flagged": 0.10, "garbage": 0, "duplicated": 0, "undefined": 0}
    most["slowest_merge_s"] = 1.0
    missed = [f"{k}={figures[k]}, at least {v}" for k, v in least.items() if float(figures[k]) < v]
    return missed + [f"{k}={figures[k]}, at most {v}" for k, v in most.items() if float(figures[k]) > v]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.SubprocessError as error:
        sys.exit(f"bench-replay: {error}")
