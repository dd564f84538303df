"""The driver half of the Triton backend: the properties of one Ascend 910B3."""

from triton.backends.driver import DriverBase


class _Utils:
    def get_device_properties(self, device):
        return {
            "num_aicore": 24,
            "num_vectorcore": 48,
            "max_shared_mem": 196608,
            "multiprocessor_count": 24,
        }


class EmulatedDriver(DriverBase):
    """The driver Triton picks on the emulated NPU."""

    def __init__(self):
        self.utils = _Utils()

    @staticmethod
    def is_active():
        return True

    def map_python_to_cpp_type(self, name):
        return name

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("npu", "Ascend910B3", 32)

    def get_active_torch_device(self):
        import torch

        return torch.device("npu", 0)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0

    def get_device_interface(self):
        import torch

        return torch.npu

    def get_benchmarker(self):
        return lambda run, **options: [0.0, 0.0, 0.0]


EmulatedDriver.__abstractmethods__ = frozenset()  # which ones there are differs from release to release
