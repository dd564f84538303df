"""The worker: vLLM builds and chooses the runner, which then gets the omni mixin in front of its class."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from vllm.logger import init_logger

from omni_runners.plugin import check_pair

logger = init_logger("vllm.omni_runners")


class OmniWorkerMixin:
    """Put in front of a platform's worker. ``runner_class`` is the exported runner, and
    ``runner_mixin`` what it adds.

    Nothing of ``init_device`` is copied: a runner of another class than expected (V2, a variant for one
    device) is made to inherit from it and the mixin.
    """

    runner_class: type
    runner_mixin: type

    def init_device(self, *args: Any, **options: Any) -> Any:
        """Start the device and build the runner as ever, then make it an omni runner."""
        check_pair(self.vllm_config)
        result = super().init_device(*args, **options)
        found = type(self.model_runner)
        fits = issubclass(self.runner_class, found)
        wanted = self.runner_class if fits else _in_front(self.runner_mixin, found)
        self.model_runner.__class__ = wanted
        logger.info("omni runner %s over %s.%s", wanted.__name__, found.__module__, found.__qualname__)
        return result


@lru_cache
def _in_front(mixin: type, found: type) -> type:
    name = mixin.__name__.removesuffix("RunnerMixin") + found.__name__
    return type(name, (mixin, found), {"__module__": mixin.__module__})
