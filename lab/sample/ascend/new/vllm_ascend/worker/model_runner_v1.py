from vllm.books import StepTimer
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm_ascend.context import npu_context


class NPUModelRunner(GPUModelRunner):
    def __init__(self, config):
        super().__init__(config)
        self.graphs = {}

    def step(self, batch):
        tokens = self.gather(batch, padded=True)
        room = self.room_for(tokens, self.graphs)
        timer = StepTimer(room)
        with npu_context(room, graph_mode=self.graphs.get(room)):
            states = self.forward(tokens)
        picked = self.choose(timer.watch(states))
        self.book.note(len(tokens), timer.seconds)
        return picked

    def room_for(self, tokens, graphs):
        fitting = [room for room in sorted(graphs) if room >= len(tokens)]
        return fitting[0] if fitting else (len(tokens) + 7) // 8 * 8

    def warm_up(self, sizes):
        for size in sorted(sizes, reverse=True):
            room = self.room_for([0] * size, self.graphs)
            with npu_context(room):
                self.graphs[room] = self.forward([0] * room)
        self.book.note(len(sizes))
