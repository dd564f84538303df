"""Start an engine in this process and run requests through it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from npu_emulator.dry_run import observe, payloads

COMMON = {
    "dtype": "float32",
    "seed": 0,
    "max_model_len": 256,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 256,
    "enable_prefix_caching": False,
}
GREEDY = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True, "logprobs": 1, "detokenize": False}
_MOST_STEPS = 2000


class Absent(Exception):
    """The release at hand has no such feature: nothing to judge, and no failure."""


@dataclass
class Output:
    """What one request gave: token ids, the log-probability of each, and its multimodal payload.

    ``payload`` has for each key the values of all steps; ``preempted`` tells how often the request was.
    """

    tokens: list[int]
    logprobs: list[float]
    payload: dict[str, list[Any]]
    finished: bool = True
    preempted: int = 0


def start(arguments, worker_cls: str | None = None):
    """An engine of vLLM's own LLMEngine from engine arguments; the worker runs in this process."""
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.executor import Executor

    if worker_cls:
        arguments.worker_cls = worker_cls
    config = arguments.create_engine_config()
    return LLMEngine(config, Executor.get_class(config), log_stats=False, multiprocess_mode=False)


def worker_of(engine):
    """The worker object of an engine with one worker in this process."""
    return engine.model_executor.driver_worker.worker


def observed(engine) -> list[dict]:
    """What each worker tells about itself (:func:`observe.worker`), in the order of their ranks."""
    return engine.model_executor.collective_rpc(observe.worker)


def end(engine) -> dict[str, Any]:
    """What is known at the end of a run: the graphs that all workers captured and replayed."""
    graphs: Counter[str] = Counter()
    for found in observed(engine):
        graphs.update(found["graphs"])
    return {"graphs": dict(graphs)}


def generate(engine, prompts, sampling: dict[str, Any], prefix: str = "", every: int = 0) -> list[Output]:
    """Run ``prompts`` (token ids), one more ``every`` so many steps (0: together); outputs in order."""
    from vllm import SamplingParams

    seen = payloads.observe(engine)
    finished: dict[str, Any] = {}
    names = [f"{prefix}{index}" for index in range(len(prompts))]
    added = 0
    for step in range(_MOST_STEPS):
        while added < len(prompts) and added * every <= step:
            parameters = SamplingParams(**GREEDY | sampling)
            engine.add_request(names[added], _asked(prompts[added]), parameters)
            added += 1
        if added == len(prompts) and not engine.has_unfinished_requests():
            break
        outputs = engine.step()
        if not outputs:
            time.sleep(0.002)  # a stage may wait for a chunk from outside
        finished |= {output.request_id: output for output in outputs if output.finished}
    return [_read(name, finished.get(name), seen) for name in names]


def _asked(prompt):
    """A request as the engine takes it; one that is not token ids alone is so already."""
    return prompt if isinstance(prompt, dict) else {"prompt_token_ids": list(prompt)}


def _read(name: str, output, seen: payloads.Observed) -> Output:
    payload, preempted = seen.payloads.pop(name, {}), seen.preemptions.pop(name, 0)
    if output is None:
        return Output([], [], payload, finished=False, preempted=preempted)
    completion = output.outputs[0]
    tokens = list(completion.token_ids)
    steps = completion.logprobs or []
    logprobs = [step[token].logprob for token, step in zip(tokens, steps, strict=False)]
    return Output(tokens, logprobs, payload, preempted=preempted)
