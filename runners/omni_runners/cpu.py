"""Workers for vLLM on a CPU: ``--worker-cls omni_runners.cpu.CPUARWorker``."""

from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from omni_runners.core.ar import ARRunnerMixin
from omni_runners.core.generation import GenerationRunnerMixin
from omni_runners.core.worker import OmniWorkerMixin


class CPUARModelRunner(ARRunnerMixin, CPUModelRunner):
    """Tokens, and tensors per request."""


class CPUGenerationModelRunner(GenerationRunnerMixin, CPUModelRunner):
    """Tensors per request from one forward."""


class CPUARWorker(OmniWorkerMixin, CPUWorker):
    """The worker of an AR stage."""

    runner_class, runner_mixin = CPUARModelRunner, ARRunnerMixin


class CPUGenerationWorker(OmniWorkerMixin, CPUWorker):
    """The worker of a generation stage."""

    runner_class, runner_mixin = CPUGenerationModelRunner, GenerationRunnerMixin
