"""A pooling stage whose model has a recurrent state, on vllm-omni's NPUARModelRunner."""

from __future__ import annotations

import dataclasses

from torch.nn.functional import normalize

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.stages import ar, hybrid, pooling

run, classes = pooling.run, pooling.classes


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``, whose model has a recurrent layer before its own."""
    import vllm_omni  # noqa: F401 - patches vLLM, before a model of it is imported

    from npu_emulator.dry_run.models import omni_hybrid, omni_hybrid_pooling

    wanted = dataclasses.replace(wanted, model=omni_hybrid_pooling.__name__.rpartition(".")[2])
    more = {"runner": "pooling", "convert": "embed", "hf_overrides": omni_hybrid.CONFIG}
    return ar.start(wanted, folder, options | more)


def expected(folder, probe):
    """The last hidden state of each prompt, normalised; its tokens have what came before them."""
    states = [hybrid.remembered(folder, prompt)[-1] for prompt in probe.prompts]
    return [engine.Output([], [], {"embedding": [normalize(one, dim=-1)]}) for one in states]
