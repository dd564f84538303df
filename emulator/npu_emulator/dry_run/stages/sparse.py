"""An audio AR stage whose model speaks for some requests of each step only."""

from __future__ import annotations

import torch

from npu_emulator.dry_run.models.omni_sparse import EVERY, RATE, SHAPE
from npu_emulator.dry_run.stages import ar, plain

start, classes = ar.start, ar.classes


def run(running, probe, prefix="", prompts=None):
    """The outputs of a probe's requests, what they spoke one row a step."""
    outputs = ar.run(running, probe, prefix, prompts)
    for output in outputs:
        for key in ("model_outputs", "sr", "shape"):
            output.payload[key] = [value.reshape(1, -1) for value in output.payload.get(key, [])]
    return outputs


def expected(folder, probe):
    """Tokens, and the negated last hidden state of each step after which a request speaks."""
    outputs = plain.expected(folder, probe)
    for prompt, output in zip(probe.prompts, outputs, strict=True):
        states = output.payload.pop("hidden")[0]
        totals = [total for total in range(len(prompt), len(states) + 1) if total % EVERY == 0]
        output.payload["model_outputs"] = [-states[total - 1 : total] for total in totals]
        output.payload["sr"] = [torch.tensor([[float(RATE)]]) for _ in totals]
        output.payload["shape"] = [torch.tensor([SHAPE]).double() for _ in totals]
    return outputs
