"""Checks of an AR engine whose model preprocesses, postprocesses and makes codes with ``talker_mtp``."""

from __future__ import annotations

import torch

from omni_runners import client
from runner_checks.ar import SCHEDULERS as SCHEDULERS
from runner_checks.ar import WORKER as WORKER
from runner_checks.ar import ask
from runner_checks.models import CODES

PROMPTS = ([7, 9, 11], list(range(3, 40)), [5] * 20)


def codes_and_tokens_equal_the_reference(engine, folder):
    """A batch, against a step-by-step reference in torch."""
    for index, (prompt, output) in enumerate(zip(PROMPTS, ask(engine, PROMPTS), strict=True)):
        tokens, codes = reference(folder, prompt, 6)
        found = client.take(output).tensors["codes.audio"]
        if list(output.outputs[0].token_ids) != tokens:
            return f"request {index}: tokens {output.outputs[0].token_ids}, expected {tokens}"
        if not torch.equal(found[found[:, 0] >= 0], codes):
            return f"request {index}: codes {found.tolist()}, expected {codes.tolist()}"
    return ""


@torch.inference_mode()
def reference(folder, prompt, most):
    """The tokens, and the codes (steps after the prompt, CODES)."""
    from npu_emulator.dry_run.models import reference as dense

    inputs, tokens, codes = dense.embed(folder, prompt), [], []
    text = inputs[:1]
    while True:
        last = dense.decode(folder, inputs)[-1:]
        tokens.append(dense.most_likely(dense.logits(folder, last[0])))
        if len(tokens) == most:
            return tokens, torch.cat(codes)
        mixed = dense.embed(folder, tokens[-1:]) + 0.5 * torch.tanh(last) + 0.25 * text
        codes.append(mixed.topk(CODES, dim=-1).indices)
        inputs = torch.cat((inputs, mixed))


CHECKS = {codes_and_tokens_equal_the_reference.__name__: codes_and_tokens_equal_the_reference}
