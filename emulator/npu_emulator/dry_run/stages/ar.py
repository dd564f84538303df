"""An AR stage of vllm-omni: NPUARWorker and NPUARModelRunner."""

from __future__ import annotations

from npu_emulator.dry_run.stages import omni, plain

run, expected = plain.run, plain.expected
SCHEDULER = "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler"


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``."""
    from npu_emulator.dry_run.models.omni_ar import TinyOmniAR

    return omni.start(folder, options, worker_type="ar", architecture=TinyOmniAR, scheduler=SCHEDULER)


def classes(running) -> dict[str, str]:
    """The classes in use and those expected."""
    return omni.classes(running, "ar")
