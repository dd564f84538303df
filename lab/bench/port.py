"""Measure the port list on past releases: what it puts first, against what the maintainers took.

For a transition A to B: the NPU runners of vllm-omni A, the GPU side of B, and the vllm-ascend
that B's runners are nearest to. A line was taken when the NPU runners of B (now) or of any
later release have it.

Each hunk of the first tier is also applied, alone and with all others, and what comes out is judged by
others than the port (see port_safety).

A default run has the transitions that the ranking was made on, of which some ported much and some little; a
whole run adds those that were not looked at while it was made.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import Version

from bench.port_safety import judge
from bench.port_score import Lines, PortScore, human_lines, open_lines, release, taken
from bench.replay import SYNCS
from bench.shared import begin, options
from npu_upgrade.commands import port_inputs
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.lineage.inference import infer_base
from npu_upgrade.port.needs import Ranked
from npu_upgrade.port.survey import survey
from npu_upgrade.sources.index import releases_of

PRECISION, RECALL = 0.75, 0.60
HELD_OUT = ("0.20.0:0.22.0", "0.22.0:0.24.0", "0.28.0:0.30.0", "0.30.0:0.32.0rc1", "0.18.0rc1:0.20.0rc1")
"""Transitions that were not looked at while the ranking was made."""


@dataclass
class Transition:
    """One measured transition: ``wrong`` is what applying the first tier (``applied`` times) broke."""

    name: str
    since: str
    hunks: tuple[int, int, int]
    score: PortScore
    seconds: float
    applied: int
    wrong: list[str]


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--sync", nargs="+", metavar="A:B", help="only these vllm-omni releases")
    parser.add_argument("--held-out", action="store_true", help="only the transitions that were held out")
    parser.add_argument("--cases", action="store_true", help="list what was not taken, and what was missed")
    args = parser.parse_args(argv)
    only = HELD_OUT if args.held_out else args.sync
    run = begin("bench-port", args, only)
    chosen = only or [*SYNCS, *(HELD_OUT if run.whole else ())]
    found = [run.result(sync, {}, Transition, measure, *sync.split(":")) for sync in chosen]
    print(report(found, args.cases))
    figures = summary(found)
    least = {"precision": PRECISION, "recall": RECALL}
    missed = [f"{k}={figures[k]}, at least {v}" for k, v in least.items() if float(figures[k]) < v]
    missed += [f"{one.name}: {what}" for one in found for what in one.wrong]
    return run.close(figures, missed)


def measure(before: str, after: str) -> Transition:
    """List what the GPU side of ``after`` has for the NPU runners of ``before``, and score the list."""
    say(f"measuring {before} -> {after}")
    old, new = release(before), release(after)
    ascend = infer_base(new.tree, "pypi:vllm-ascend").spec
    begun = time.monotonic()
    args = Namespace(
        omni=old.tree.spec, gpu=new.tree.spec, ascend=ascend, vllm=None, since="auto", before=None
    )
    inputs = port_inputs.read(args)
    assert inputs.since, "the runners of a release follow one"
    found = survey(inputs.npu, inputs.since, inputs.new, inputs.upstream, {})
    seconds = time.monotonic() - begun
    later = [release(version) for version in _from(after)]
    tiers = [[entry for entry in found.left if entry.tier == tier] for tier in (1, 2, 3)]
    lines = [_lines(entries, inputs.npu) for entries in tiers]
    hits = [taken(part, old, later) for part in lines]
    human = human_lines(old, new, inputs.since.side, inputs.upstream)
    score = PortScore(
        *(counts.total() for pair in zip(lines, hits, strict=True) for counts in pair),
        human=human.total(),
        held=(human & lines[0]).total(),
        cases=[*_cases("not taken", lines[0] - hits[0]), *_cases("missed", human - lines[0])],
    )
    sizes = len(tiers[0]), len(tiers[1]), len(tiers[2])
    since = str(inputs.since.side.tree.version)
    return Transition(f"{before} -> {after}", since, sizes, score, seconds, *judge(inputs, found))


def _lines(entries: Sequence[Ranked], npu: port_inputs.NpuSide) -> Lines:
    return sum((open_lines(entry.hunk, npu) for entry in entries), Lines())


def _from(version: str) -> list[str]:
    """That release and all later ones."""
    usable = [r.version for r in releases_of("vllm-omni") if not r.yanked]
    return sorted((v for v in usable if Version(v) >= Version(version)), key=Version)


def _cases(what: str, lines: Lines) -> list[str]:
    return [f"{what}: {kind}.{unit.rpartition('.')[2]} {line[:110]}" for kind, unit, line in lines]


def report(found: Sequence[Transition], cases: bool) -> str:
    head = ("transition", "since", "hunks 1/2/3", "top lines", "taken", "precision", "human", "held")
    head += ("recall", "2nd lines", "taken ", "3rd lines", "taken  ", "seconds", "applied", "wrong")
    text = table(head, [_row(t) for t in found])
    if cases:
        text += "".join(f"\n{t.name} {case}" for t in found for case in t.score.cases)
    return text


def _row(t: Transition) -> tuple[str, ...]:
    s = t.score
    top = (t.name, t.since, "/".join(map(str, t.hunks)), s.top, s.top_taken, _ratio(s.top_taken, s.top))
    rest = (s.second, s.second_taken, s.third, s.third_taken, f"{t.seconds:.1f}")
    return tuple(map(str, (*top, s.human, s.held, _ratio(s.held, s.human), *rest, t.applied, len(t.wrong))))


def summary(found: Sequence[Transition]) -> dict[str, str]:
    """The figures of the last line."""
    whole = PortScore()
    for transition in found:
        whole.add(transition.score)
    return {
        "precision": f"{whole.top_taken / max(1, whole.top):.3f}",
        "recall": f"{whole.held / max(1, whole.human):.3f}",
        "top_lines": str(whole.top),
        "taken": str(whole.top_taken),
        "human": str(whole.human),
        "held": str(whole.held),
        "applied": str(sum(t.applied for t in found)),
        "wrong": str(sum(len(t.wrong) for t in found)),
        "slowest_s": f"{max(t.seconds for t in found):.1f}",
    }


def _ratio(part: int, all_: int) -> str:
    return f"{part / all_:.2f}" if all_ else "-"


if __name__ == "__main__":
    sys.exit(main())
