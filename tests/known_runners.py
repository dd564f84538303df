"""What the runners of a vllm-omni are expected to be found as."""

from __future__ import annotations

from npu_upgrade.lineage.downstream import Runner

NPU_WORKER, GPU_WORKER = "vllm_omni/platforms/npu/worker", "vllm_omni/worker"
RUNNERS = tuple(
    Runner(kind, f"{NPU_WORKER}/npu_{file}.py", npu, f"{GPU_WORKER}/gpu_{file}.py", gpu, (npu,))
    for kind, file, npu, gpu in (
        ("base", "model_runner", "OmniNPUModelRunner", "OmniGPUModelRunner"),
        ("ar", "ar_model_runner", "NPUARModelRunner", "GPUARModelRunner"),
        ("generation", "generation_model_runner", "NPUGenerationModelRunner", "GPUGenerationModelRunner"),
    )
)
