"""A generation stage that gets its codes in chunks (async_chunk); the driver stands for stage 0."""

from __future__ import annotations

import torch

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models import reference
from npu_emulator.dry_run.stages import chunks, generation

classes = generation.classes
OPTIONS = {
    "stage_id": 1,
    "async_chunk": True,
    "model_stage": "code2wav",
    "stage_connector_spec": {"name": "SharedMemoryConnector", "extra": {"role": "receiver"}},
}
LENGTH = 6  # codes of a chunk


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``."""
    return generation.start(wanted, folder, options | OPTIONS)


def run(running, probe, prefix="", prompts=None):
    """The outputs of requests whose codes, the probe's prompts, come in chunks."""
    prefix, ours = chunks.prefix(probe), chunks.connector(0)
    for index, prompt in enumerate(probe.prompts):
        parts = _parts(prompt)
        for number, part in enumerate(parts):
            last = torch.tensor(number == len(parts) - 1)
            chunk = {"codes": {"audio": torch.tensor(part)}, "meta": {"finished": last}}
            chunks.put(ours, f"{prefix}{index}", number, chunk)
    return engine.generate(running, [(0,)] * len(probe.prompts), probe.sampling, prefix)


def expected(folder, probe):
    """One waveform for each chunk: its last hidden state, since such a stage starts anew with each."""
    return [
        engine.Output([], [], {"model_outputs": [_last(folder, part) for part in _parts(prompt)]})
        for prompt in probe.prompts
    ]


def _last(folder, part):
    return reference.hidden_states(folder, part)[-1]


def _parts(prompt) -> list[list[int]]:
    return [list(prompt[start : start + LENGTH]) for start in range(0, len(prompt), LENGTH)]
