"""Checks of a generation engine: one step, no tokens that mean anything, tensors per request."""

from __future__ import annotations

import torch

from omni_runners import client
from runner_checks.ar import ask
from runner_checks.probe import core_of

WORKER = "omni_runners.cpu.CPUGenerationWorker"
SCHEDULERS = {
    False: "omni_runners.schedulers.GenerationScheduler",
    True: "omni_runners.schedulers.GenerationAsyncScheduler",
}
PROMPTS = ([7, 9, 11], list(range(3, 153)), [5] * 40, [9] * 100)


def one_forward_gives_everything(engine, folder):
    """Four requests, more tokens together than a step has: each is whole in one step."""
    from safetensors.torch import load_file

    embeddings = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    outputs = ask(engine, PROMPTS, max_tokens=64, temperature=0.7, repetition_penalty=1.2)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        tensors = client.take(output).tensors
        if set(tensors) != {"wave", "length"}:
            return f"tensors {sorted(tensors)}"
        if tensors["length"].tolist() != [len(prompt)]:
            return f"lengths {tensors['length'].tolist()} of {len(prompt)} tokens"
        if not torch.allclose(tensors["wave"], embeddings[prompt].float() * 3):
            return f"the waveform of {len(prompt)} tokens is another one"
        if len(output.outputs[0].token_ids) != 1:
            return f"tokens {output.outputs[0].token_ids}"
    return ""


def there_is_no_key_value_cache(engine, folder):
    """The model has no attention."""
    groups = core_of(engine).model_executor.driver_worker.worker.model_runner.kv_cache_config.kv_cache_groups
    return f"{len(groups)} groups" if groups else ""


CHECKS = {one.__name__: one for one in (one_forward_gives_everything, there_is_no_key_value_cache)}
