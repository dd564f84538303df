"""Labelled test hooks: run on a CPU what stock vLLM runs there only with an accelerator.

``asynchronous`` makes the CPU platform accept asynchronous scheduling, ``v2`` lets the V2 runner run through
Triton's interpreter, ``ray_node`` tells Ray of two emulated NPUs. A result that used one of them says so.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile

import torch

from runner_checks.names import HOOKS


class _Event:
    """A device event where everything is done at once."""

    def __init__(self, *args, **options) -> None:
        pass

    def record(self, *args) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class _Stream:
    def __init__(self, *args, **options) -> None:
        self.device = torch.device("cpu")

    def wait_stream(self, *args) -> None:
        pass

    def synchronize(self) -> None:
        pass


def _inert_streams() -> None:
    torch.cuda.Event, torch.cuda.Stream = _Event, _Stream
    torch.cuda.current_stream = lambda *args, **options: _Stream()
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    torch.cuda.set_stream = lambda stream: None


def asynchronous() -> None:
    """Let a CPU engine schedule asynchronously."""
    from vllm.platforms.cpu import CpuPlatform

    stock = CpuPlatform.check_and_update_config.__func__

    def changed(cls, config):
        stock(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(changed)
    _inert_streams()


def ray_node() -> None:
    """A Ray node with two NPUs, which Ray counts through a module of CANN that is not emulated."""
    import ray

    # 107 characters are the most for a socket's path
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ray.init(
        num_cpus=os.cpu_count() + 2,
        resources={"NPU": 2},
        include_dashboard=False,
        object_store_memory=2**28,
        _temp_dir=folder,
    )
    atexit.register(ray.shutdown)


def asked_for() -> None:
    """Call the hooks that the environment names; a general plugin of vLLM, for the processes of a server."""
    for name in os.environ.get(HOOKS, "").split():
        globals()[name]()


def v2() -> None:
    """Let a CPU engine use the V2 runner; before vLLM is imported."""
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # torch's compiler asks the driver below for more than it has
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    from triton.backends import backends

    class Driver:
        @staticmethod
        def is_active() -> bool:
            return True

    class Backend:
        driver, compiler = Driver, None

    backends.setdefault("cpu", Backend)
    _inert_streams()
    torch.Event = _Event
    from vllm.v1.sample.ops import topk_topp_sampler

    topk_topp_sampler.HAS_TRITON = False  # the interpreter cannot run this kernel, torch can
