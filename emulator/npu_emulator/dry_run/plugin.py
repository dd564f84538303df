"""A general plugin of vLLM: every server, engine and worker process of a dry run tells what it runs.

The processes of ``vllm serve`` are vLLM's own; this is how they know the tiny models, and how the scenario
learns their classes, executed lines and failures. It observes; without a record folder it does nothing.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
from multiprocessing import util

from npu_emulator import autoload, record
from npu_emulator.dry_run import executed, observe, warm

MODELS = "NPU_EMULATOR_MODELS"  # the module whose ``register`` makes tiny models known
WATCHED = "NPU_EMULATOR_WATCHED"  # a JSON list of the files whose executed lines are wanted
_registered = False


def register() -> None:
    """Called by vLLM once or more in each of its processes."""
    global _registered
    if _registered or not os.environ.get(record.FOLDER):
        return
    _registered = True
    observe.failures()
    if os.environ.get(WATCHED):
        executed.watch(json.loads(os.environ[WATCHED]))
        atexit.register(observe.lines)
    util.register_after_fork(observe, _at_exit_of_a_fork)
    make_models_known()
    warm.use()
    _name_workers()


def make_models_known() -> None:
    """Register the tiny models that the scenario named."""
    if os.environ.get(MODELS):
        importlib.import_module(os.environ[MODELS]).register()


def _at_exit_of_a_fork(_) -> None:
    for told in (observe.lines, autoload.end):  # a forked process does not run atexit
        util.Finalize(None, told, exitpriority=1)


def _name_workers() -> None:
    """Record the classes of each worker, once it has its key-value cache, and then what its steps cost."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    real = WorkerWrapperBase.initialize_from_config

    @functools.wraps(real)
    def observed(self, *arguments, **options):
        result = real(self, *arguments, **options)
        record.note("classes", **observe.named(self.worker))
        from npu_emulator.dry_run import costs

        costs.observe(self.worker)
        return result

    WorkerWrapperBase.initialize_from_config = observed
