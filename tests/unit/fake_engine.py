"""The engine process of the fake server: loads vLLM's general plugins, builds a worker, executes on request.

``fake_engine.py CONFIG``: the configuration as JSON; each line of stdin is one step.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import sys
from types import SimpleNamespace

fault = os.environ.get("FAULT", "none")
if fault == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if fault != "unseen":
    for point in importlib.metadata.entry_points(group="vllm.general_plugins"):
        with contextlib.suppress(ImportError):  # vLLM logs a plugin that cannot be loaded, and goes on
            point.load()()
if fault == "emulated":
    sys.modules["npu_emulator"] = sys

sys.path.append(os.path.dirname(__file__))  # as if installed: nothing is found beside a program
from fake_model import Scheduler, Worker  # noqa: E402 - as vLLM does: after the plugins


def nested(value: object) -> object:
    """Objects with attributes, as vLLM's configuration is."""
    return SimpleNamespace(**{k: nested(v) for k, v in value.items()}) if isinstance(value, dict) else value


config = nested(json.loads(sys.argv[1]))
worker = Worker(config, "npu" if fault in ("npu", "emulated") else "cpu")
worker.init_device()
worker.load_model()
scheduler = Scheduler(config)
for _ in sys.stdin:
    if fault != "idle":
        worker.execute_model(scheduler.schedule())
while True:
    signal.pause()
