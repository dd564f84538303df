"""What torch calls in every process of an emulated run, through its ``torch.backends`` entry point."""

from __future__ import annotations

import atexit
import os

_started = False


def start() -> None:
    """Emulate the NPU in this process: kernels, vendor modules, Triton, collectives. Once."""
    global _started
    if _started or not os.environ.get("NPU_EMULATOR_NATIVE"):
        return
    _started = True
    import torch_npu  # noqa: F401 - registers what is replaced below

    from npu_emulator import ascend_ops, collectives, install, vendor

    install.install_kernels()
    vendor.install()
    ascend_ops.install()
    collectives.install()
    if os.environ.get("TRITON_INTERPRET") == "1":
        from npu_emulator.triton_kernels import interpreter

        interpreter.install()
    atexit.register(end)


def end() -> None:
    """Write the counts of this process into the record."""
    from npu_emulator import kernels, record
    from npu_emulator.operators.registry import CALLS

    calls = dict(kernels.native.calls()) | dict(CALLS)
    record.note("end", calls=calls, graphs=dict(kernels.native.graphs()))
