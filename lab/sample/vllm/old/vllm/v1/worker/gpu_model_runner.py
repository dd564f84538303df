from vllm.books import StepBook


class GPUModelRunner:
    def __init__(self, config):
        self.config = config
        self.model = config.model
        self.book = StepBook()

    def step(self, batch):
        tokens = self.gather(batch)
        states = self.forward(tokens)
        return self.choose(states)

    def gather(self, batch):
        return [token for request in batch for token in request.tokens]

    def forward(self, tokens):
        return self.model(tokens)

    def choose(self, states):
        return self.model.head(states)
