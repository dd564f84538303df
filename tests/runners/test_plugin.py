"""Which worker goes with which scheduler, and which platform vllm-omni is given."""

import sys
from types import SimpleNamespace

import pytest

from omni_runners import plugin
from omni_runners.errors import InterfaceError

AR, GENERATION = "omni_runners.gpu.ARGPUWorker", "omni_runners.npu.NPUGenerationWorker"
STAGE = "omni_stages.npu.NPUARWorker"
OWN = "vllm.v1.worker.gpu_worker.Worker"
SCHEDULER = "omni_runners.schedulers.ARScheduler"


class Scheduler:
    """A user's own, below."""


def config(worker, scheduler):
    return SimpleNamespace(
        parallel_config=SimpleNamespace(worker_cls=worker),
        scheduler_config=SimpleNamespace(scheduler_cls=scheduler),
    )


@pytest.mark.parametrize(
    ("worker", "scheduler"),
    [
        (AR, SCHEDULER),
        (AR, "omni_runners.schedulers.ARAsyncScheduler"),
        (GENERATION, "omni_runners.schedulers.GenerationScheduler"),
        (STAGE, "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler"),
        (OWN, None),
        (OWN, Scheduler),
        ("auto", SCHEDULER),
    ],
)
def test_what_belongs_together_passes(worker, scheduler):
    plugin.check_pair(config(worker, scheduler))


@pytest.mark.parametrize(
    ("worker", "scheduler", "said"),
    [
        (AR, None, f"the worker is {AR} and the scheduler vLLM's own"),
        (OWN, SCHEDULER, "--worker-cls omni_runners"),
        (AR, "omni_runners.schedulers.GenerationScheduler", "one kind of stage"),
        (GENERATION, SCHEDULER, "one kind of stage"),
        (STAGE, None, "a scheduler of vllm-omni"),
        (STAGE, SCHEDULER, "a scheduler of vllm-omni"),
        (AR, Scheduler, "--scheduler-cls omni_runners"),
    ],
)
def test_one_without_the_other_is_refused(worker, scheduler, said):
    with pytest.raises(InterfaceError, match="the worker is") as found:
        plugin.check_pair(config(worker, scheduler))
    assert said in str(found.value)


def test_every_configuration_that_vllm_makes_is_asked(monkeypatch):
    made = []

    class VllmConfig:
        parallel_config = SimpleNamespace(worker_cls=AR)
        scheduler_config = SimpleNamespace(scheduler_cls=None)

        def __post_init__(self):
            made.append(self)

    monkeypatch.setitem(sys.modules, "vllm.config", SimpleNamespace(VllmConfig=VllmConfig))
    plugin.register()
    plugin.register()  # vLLM calls it in each process, and may call it again
    with pytest.raises(InterfaceError, match="the worker is"):
        VllmConfig().__post_init__()
    assert len(made) == 1


def test_a_class_counts_as_what_it_inherits_from():
    own = type("Own", (type("ARScheduler", (), {"__module__": "omni_runners.schedulers"}),), {})
    plugin.check_pair(config(AR, own))
    with pytest.raises(InterfaceError):
        plugin.check_pair(config(OWN, own))


@pytest.mark.parametrize(
    ("chosen", "name"), [("v1", "NPUPlatformV1"), ("v2", "NPUPlatformV2"), ("", ""), ("3", "")]
)
def test_the_platform_is_asked_for(monkeypatch, chosen, name):
    monkeypatch.setenv(plugin.CHOSEN, chosen)
    found = plugin.platform()
    assert (found or "").rpartition(".")[2] == name
