"""An AR stage whose model has a recurrent state; an idle rank's dummy batches may come between its steps."""

from __future__ import annotations

import dataclasses

import torch

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models import reference
from npu_emulator.dry_run.stages import ar

classes = ar.classes
KEPT = 0.5  # of a state, with each token


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``, whose model has a recurrent layer before its own."""
    import vllm_omni  # noqa: F401 - patches vLLM, before a model of it is imported

    from npu_emulator.dry_run.models import omni_hybrid

    wanted = dataclasses.replace(wanted, model=omni_hybrid.__name__.rpartition(".")[2])
    return ar.start(wanted, folder, options | {"hf_overrides": omni_hybrid.CONFIG})


def run(running, probe, prefix="", prompts=None):
    """The outputs of a probe's requests."""
    return ar.run(Idling(running) if "idle" in probe.name else running, probe, prefix, prompts)


class Idling:
    """An engine that makes an idle data-parallel rank's dummy batch after each of its steps."""

    def __init__(self, running) -> None:
        self._running = running

    def __getattr__(self, name: str):
        return getattr(self._running, name)

    def step(self):
        outputs = self._running.step()
        self._running.model_executor.execute_dummy_batch()  # as vLLM's engine core of such a rank does
        return outputs


@torch.inference_mode()
def expected(folder, probe):
    """Tokens, and the hidden states that the model negates, of embeddings with what came before them."""
    sampling = engine.GREEDY | probe.sampling
    return [_one(folder, prompt, sampling["max_tokens"]) for prompt in probe.prompts]


def _one(folder, prompt, most: int) -> engine.Output:
    tokens, chosen, logprobs = list(prompt), [], []
    while True:
        states = remembered(folder, tokens)
        scores = reference.logits(folder, states[-1])
        chosen.append(reference.most_likely(scores))
        logprobs.append(float(scores.log_softmax(-1)[chosen[-1]]))
        if len(chosen) == most:
            return engine.Output(chosen, logprobs, {"hidden_states.last": [-states]})
        tokens.append(chosen[-1])


def remembered(folder, tokens) -> torch.Tensor:
    """The final hidden states where each token has what is left of those before it."""
    inputs = reference.embed(folder, tokens)
    at = torch.arange(len(tokens))
    ages = (at[:, None] - at[None, :]).float()
    left = torch.where(ages >= 0, KEPT ** ages.clamp(min=0), torch.zeros(()))
    return reference.decode(folder, left @ inputs)
