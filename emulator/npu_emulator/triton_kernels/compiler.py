"""The compiler half of the Triton backend: present so that Triton finds one, never used to compile."""

from triton.backends.compiler import BaseBackend


class EmulatedBackend(BaseBackend):
    """Takes the "npu" target; kernels run in the interpreter and are not compiled."""

    @staticmethod
    def supports_target(target):
        return target.backend == "npu"

    def hash(self):
        return "npu_emulator"

    def parse_options(self, options):
        return object()

    def add_stages(self, *arguments, **options):
        raise NotImplementedError("npu_emulator: Triton kernels run in the interpreter (TRITON_INTERPRET=1)")

    def load_dialects(self, context):
        pass

    def get_module_map(self):
        return {}


EmulatedBackend.__abstractmethods__ = frozenset()  # which ones there are differs from release to release
