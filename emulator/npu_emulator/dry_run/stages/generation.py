"""A generation stage of vllm-omni: NPUGenerationWorker and NPUGenerationModelRunner."""

from __future__ import annotations

from npu_emulator.dry_run.stages import omni, plain

run = plain.run
SCHEDULER = "vllm_omni.core.sched.omni_generation_scheduler.OmniGenerationScheduler"


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``."""
    from npu_emulator.dry_run.models.omni_generation import TinyOmniGeneration

    return omni.start(
        folder, options, worker_type="generation", architecture=TinyOmniGeneration, scheduler=SCHEDULER
    )


def classes(running) -> dict[str, str]:
    """The classes in use and those expected."""
    return omni.classes(running, "generation")
