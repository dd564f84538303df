"""A pooling model (an embedding of each prompt) on vllm-omni's NPUARModelRunner."""

from __future__ import annotations

import dataclasses

import torch

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models import reference
from npu_emulator.dry_run.stages import ar

classes = ar.classes
_MOST_STEPS = 200


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``, whose model class vLLM turns into one that embeds.

    It makes no omni output: vllm-omni's own pooling stages, since 0.28.0, hand on their hidden states.
    """
    import vllm_omni  # noqa: F401 - patches vLLM, before a model of it is imported

    from npu_emulator.dry_run.models import omni_pooling

    wanted = dataclasses.replace(wanted, model=omni_pooling.__name__.rpartition(".")[2])
    return ar.start(wanted, folder, options | {"runner": "pooling", "convert": "embed"})


def run(running, probe, prefix="", prompts=None):
    """The embedding of each prompt as the payload of its request."""
    from vllm import PoolingParams

    names = [f"{prefix or probe.name} {index}" for index in range(len(probe.prompts))]
    for name, prompt in zip(names, probe.prompts, strict=True):
        running.add_request(name, {"prompt_token_ids": list(prompt)}, PoolingParams(task="embed"))
    found = {}
    for _ in range(_MOST_STEPS):
        if not running.has_unfinished_requests():
            break
        found |= {output.request_id: output for output in running.step() if output.finished}
    return [_read(found.get(name)) for name in names]


def _read(output) -> engine.Output:
    if output is None:
        return engine.Output([], [], {}, finished=False)
    return engine.Output([], [], {"embedding": [output.outputs.data.float()]})


def expected(folder, probe):
    """The last hidden state of each prompt, normalised."""
    states = [reference.hidden_states(folder, prompt)[-1] for prompt in probe.prompts]
    return [
        engine.Output([], [], {"embedding": [torch.nn.functional.normalize(one, dim=-1)]}) for one in states
    ]
