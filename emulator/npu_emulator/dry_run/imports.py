"""The import tier: everything a worker process imports, in the order a worker imports it."""

from __future__ import annotations

import importlib


def import_all(modules: list[str]) -> None:
    """Activate the platform, apply vllm-ascend's patches as its worker does, import ``modules``.

    Without ``modules`` only the platform: each scenario imports the rest itself.
    """
    import torch  # noqa: F401 - starts the emulation
    from vllm.platforms import current_platform

    assert current_platform.device_type == "npu", (
        f"the platform is {current_platform.device_type}, expected npu"
    )
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    if not modules:
        return
    from vllm_ascend.utils import adapt_patch

    adapt_patch(is_global_patch=True)
    adapt_patch()
    importlib.import_module("vllm_ascend.worker.worker")  # before its runner: they import each other
    for module in modules:
        importlib.import_module(module)
