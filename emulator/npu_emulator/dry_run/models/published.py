"""The reference of models that transformers implements: its own code on the same checkpoint, float32, CPU."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import pad

from npu_emulator.dry_run.engine import Output
from npu_emulator.dry_run.models.reference import penalised

_KINDS = "mm_token_type_ids"


@functools.cache
def _load(folder: Path, kind: str):
    import transformers

    model = getattr(transformers, kind).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    return model.eval()


@torch.inference_mode()
def likelihoods(folder: Path, prompts, outputs: list[Output], kind: str) -> list[list[tuple[float, float]]]:
    """For each token of each output its log-probability after those before it, and that of the likeliest."""
    model, results = _load(folder, kind), []
    for prompt, output in zip(prompts, outputs, strict=True):
        asked = torch.tensor([[*prompt, *output.tokens]])
        logits = model(input_ids=asked, use_cache=False).logits[0, len(prompt) - 1 : -1]
        scores = logits.float().log_softmax(-1)
        chosen = scores.gather(1, torch.tensor(output.tokens)[:, None])[:, 0]
        results.append(list(zip(chosen.tolist(), scores.amax(1).tolist(), strict=True)))
    return results


@torch.inference_mode()
def generate(
    folder: Path, requests: list[dict[str, Any]], sampling: dict[str, Any], kind: str
) -> list[Output]:
    """Greedy tokens and their log-probabilities for each request, anew from its first token each step.

    A request is what ``forward`` of the model class ``kind`` takes for one sequence: ``input_ids``
    (1, tokens), and of the same shape ``mm_token_type_ids``, 1 for a picture's tokens, which only newer
    classes take.
    """
    model = _load(folder, kind)
    taken = inspect.signature(model.forward).parameters
    results = []
    for request in requests:
        inputs, logprobs = {key: value for key, value in request.items() if key in taken}, []
        asked = inputs["input_ids"].shape[1]
        for _ in range(sampling["max_tokens"]):
            logits = model(**inputs, use_cache=False).logits[0, -1].float()
            before = inputs["input_ids"][0].tolist()
            chosen = int(penalised(logits, before, sampling.get("repetition_penalty", 1.0)).argmax())
            logprobs.append(float(logits.log_softmax(-1)[chosen]))
            inputs["input_ids"] = pad(inputs["input_ids"], (0, 1), value=chosen)
            if _KINDS in inputs:
                inputs[_KINDS] = pad(inputs[_KINDS], (0, 1))
        results.append(Output(inputs["input_ids"][0, asked:].tolist(), logprobs, {}))
    return results
