from vllm_ascend.context import npu_context

from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner


class NPUGenerationModelRunner(OmniNPUModelRunner):
    def step(self, batch):
        # ------- Omni-new -------
        self.welcome(batch)
        # ------- Omni-new -------
        tokens = self.gather(batch)
        room = self.room_for(tokens)
        with npu_context(room):
            states = self.forward(tokens)
        # ------- Omni-new -------
        sounds = self.mixed(states)
        # ------- Omni-new -------
        self.book.note(len(tokens))
        return sounds

    # ------- Omni-new -------
    def mixed(self, sounds):
        return [self.config.mixer(sound) for sound in sounds]

    def preview(self, batch):
        tokens = self.gather(batch[:1])
        return self.room_for(tokens), self.mixed(self.forward(tokens))

    # ------- Omni-new -------
