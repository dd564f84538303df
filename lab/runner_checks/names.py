"""The classes that engines are started with, by name: nothing of vLLM's is imported here."""

from __future__ import annotations

WORKER = "omni_runners.cpu.CPUARWorker"
WORKERS = {  # of vllm-ascend, in place of a CPU's
    WORKER: "omni_runners.npu.NPUARWorker",
    "omni_runners.cpu.CPUGenerationWorker": "omni_runners.npu.NPUGenerationWorker",
}
SCHEDULERS = {  # by whether scheduling is asynchronous
    False: "omni_runners.schedulers.ARScheduler",
    True: "omni_runners.schedulers.ARAsyncScheduler",
}
HOOKS = "RUNNER_CHECKS_HOOKS"  # names of the hooks in platform that a server's processes call
PLAN = "RUNNER_CHECKS_PLAN"  # the plan of the probe that runs, as JSON
