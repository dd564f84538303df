from vllm.v1.worker.gpu_model_runner import GPUModelRunner


class OmniGPUModelRunner(GPUModelRunner):
    def welcome(self, batch):
        self.speakers = [request.speaker for request in batch]

    def hand_on(self, parcel):
        self.config.next_stage.receive(parcel)
