"""Classes of the shapes that vLLM's worker, runner, scheduler and model have."""

from __future__ import annotations

from types import SimpleNamespace


class Parameter:
    def __init__(self, device: str) -> None:
        self.device = SimpleNamespace(type=device)

    def numel(self) -> int:
        return 100

    def element_size(self) -> int:
        return 2


class Module:
    def __call__(self, *inputs):
        return self.forward(*inputs)


class Model(Module):
    def __init__(self, device: str) -> None:
        self.weights = [Parameter(device), Parameter(device)]

    def parameters(self):
        return iter(self.weights)

    def forward(self, step: int) -> int:
        return step


class Builder:
    def build(self, step: int) -> int:
        return step


class Backend:
    pass


class BaseRunner:
    def __init__(self, config, device: str) -> None:
        self.vllm_config, self.device = config, device
        self.attn_groups = []

    def load_model(self) -> None:
        self.model = Model(self.device)
        self.attn_groups = [[SimpleNamespace(backend=Backend, metadata_builders=[Builder()])]]

    def execute_model(self, step: int) -> int:
        for builder in self.attn_groups[0][0].metadata_builders:
            builder.build(step)
        return self.model(step)


class Runner(BaseRunner):
    def execute_model(self, step: int) -> int:
        return super().execute_model(step)


class Worker:
    def __init__(self, config, device: str) -> None:
        self.vllm_config, self.device, self.rank = config, device, 0

    def init_device(self) -> None:
        self.model_runner = Runner(self.vllm_config, self.device)

    def load_model(self) -> None:
        self.model_runner.load_model()

    def execute_model(self, step: int) -> int:
        return self.model_runner.execute_model(step)


class Scheduler:
    def __init__(self, config) -> None:
        self.vllm_config, self.step = config, 0

    def schedule(self) -> int:
        self.step += 1
        return self.step

    def update_from_output(self) -> None:
        pass
