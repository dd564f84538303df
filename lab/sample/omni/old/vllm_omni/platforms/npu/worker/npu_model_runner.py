from vllm_ascend.context import npu_context
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner


class OmniNPUModelRunner(OmniGPUModelRunner, NPUModelRunner):
    def warm_up(self, sizes):
        for size in sizes:
            room = self.room_for([0] * size)
            with npu_context(room):
                self.forward([0] * room)
        # ------- Omni-new -------
        self.speakers = []
        # ------- Omni-new -------
        self.book.note(len(sizes))
