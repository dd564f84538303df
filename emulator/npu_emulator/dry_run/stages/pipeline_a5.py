"""A real pipeline whose server has an A5 for its device; its answers are those of the same with an A2."""

from __future__ import annotations

import os
from pathlib import Path

from npu_emulator import record
from npu_emulator.dry_run import a5, engine
from npu_emulator.dry_run.stages import pipeline

run, expected, classes = pipeline.run, pipeline.expected, pipeline.classes
stop, end = pipeline.stop, pipeline.end


def start(wanted, folder, options):
    """A ready server with an A5, after one with an A2 answered each request first.

    Raises :class:`engine.Absent` where vllm-omni does nothing else on an A5.
    """
    from vllm_omni.platforms import npu

    if not hasattr(npu, "is_a5"):
        raise engine.Absent("vllm-omni does nothing else on an A5")
    before = pipeline.start(wanted, folder, options)
    for probe in wanted.probes:
        pipeline.run(before, probe)
    why = pipeline.stop(before)
    if why:
        raise RuntimeError(f"the server on an A2: {why}")
    os.environ.update(a5.variables(Path(os.environ[record.FOLDER]) / "a5"))
    return pipeline.start(wanted, folder, options)
