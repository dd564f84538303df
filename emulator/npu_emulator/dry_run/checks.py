"""How a probe's outputs are judged: the reason they are wrong, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from npu_emulator.dry_run.engine import Output, worker_of


def tokens(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """Tokens and log-probabilities equal those of the reference."""
    expected = _expected(stage, wanted, folder, probe, plan)
    for index, (one, other) in enumerate(zip(outputs, expected, strict=True)):
        if not one.finished:
            return f"request {index} did not finish"
        if one.tokens != other.tokens:
            return f"request {index}: tokens {one.tokens}, the reference has {other.tokens}"
        far = _farthest(one.logprobs, other.logprobs)
        if far > wanted.tolerance:
            return f"request {index}: a log-probability is {far:.4f} away from the reference"
    return ""


def _expected(stage, wanted, folder, probe, plan) -> list[Output]:
    """The reference: vLLM's own on a CPU where the plan names it, else the stage's in torch."""
    path = plan.get("references", {}).get(wanted.name)
    if path is None:
        return stage.expected(folder, probe)
    found = json.loads(Path(path).read_text(encoding="utf-8"))["probes"][probe.name]
    return [Output(one["tokens"], one["logprobs"], {}) for one in found]


def likely(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """Each token has the reference's log-probability after those before it, and none is much likelier."""
    for index, (one, steps) in enumerate(
        zip(outputs, stage.likelihoods(folder, probe, outputs), strict=True)
    ):
        if not one.finished:
            return f"request {index} did not finish"
        far = _farthest(one.logprobs, [same for same, _ in steps])
        if far > wanted.tolerance:
            return f"request {index}: a log-probability is {far:.4f} away from the reference"
        worse = max((best - same for same, best in steps), default=0.0)
        if worse > wanted.tolerance:
            return f"request {index}: a token is {worse:.4f} less likely than the reference's best"
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


def payload(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """The reference's tokens, and its payload from what each request gathered over its steps."""
    for index, (one, other) in enumerate(zip(outputs, stage.expected(folder, probe), strict=True)):
        if not one.finished:
            return f"request {index} did not finish"
        if one.tokens != other.tokens:
            return f"request {index}: tokens {one.tokens}, the reference has {other.tokens}"
        for key, values in other.payload.items():
            why = _differs(one.payload.get(key, []), values, wanted.tolerance)
            if why:
                return f"request {index}: payload {key!r} {why}"
    return ""


def _differs(ours: list[Any], theirs: list[Any], tolerance: float) -> str:
    if not ours:
        return "is missing"
    ours, theirs = torch.cat(ours), torch.cat(theirs)
    if ours.shape != theirs.shape:
        return f"has shape {tuple(ours.shape)}, the reference {tuple(theirs.shape)}"
    far = float((ours.cpu().double() - theirs.double()).abs().max())
    return "" if far <= tolerance else f"is {far:.4f} away from the reference"


def idle(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """The reference's tokens before an idle data-parallel rank's dummy batches and after them."""
    why = tokens(stage, running, wanted, folder, probe, outputs, plan)
    for _ in range(2):
        running.model_executor.execute_dummy_batch()  # as vLLM's engine core of such a rank does
    again = stage.run(running, probe, "after ")
    return why or tokens(stage, running, wanted, folder, probe, again, plan)


def preempted(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """The reference's tokens although at least one request was preempted."""
    if not any(output.preempted for output in outputs):
        return "no request was preempted"
    return tokens(stage, running, wanted, folder, probe, outputs, plan)


def asynchronous(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """Tokens, and the runner schedules asynchronously exactly when the scenario asks for it."""
    asked, found = wanted.options["async_scheduling"], worker_of(running).model_runner.use_async_scheduling
    if bool(found) is not asked:
        return f"the runner's use_async_scheduling is {found}, expected {asked}"
    return tokens(stage, running, wanted, folder, probe, outputs, plan)


def stops(stage, running, wanted, folder, probe, outputs, plan) -> str:
    """The server ends when it is told to, and nothing of it is left."""
    return stage.stop(running)


CHECKS = {
    "tokens": tokens,
    "likely": likely,
    "payload": payload,
    "repeatable": repeatable,
    "idle": idle,
    "preempted": preempted,
    "asynchronous": asynchronous,
    "stops": stops,
}
