"""An AR stage whose model talks: ``talker_mtp`` makes the input embedding of each step after the prompt."""

from __future__ import annotations

import torch

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models import reference
from npu_emulator.dry_run.stages import ar

start, classes = ar.start, ar.classes


def run(running, probe, prefix="", prompts=None):
    """The outputs of a probe's requests; the codes without the rows that stand for steps of the prompt."""
    outputs = ar.run(running, probe, prefix, prompts)
    for output in outputs:
        codes = output.payload.get("codes.audio", [])
        output.payload["codes.audio"] = [row for row in codes if (row >= 0).all()]
    return outputs


@torch.inference_mode()
def expected(folder, probe):
    """Tokens, and the codes of each step after the prompt."""
    sampling = engine.GREEDY | probe.sampling
    return [_one(folder, prompt, sampling["max_tokens"]) for prompt in probe.prompts]


def _one(folder, prompt, most: int) -> engine.Output:
    from npu_emulator.dry_run.models.omni_talker import predict

    inputs = reference.embed(folder, prompt)
    text, tokens, logprobs, codes = inputs[:1], [], [], []
    while True:
        last = reference.decode(folder, inputs)[-1:]
        scores = reference.logits(folder, last[0])
        tokens.append(reference.most_likely(scores))
        logprobs.append(float(scores.log_softmax(-1)[tokens[-1]]))
        if len(tokens) == most:
            return engine.Output(tokens, logprobs, {"codes.audio": codes})
        mixed, code = predict(reference.embed(folder, tokens[-1:]), last, text)
        inputs, codes = torch.cat((inputs, mixed)), [*codes, code]
