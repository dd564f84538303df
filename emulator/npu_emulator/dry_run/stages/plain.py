"""A model on vllm-ascend alone: NPUWorker and NPUModelRunner."""

from __future__ import annotations

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models import reference

EXPECTED = ("vllm_ascend.worker.worker.NPUWorker", "vllm_ascend.worker.model_runner_v1.NPUModelRunner")


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``."""
    from vllm.engine.arg_utils import EngineArgs

    return engine.start(EngineArgs(model=str(folder), **options))


def run(running, probe, prefix="", prompts=None):
    """The outputs of a probe's requests."""
    prefix = prefix or f"{probe.name} "
    return engine.generate(running, prompts or probe.prompts, probe.sampling, prefix, probe.every)


def classes(running) -> dict[str, str]:
    """The worker and runner classes in use, and those expected."""
    return named(running, EXPECTED)


def named(running, expected) -> dict[str, str]:
    """Full class names of what runs in every worker, and of what should."""
    found = engine.observed(running)
    return {
        "worker": " and ".join(sorted({one["worker"] for one in found})),
        "runner": " and ".join(sorted({one["runner"] for one in found})),
        "expected_worker": expected[0],
        "expected_runner": expected[1],
    }


def expected(folder, probe):
    """What a torch reference of the checkpoint gives for the probe's requests."""
    return reference.generate(folder, probe.prompts, engine.GREEDY | probe.sampling)
