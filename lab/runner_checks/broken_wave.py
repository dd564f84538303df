"""Checks of a generation engine with a model whose forward fails for one request."""

from __future__ import annotations

from vllm import SamplingParams

from omni_runners import client
from omni_runners.errors import PayloadError
from runner_checks.broken import left
from runner_checks.generation import SCHEDULERS as SCHEDULERS
from runner_checks.generation import WORKER as WORKER

TEXT = "BrokenWaveform: RuntimeError: mat1 and mat2 shapes cannot be multiplied"


def a_forward_that_fails(engine, folder):
    """Its request is told, the next one is served, nothing is left."""
    params = SamplingParams(max_tokens=1, extra_args={"omni_info": {"fault": "forward"}})
    broken = engine.generate({"prompt_token_ids": [7, 9]}, params, use_tqdm=False)[0]
    if broken.outputs[0].finish_reason != "abort" or TEXT not in str(broken.outputs[0].stop_reason):
        return f"{broken.outputs[0].finish_reason}: {broken.outputs[0].stop_reason!r}"
    try:
        client.take(broken)
        return "it got a payload"
    except PayloadError as error:
        if TEXT not in str(error):
            return f"the client is told {error}"
    after = engine.generate({"prompt_token_ids": [7, 9, 11]}, SamplingParams(max_tokens=1), use_tqdm=False)[0]
    return left(engine) if len(client.take(after).tensors["wave"]) == 3 else "the next one is not served"


CHECKS = {a_forward_that_fails.__name__: a_forward_that_fails}
