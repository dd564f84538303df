"""Start an engine in this process and run requests through it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from npu_emulator.dry_run import observe

COMMON = {
    "dtype": "float32",
    "seed": 0,
    "max_model_len": 256,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 256,
    "enable_prefix_caching": False,
}
GREEDY = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True, "logprobs": 1, "detokenize": False}
_MOST_STEPS = 400


@dataclass
class Output:
    """What one request gave: token ids, the log-probability of each, and its multimodal payload."""

    tokens: list[int]
    logprobs: list[float]
    payload: dict[str, Any]
    finished: bool = True


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


def generate(engine, prompts, sampling: dict[str, Any], prefix: str = "") -> list[Output]:
    """Run ``prompts`` (token ids) together; the outputs in their order."""
    from vllm import SamplingParams

    for index, prompt in enumerate(prompts):
        parameters = SamplingParams(**GREEDY | sampling)
        engine.add_request(f"{prefix}{index}", {"prompt_token_ids": list(prompt)}, parameters)
    finished: dict[str, Any] = {}
    payloads: dict[str, dict[str, Any]] = {}
    for _ in range(_MOST_STEPS):
        if not engine.has_unfinished_requests():
            break
        for output in engine.step():
            payloads.setdefault(output.request_id, {}).update(_payload(output))
            if output.finished:
                finished[output.request_id] = output
    names = [f"{prefix}{index}" for index in range(len(prompts))]
    return [_read(finished.get(name), payloads.get(name, {})) for name in names]


def _payload(output) -> dict[str, Any]:
    completion = output.outputs[0] if getattr(output, "outputs", None) else None
    found = getattr(completion, "multimodal_output", None) or getattr(output, "multimodal_output", None)
    return dict(found) if found else {}


def _read(output, payload: dict[str, Any]) -> Output:
    if output is None:
        return Output([], [], payload, finished=False)
    completion = output.outputs[0]
    tokens = list(completion.token_ids)
    steps = completion.logprobs or []
    logprobs = [step[token].logprob for token, step in zip(tokens, steps, strict=False)]
    return Output(tokens, logprobs, payload)
