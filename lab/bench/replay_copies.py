"""Replay what a project that copies vLLM does each release: its copies onto the vLLM of the next.

For a step N to N+1: ours is release N, the target is the vLLM that N+1 belongs with, and the person's result
is release N+1. Every copy of a function or method counts, in whichever file it is. What the person took over
of a unit that both vLLMs have alike is no part of the step: it counts as taken up again.
"""

from __future__ import annotations

import textwrap

from bench.replay_score import Score, Texts, score_method
from npu_upgrade.audit.triples import vllm_of
from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.ground.collector import no_collector
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.origins import Origins
from npu_upgrade.merge.copies import merge_copies
from npu_upgrade.merge.runners import MergedRunners, MethodOutcome
from npu_upgrade.sources.tree import SourceTree, open_source

STEPS = (
    *("0.22.1rc1:0.23.0rc1", "0.23.0rc1:0.24.0rc1", "0.24.0rc1:0.25.1rc1"),
    *("0.25.1rc1:0.26.0rc1", "0.26.0rc1:0.27.1rc1", "0.27.1rc1:0.28.0rc1"),
)
LABELS = ("ours", "base", "theirs")


def replay_copies(before: str, after: str) -> tuple[str, str, MergedRunners, Score]:
    """The vLLM of both releases of vllm-ascend, what the merge made, and its score."""
    say(f"replaying vllm-ascend {before} -> {after}")
    own, human = (open_source(f"pypi:vllm-ascend=={version}") for version in (before, after))
    was, spec = vllm_of(own), vllm_of(human)
    assert was
    assert spec, "a release of vllm-ascend names its vLLM"
    target = open_source(spec)
    now = open_source(was)
    origins = Origins(Downstream(own, {"vllm": now}), {"vllm": spec})
    with no_collector():
        merged = merge_copies(origins, target, labels=LABELS, now=now)
    score = Score()
    for outcome in merged.methods:
        texts = _texts(outcome, own, human)
        if texts and outcome.merged:
            score.add(score_method(texts, outcome.merged))
    return was, spec, merged, score


def _texts(outcome: MethodOutcome, own: SourceTree, human: SourceTree) -> Texts | None:
    """The texts to compare; None when the person dropped the unit."""
    entry = outcome.entry
    person = parse_module(human.read(entry.path)).units.get(entry.name) if human.exists(entry.path) else None
    if person is None or outcome.upstream_text is None:
        return None
    module = parse_module(own.read(entry.path))
    ours, theirs = module.units[entry.name].source, outcome.upstream_text
    moved = moved_texts(module, human, entry.path)
    return Texts(
        f"{entry.path}:{entry.name}",
        theirs if outcome.old else outcome.base_text,
        ours,
        theirs,
        person.source,
        (),
        (outcome.base_text, theirs),
        moved=moved,
    )


def moved_texts(module: Module, human: SourceTree, path: str) -> str:
    """The functions of the person's file that ours does not have."""
    units = parse_module(human.read(path)).units.values()
    return "\n".join(textwrap.dedent(unit.source) for unit in units if unit.qualname not in module.units)
