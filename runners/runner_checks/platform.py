"""Labelled test hooks: run on a CPU what stock vLLM runs there only with an accelerator.

``asynchronous`` makes the CPU platform accept asynchronous scheduling, ``v2`` lets the V2 runner run through
Triton's interpreter. A result that used one of them says so.
"""

from __future__ import annotations

import contextlib
import os

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


def asked_for() -> None:
    """Call the hooks that the environment names; a general plugin of vLLM, for the processes of a server."""
    for name in os.environ.get(HOOKS, "").split():
        globals()[name]()


def v2() -> None:
    """Let a CPU engine use the V2 runner; before vLLM is imported."""
    os.environ["TRITON_INTERPRET"] = "1"
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
