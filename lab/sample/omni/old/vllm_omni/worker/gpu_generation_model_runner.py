from vllm.context import gpu_context

from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner


class GPUGenerationModelRunner(OmniGPUModelRunner):
    def step(self, batch):
        self.welcome(batch)
        tokens = self.gather(batch)
        with gpu_context(len(tokens)):
            sounds = self.forward(tokens)
        return self.mixed(sounds)

    def gather(self, batch):
        return [*self.model.opening(), *super().gather(batch)]

    def mixed(self, sounds):
        return [self.config.mixer(sound) for sound in sounds]
