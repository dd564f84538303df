from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from vllm_ascend.context import npu_context


class NPUModelRunner(GPUModelRunner):
    def __init__(self, config):
        super().__init__(config)
        self.graphs = {}

    def step(self, batch):
        tokens = self.gather(batch)
        room = self.room_for(tokens)
        with npu_context(room):
            states = self.forward(tokens)
        picked = self.choose(states)
        self.book.note(len(tokens))
        return picked

    def room_for(self, tokens):
        return (len(tokens) + 7) // 8 * 8

    def warm_up(self, sizes):
        for size in sizes:
            room = self.room_for([0] * size)
            with npu_context(room):
                self.forward([0] * room)
        self.book.note(len(sizes))
