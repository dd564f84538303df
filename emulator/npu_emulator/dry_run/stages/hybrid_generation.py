"""A one-shot stage whose model has a recurrent state."""

from __future__ import annotations

import dataclasses

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.stages import generation, hybrid

run, classes = hybrid.run, generation.classes


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``, whose model has a recurrent layer before its own."""
    import vllm_omni  # noqa: F401 - patches vLLM, before a model of it is imported

    from npu_emulator.dry_run.models import omni_hybrid, omni_hybrid_generation

    wanted = dataclasses.replace(wanted, model=omni_hybrid_generation.__name__.rpartition(".")[2])
    return generation.start(wanted, folder, options | {"hf_overrides": omni_hybrid.CONFIG})


def expected(folder, probe):
    """No tokens; the last hidden state of each prompt, whose tokens have what came before them."""
    states = [hybrid.remembered(folder, prompt)[-1] for prompt in probe.prompts]
    return [engine.Output([], [], {"model_outputs": [one]}) for one in states]
