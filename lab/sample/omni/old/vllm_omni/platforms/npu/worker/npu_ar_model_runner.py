from vllm_ascend.context import npu_context

from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner


class NPUARModelRunner(OmniNPUModelRunner):
    def __init__(self, config):
        super().__init__(config)
        self.stage = config.stage

    def step(self, batch):
        # ------- Omni-new -------
        self.welcome(batch)
        # ------- Omni-new -------
        tokens = self.gather(batch)
        room = self.room_for(tokens)
        with npu_context(room):
            states = self.forward(tokens)
        picked = self.choose(states.float())
        # ------- Omni-new -------
        parcel = self.wrap(picked, states)
        self.hand_on(parcel)
        # ------- Omni-new -------
        self.book.note(len(tokens))
        return parcel

    # ------- Omni-new -------
    def wrap(self, picked, states):
        return {"tokens": picked, "states": states}

    # ------- Omni-new -------
