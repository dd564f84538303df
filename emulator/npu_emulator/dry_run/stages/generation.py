"""A generation stage of vllm-omni: NPUGenerationWorker and NPUGenerationModelRunner."""

from __future__ import annotations

from npu_emulator.dry_run.engine import Output
from npu_emulator.dry_run.models import reference
from npu_emulator.dry_run.stages import omni, plain

run = plain.run
SCHEDULER = "vllm_omni.core.sched.omni_generation_scheduler.OmniGenerationScheduler"


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``."""
    options.setdefault("async_scheduling", False)  # as vllm-omni itself sets it for such a stage
    return omni.start(folder, options, worker_type="generation", model=wanted.model, scheduler=SCHEDULER)


def classes(running) -> dict[str, str]:
    """The classes in use and those expected."""
    return omni.classes(running, "generation")


def expected(folder, probe):
    """No tokens; the last hidden state of each prompt is its waveform."""
    return [
        Output([], [], {"model_outputs": [reference.hidden_states(folder, prompt)[-1]]})
        for prompt in probe.prompts
    ]
