from vllm.context import gpu_context
from vllm_omni.parcels import trimmed
from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner


class GPUARModelRunner(OmniGPUModelRunner):
    def __init__(self, config):
        super().__init__(config)
        self.stage = config.stage

    def step(self, batch):
        self.welcome(batch)
        tokens = self.gather(batch)
        with gpu_context(len(tokens)):
            states = self.forward(tokens)
        picked = self.choose(states)
        parcel = self.wrap(picked, states)
        if self.wants_little(batch):
            parcel = trimmed(parcel)
        self.hand_on(parcel)
        return parcel

    def wrap(self, picked, states):
        return {"tokens": picked, "states": states}

    def wants_little(self, batch):
        return all(request.brief for request in batch)

    def choose(self, states):
        # A model may want to choose by itself.
        own = getattr(self.model, "choose", None)
        return own(states) if own else super().choose(states)
