"""Workers for vllm-omni's stages on vllm-ascend, each stage's ``worker_cls`` in a deploy file.

``omni_stages.npu.NPUARWorker`` for an AR stage, ``omni_stages.npu.NPUGenerationWorker`` for a
generation stage; the schedulers stay vllm-omni's, whose ``npu_model_runner`` knows the runner of the device.
"""

from typing import Any

from vllm_ascend.worker.worker import NPUWorker  # noqa: F401 # isort: skip - has to be imported first
from vllm_omni.platforms.npu.worker import (
    npu_ar_model_runner,
    npu_ar_worker,
    npu_generation_worker,
    npu_model_runner,
)
from vllm_omni.worker.gpu_generation_worker import GPUGenerationWorker

from omni_runners.errors import InterfaceError
from omni_stages.stages import ARStage, GenerationStage


class NPUARModelRunner(ARStage, npu_model_runner.NPUModelRunner):
    """Tokens and payloads."""

    _capture_talker_mtp_graphs = npu_ar_model_runner.NPUARModelRunner._capture_talker_mtp_graphs


class NPUGenerationModelRunner(GenerationStage, npu_model_runner.NPUModelRunner):
    """Payloads from one forward."""


class _Worker:
    """In front of a worker of vllm-omni's, whose ``model_runner_cls`` is V1."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.use_v2_model_runner = bool(getattr(self.model_config, "use_v2_model_runner", False))
        if self.use_v2_model_runner != self.vllm_config.use_v2_model_runner:
            raise InterfaceError(
                f"the deploy file says model_runner v{1 + self.use_v2_model_runner}, vLLM took another",
                expected="one runner, whose outputs the scheduler understands",
                try_=f"VLLM_USE_V2_MODEL_RUNNER={int(self.use_v2_model_runner)}",
            )
        if self.use_v2_model_runner:
            from omni_stages import npu_v2

            self.model_runner_cls = getattr(npu_v2, f"{self.model_runner_cls.__name__}V2")


class NPUARWorker(_Worker, npu_ar_worker.NPUARWorker):
    """The worker of an AR stage."""

    model_runner_cls = NPUARModelRunner


class NPUGenerationWorker(_Worker, npu_generation_worker.NPUGenerationWorker):
    """The worker of a generation stage."""

    model_runner_cls = NPUGenerationModelRunner

    def compile_or_warm_up_model(self) -> Any:
        """On V2 there is no graph around the model to capture, as vllm-omni's GPU worker knows."""
        if self.use_v2_model_runner:
            return GPUGenerationWorker.compile_or_warm_up_model(self)
        return super().compile_or_warm_up_model()
