"""``python -m runner_checks.throughput PLAN``: decode throughput of stock vLLM, and with our runner in front.

One engine, whose classes are exchanged between repetitions: "stock" is vLLM's runner and scheduler, "off"
ours with payloads opted out, "on" ours with payloads. The variants take turns, so that whatever else the
machine does meets all of them. PLAN is JSON with ``folder``, ``batches``, ``tokens`` and ``repetitions``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

from runner_checks import probe

VARIANTS = ("stock", "off", "on")
CLOCKS = ("cpu", "wall")  # the engine is one process with one thread: its CPU time is what its steps cost


def main(plan: dict) -> dict:
    """Tokens per second of each repetition by batch, clock and variant, and the least cosine."""
    from runner_checks import ar

    options = {"enable_prefix_caching": False, "max_num_batched_tokens": 128, "max_num_seqs": 16}
    engine = probe.start({"folder": plan["folder"], "options": options}, ar)
    found = {"cosine": _cosine(engine, Path(plan["folder"])), **probe.classes(engine), "rates": {}}
    for batch in plan["batches"]:
        rates = {clock: {variant: [] for variant in VARIANTS} for clock in CLOCKS}
        for variant in VARIANTS:
            _run(engine, variant, batch, 8)  # warm
        for repetition in range(plan["repetitions"]):
            turned = repetition % len(VARIANTS)
            for variant in (*VARIANTS[turned:], *VARIANTS[:turned]):
                for clock, rate in zip(CLOCKS, _run(engine, variant, batch, plan["tokens"]), strict=True):
                    rates[clock][variant].append(rate)
        found["rates"][str(batch)] = rates
    return found


def _run(engine, variant: str, batch: int, tokens: int) -> tuple[float, float]:
    """Tokens per second of one repetition, by each of ``CLOCKS``."""
    from omni_runners import client
    from runner_checks import ar

    prompts = [[5 + one, 6, 7] for one in range(batch)]
    with ar.stock(engine) if variant == "stock" else contextlib.nullcontext():
        began, worked = time.perf_counter(), time.process_time()
        wanted = {"omni_payload": variant == "on"}
        outputs = ar.ask(engine, prompts, max_tokens=tokens, extra_args=wanted)
        worked, seconds = time.process_time() - worked, time.perf_counter() - began
    if variant == "on":
        for output in outputs:
            client.take(output)
    return batch * tokens / worked, batch * tokens / seconds


def _cosine(engine, folder: Path) -> float:
    """The least over all rows of a mixed batch with split prompts, against Hugging Face's model."""
    import torch

    from omni_runners import client
    from runner_checks import ar

    least = 1.0
    for prompt, output in zip(ar.PROMPTS, ar.ask(engine), strict=True):
        ids = [*prompt, *output.outputs[0].token_ids][:-1]
        ours, theirs = client.take(output).tensors["hidden"].float(), ar.reference(folder, ids)
        least = min(least, torch.nn.functional.cosine_similarity(ours, theirs, dim=-1).min().item())
    return least


if __name__ == "__main__":
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # OMP_NUM_THREADS counts
    print("\n" + json.dumps(main(json.loads(sys.argv[1]))), flush=True)
