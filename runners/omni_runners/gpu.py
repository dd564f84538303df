"""Workers for vLLM on a GPU: ``--worker-cls omni_runners.gpu.ARGPUWorker``."""

from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

from omni_runners.core.ar import ARRunnerMixin
from omni_runners.core.generation import GenerationRunnerMixin
from omni_runners.core.worker import OmniWorkerMixin


class ARGPUModelRunner(ARRunnerMixin, GPUModelRunner):
    """Tokens, and tensors per request."""


class DiffusionGPUModelRunner(GenerationRunnerMixin, GPUModelRunner):
    """Tensors per request from one forward."""


class ARGPUWorker(OmniWorkerMixin, Worker):
    """The worker of an AR stage."""

    runner_class, runner_mixin = ARGPUModelRunner, ARRunnerMixin


class DiffusionGPUWorker(OmniWorkerMixin, Worker):
    """The worker of a generation stage."""

    runner_class, runner_mixin = DiffusionGPUModelRunner, GenerationRunnerMixin
