"""``python -m runner_checks.throughput PLAN``: what a decode step costs on stock vLLM, and with our runner.

One engine decodes, and its classes are exchanged from step to step: "stock" is vLLM's runner and scheduler,
"off" ours with payloads opted out, "on" ours with payloads. So three steps beside each other meet the same
machine, whatever else runs on it. PLAN is JSON with ``folder``, ``batches``, ``tokens`` and ``repetitions``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from runner_checks import probe

VARIANTS = ("stock", "off", "on")
CLOCKS = ("cpu", "wall")  # the engine is one process with one thread: its CPU time is what its steps cost


def main(plan: dict) -> dict:
    """Seconds of each decode step by batch, clock and variant, of handing over, and the least cosine."""
    from runner_checks import ar

    options = {"enable_prefix_caching": False, "max_num_batched_tokens": 128, "max_num_seqs": 16}
    engine = probe.start({"folder": plan["folder"], "options": options}, ar)
    found = {"cosine": _cosine(engine, Path(plan["folder"])), **probe.classes(engine), "batches": {}}
    for batch in plan["batches"]:
        steps = {clock: {variant: [] for variant in VARIANTS} for clock in CLOCKS}
        delivered: list[float] = []
        for repetition in range(plan["repetitions"] + 1):
            one = {clock: {variant: [] for variant in VARIANTS} for clock in CLOCKS}
            _decode(engine, batch, plan["tokens"], f"{batch}-{repetition}", one, delivered)
            if repetition:  # the first one warms up
                for clock in CLOCKS:
                    for variant in VARIANTS:
                        steps[clock][variant] += one[clock][variant]
        found["batches"][str(batch)] = {"steps": steps, "delivery": delivered[batch:]}
    return found


def _decode(engine, batch: int, tokens: int, name: str, steps: dict, delivered: list[float]) -> None:
    """One batch from its prompts to its last tokens; the variants take turns in groups of three steps."""
    from vllm import SamplingParams

    from omni_runners import client

    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True, detokenize=False)
    for index in range(batch):
        prompt = {"prompt_token_ids": [5 + index, 6, 7]}
        engine.llm_engine.add_request(f"{name}-{index}", prompt, params)
    engine.llm_engine.step()  # the prompts, with our runner
    for turn in range((tokens - 3) // len(VARIANTS)):
        first = turn % len(VARIANTS)
        for variant in (*VARIANTS[first:], *VARIANTS[:first]):
            with _variant(engine, variant):
                began, worked = time.perf_counter(), time.process_time()
                engine.llm_engine.step()
                worked, seconds = time.process_time() - worked, time.perf_counter() - began
            steps["cpu"][variant].append(worked)
            steps["wall"][variant].append(seconds)
    with _timed_delivery(engine, delivered):
        while engine.llm_engine.has_unfinished_requests():
            for output in engine.llm_engine.step():
                if output.finished:
                    client.take(output)


@contextlib.contextmanager
def _variant(engine, variant: str) -> Iterator[None]:
    from runner_checks import ar

    if variant == "stock":
        with ar.stock(engine):
            yield
        return
    requests = probe.runner_of(engine)._omni_requests
    if variant == "off":
        requests.wants_payload = lambda request_id: False
    try:
        yield
    finally:
        vars(requests).pop("wants_payload", None)


@contextlib.contextmanager
def _timed_delivery(engine, seconds: list[float]) -> Iterator[None]:
    """Collect how long the scheduler takes to hand over each request."""
    scheduler = probe.core_of(engine).scheduler
    real = scheduler._omni_deliver

    def deliver(output):
        worked = time.process_time()
        real(output)
        seconds.append(time.process_time() - worked)

    scheduler._omni_deliver = deliver
    try:
        yield
    finally:
        del scheduler._omni_deliver


def _cosine(engine, folder: Path) -> float:
    """The least over all rows of a mixed batch with split prompts, against Hugging Face's model."""
    from runner_checks import ar

    pairs = zip(ar.PROMPTS, ar.ask(engine), strict=True)
    return min(ar.compared(output, prompt, folder)[1] for prompt, output in pairs)


if __name__ == "__main__":
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # OMP_NUM_THREADS counts
    print("\n" + json.dumps(main(json.loads(sys.argv[1]))), flush=True)
