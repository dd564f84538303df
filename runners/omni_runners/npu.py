"""Workers for vllm-ascend, named as vllm-omni's: ``--worker-cls omni_runners.npu.NPUARWorker``."""

from vllm_ascend.worker.worker import NPUWorker  # isort: skip - the runner's module cannot be imported first
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

from omni_runners.core.ar import ARRunnerMixin
from omni_runners.core.generation import GenerationRunnerMixin
from omni_runners.core.worker import OmniWorkerMixin


class OmniNPUModelRunner(ARRunnerMixin, NPUModelRunner):
    """What both of vllm-omni's NPU runners inherit from."""


class NPUARModelRunner(OmniNPUModelRunner):
    """Tokens, and tensors per request."""


class NPUGenerationModelRunner(GenerationRunnerMixin, OmniNPUModelRunner):
    """Tensors per request from one forward."""


class NPUARWorker(OmniWorkerMixin, NPUWorker):
    """The worker of an AR stage."""

    runner_class, runner_mixin = NPUARModelRunner, ARRunnerMixin


class NPUGenerationWorker(OmniWorkerMixin, NPUWorker):
    """The worker of a generation stage."""

    runner_class, runner_mixin = NPUGenerationModelRunner, GenerationRunnerMixin
