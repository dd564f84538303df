"""vllm-omni's NPU platform with our workers in its stages."""

from vllm_omni.platforms.npu.platform import NPUOmniPlatform


class NPUPlatformV1(NPUOmniPlatform):
    """Stages run on vllm-ascend's V1 runner, or as the deploy file's section ``npu`` says."""

    @classmethod
    def get_omni_ar_worker_cls(cls) -> str:
        """The worker of AR stages."""
        return "omni_stages.npu.NPUARWorker"

    @classmethod
    def get_omni_generation_worker_cls(cls) -> str:
        """The worker of generation stages."""
        return "omni_stages.npu.NPUGenerationWorker"


class NPUPlatformV2(NPUPlatformV1):
    """Stages run as the deploy file says above its sections: vllm-omni refuses V2 for the name ``npu``."""

    device_name = "npu_v2"  # of its section in a deploy file
