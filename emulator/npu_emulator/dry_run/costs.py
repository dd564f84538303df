"""What each step of a worker costs, without hardware: operators, graphs, and where the host waits.

A line of the record for each part of a step: the model's, and the sampler's where it is called apart. Waits
are told with the innermost function of the projects that was at work.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections import Counter

from npu_emulator import kernels, record
from npu_emulator.dry_run.executed import PACKAGES
from npu_emulator.operators.registry import CALLS

_PARTS = ("execute_model", "sample_tokens")
_waits: Counter[str] = Counter()


def observe(worker) -> None:
    """Record the cost of each step that ``worker`` executes from now on."""
    stage, numbers, batch = _stage(worker), itertools.count(), ["", 0]
    kernels.native.on_wait(_waited)

    def counted(part: str):
        real = getattr(worker, part)

        @functools.wraps(real)
        def run(*arguments, **options):
            if part == _PARTS[0]:
                batch[:] = _kind(arguments[0] if arguments else options["scheduler_output"]), next(numbers)
            before = _counts()
            _waits.clear()
            kernels.native.stepping(True)
            try:
                return real(*arguments, **options)
            finally:
                kernels.native.stepping(False)
                operators, graphs = (dict(now - then) for now, then in zip(_counts(), before, strict=True))
                if batch[0]:
                    record.note(
                        "step",
                        stage=stage,
                        kind=batch[0],
                        number=batch[1],
                        operators=operators,
                        graphs=graphs,
                        waits=dict(_waits),
                    )

        setattr(worker, part, run)

    for part in _PARTS:
        if hasattr(worker, part):
            counted(part)


def _counts() -> tuple[Counter[str], Counter[str]]:
    return Counter(kernels.native.calls()) + CALLS, Counter(kernels.native.graphs())


def _stage(worker) -> str:
    """The stage's name where there is one, else the runner's; with the rank, but for the first."""
    name = getattr(worker.vllm_config.model_config, "model_stage", None) or type(worker.model_runner).__name__
    return f"{name}, rank {worker.rank}" if worker.rank else name


def _kind(asked) -> str:
    """What is scheduled: nothing, one more token for each request, or prompts among them."""
    tokens = asked.num_scheduled_tokens
    if not tokens:
        return ""
    decodes = not asked.scheduled_new_reqs and max(tokens.values()) == 1
    return f"{'decode' if decodes else 'prompt'} of {len(tokens)}"


def _waited(kind: str) -> None:
    """Called when the host waits for the device in a step."""
    _waits[f"{kind} in {_place()}"] += 1


def _place() -> str:
    folders = os.environ.get(PACKAGES, "").split(os.pathsep)
    packages = [os.path.basename(folder).rpartition("-")[0] for folder in folders]
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in packages:
            return f"{module}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    return "no function of the projects"
