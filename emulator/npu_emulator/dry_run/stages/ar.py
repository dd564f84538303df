"""An AR stage of vllm-omni: NPUARWorker and NPUARModelRunner."""

from __future__ import annotations

from npu_emulator.dry_run.stages import omni, plain

run = plain.run
SCHEDULERS = {
    False: "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler",
    True: "vllm_omni.core.sched.omni_ar_scheduler.OmniARAsyncScheduler",
}


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``; it schedules synchronously unless asked otherwise."""
    scheduler = SCHEDULERS[options.setdefault("async_scheduling", False)]
    return omni.start(folder, options, worker_type="ar", model=wanted.model, scheduler=scheduler)


def classes(running) -> dict[str, str]:
    """The classes in use and those expected."""
    return omni.classes(running, "ar")


def expected(folder, probe):
    """What a torch reference gives: with the hidden states, and the negated ones from the model itself."""
    outputs = plain.expected(folder, probe)
    for output in outputs:
        output.payload["hidden_states.last"] = [-states for states in output.payload["hidden"]]
    return outputs
