"""Workers for vllm-omni's stages on vllm-ascend, each stage's ``worker_cls`` in a deploy file.

``omni_runners.omni_npu.NPUARWorker`` for an AR stage, ``omni_runners.omni_npu.NPUGenerationWorker`` for a
generation stage; the schedulers stay vllm-omni's.
"""

from vllm_ascend.worker.worker import NPUWorker  # noqa: F401 # isort: skip - has to be imported first
from vllm_ascend.worker import model_runner_v1
from vllm_omni.platforms.npu.worker import npu_ar_model_runner, npu_ar_worker, npu_generation_worker

from omni_runners.stages import ARStage, GenerationStage


class NPUARModelRunner(ARStage, model_runner_v1.NPUModelRunner):
    """Tokens and payloads."""

    _capture_talker_mtp_graphs = npu_ar_model_runner.NPUARModelRunner._capture_talker_mtp_graphs


class NPUGenerationModelRunner(GenerationStage, model_runner_v1.NPUModelRunner):
    """Payloads from one forward."""


class NPUARWorker(npu_ar_worker.NPUARWorker):
    """The worker of an AR stage."""

    model_runner_cls = NPUARModelRunner


class NPUGenerationWorker(npu_generation_worker.NPUGenerationWorker):
    """The worker of a generation stage."""

    model_runner_cls = NPUGenerationModelRunner
