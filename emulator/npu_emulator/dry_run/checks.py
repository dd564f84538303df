"""How a probe's outputs are judged: the reason they are wrong, or nothing."""

from __future__ import annotations

import json
from pathlib import Path

from npu_emulator.dry_run.engine import Output

TOLERANCE = 2e-3  # of a log-probability in float32, over different orders of summation


def tokens(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """Tokens and log-probabilities equal those of the reference."""
    expected = _expected(stage, wanted, folder, probe, plan)
    for index, (one, other) in enumerate(zip(outputs, expected, strict=True)):
        if not one.finished:
            return f"request {index} did not finish"
        if one.tokens != other.tokens:
            return f"request {index}: tokens {one.tokens}, the reference has {other.tokens}"
        far = _farthest(one.logprobs, other.logprobs)
        if far > TOLERANCE:
            return f"request {index}: a log-probability is {far:.4f} away from the reference"
    return ""


def _expected(stage, wanted, folder, probe, plan) -> list[Output]:
    """The reference: vLLM's own on a CPU where the plan names it, else the stage's in torch."""
    path = plan.get("references", {}).get(wanted.name)
    if path is None:
        return stage.expected(folder, probe)
    found = json.loads(Path(path).read_text(encoding="utf-8"))["probes"][probe.name]
    return [Output(one["tokens"], one["logprobs"], {}) for one in found]


def _farthest(ours, theirs) -> float:
    if len(ours) != len(theirs):
        return float("inf")
    return max((abs(one - other) for one, other in zip(ours, theirs, strict=True)), default=0.0)


def repeatable(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """The same seeded request gives the same tokens again, alone and beside others."""
    again = stage.run(running, probe, "again ")
    alone = stage.run(running, probe, "alone ", probe.prompts[:1])
    for name, other in (("again", again), ("alone", alone)):
        for index, (one, two) in enumerate(zip(outputs, other, strict=False)):
            if not two.finished or one.tokens != two.tokens:
                return f"request {index}: tokens {one.tokens}, run {name} {two.tokens}"
    return ""


def finishes(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """Each request finishes."""
    late = [str(index) for index, output in enumerate(outputs) if not output.finished]
    return f"requests {', '.join(late)} did not finish" if late else ""


CHECKS = {"tokens": tokens, "repeatable": repeatable, "finishes": finishes}
