"""Entry points: what vLLM and vllm-omni find once the package is installed.

``register``, of ``vllm.general_plugins``, refuses a worker without its scheduler, and the other way round,
before anything is loaded. ``platform``, of ``vllm_omni.platform_plugins``, puts the workers of
:mod:`omni_stages.npu` into every stage when ``OMNI_RUNNERS`` is v1 or v2.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from omni_runners.errors import InterfaceError

CHOSEN = "OMNI_RUNNERS"
_OURS, _STAGES, _OMNI = "omni_runners.", "omni_stages.", "vllm_omni."


def register() -> None:
    """Called by vLLM once or more in each of its processes."""
    from vllm.config import VllmConfig

    real = VllmConfig.__post_init__
    if hasattr(real, "checks_pairs"):
        return

    @functools.wraps(real)
    def checked(self: Any, *args: Any) -> None:
        real(self, *args)
        check_pair(self)

    checked.checks_pairs = True
    VllmConfig.__post_init__ = checked


def check_pair(config: Any) -> None:
    """Raises :class:`InterfaceError` when a VllmConfig's worker and scheduler do not belong together."""
    worker, scheduler = config.parallel_config.worker_cls, config.scheduler_config.scheduler_cls
    both = _family(worker), _family(scheduler)
    if worker == "auto" or both[0] == both[1] or both == (_STAGES, _OMNI):
        return
    if not any(one.startswith((_OURS, _STAGES)) for one in both):
        return
    wanted, option = (
        ("a scheduler of vllm-omni, as its pipelines have", "the worker in a deploy file of vllm-omni")
        if both[0] == _STAGES
        else (
            "both of omni_runners, and for one kind of stage",
            "--worker-cls omni_runners.gpu.ARGPUWorker --scheduler-cls omni_runners.schedulers.ARScheduler "
            "(cpu, npu; Diffusion or Generation; ARAsyncScheduler with asynchronous scheduling)",
        )
    )
    raise InterfaceError(
        f"the worker is {_name(worker)} and the scheduler {_name(scheduler)}", expected=wanted, try_=option
    )


def _name(of: Any) -> str:
    return of if isinstance(of, str) else f"{of.__module__}.{of.__qualname__}" if of else "vLLM's own"


def _family(of: Any) -> str:
    """Whose it is, and for which kind of stage."""
    if (
        isinstance(of, str)
        and not of.startswith(("vllm.", "vllm_ascend.", _OURS, _STAGES, _OMNI))
        and "." in of
    ):
        from vllm.utils.import_utils import resolve_obj_by_qualname

        of = resolve_obj_by_qualname(of)
    bases = of.__mro__ if isinstance(of, type) else [of]
    for name in map(_name, bases):
        if name.startswith((_STAGES, _OMNI)):
            return _STAGES if name.startswith(_STAGES) else _OMNI
        if name.startswith(_OURS):
            return _OURS + ("generation" if "Generation" in name or "Diffusion" in name else "ar")
    return ""


def platform() -> str | None:
    """vllm-omni's platform with our workers, where ``OMNI_RUNNERS`` asks for it and vllm-ascend is."""
    chosen = os.environ.get(CHOSEN)
    return f"omni_stages.platform.NPUPlatform{chosen.upper()}" if chosen in ("v1", "v2") else None
