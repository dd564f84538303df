"""A talking AR stage that hands its codes on in chunks (async_chunk); the driver stands for stage 1."""

from __future__ import annotations

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.stages import chunks, talker

classes = talker.classes
OPTIONS = {
    "stage_id": 0,
    "async_chunk": True,
    "model_stage": "talker",
    "custom_process_next_stage_input_func": "npu_emulator.dry_run.models.omni_chunks.next_stage",
    "stage_connector_spec": {"name": "SharedMemoryConnector", "extra": {"role": "sender"}},
}


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``."""
    return talker.start(wanted, folder, options | OPTIONS)


def run(running, probe, prefix="", prompts=None):
    """The outputs of a probe's requests; ``chunks`` of their payload is what the next stage gets."""
    prefix, ours = chunks.prefix(probe), chunks.connector(1)
    outputs = engine.generate(running, probe.prompts, probe.sampling, prefix)
    for index, output in enumerate(outputs):
        found = chunks.get(ours, f"{prefix}{index}")
        output.payload["chunks"] = [chunk["codes"]["audio"] for chunk in found if chunk.get("codes")]
    return outputs


def expected(folder, probe):
    """Tokens, and the codes of each step after the prompt."""
    outputs = talker.expected(folder, probe)
    for output in outputs:
        output.payload = {"chunks": [codes.flatten() for codes in output.payload["codes.audio"]]}
    return outputs
