"""How a probe's outputs are judged: the reason they are wrong, or nothing."""

from __future__ import annotations

TOLERANCE = 2e-3  # of a log-probability in float32, over different orders of summation


def tokens(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """Tokens and log-probabilities equal those of the reference."""
    expected = stage.expected(folder, probe)
    for index, (one, other) in enumerate(zip(outputs, expected, strict=True)):
        if not one.finished:
            return f"request {index} did not finish"
        if one.tokens != other.tokens:
            return f"request {index}: tokens {one.tokens}, the reference has {other.tokens}"
        far = _farthest(one.logprobs, other.logprobs)
        if far > TOLERANCE:
            return f"request {index}: a log-probability is {far:.4f} away from the reference"
    return ""


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
