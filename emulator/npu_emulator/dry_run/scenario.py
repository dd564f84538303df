"""Play one scenario in one tier: start its engine, run its probes, judge each."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

from npu_emulator.dry_run import checks, engine
from npu_emulator.dry_run.catalogue import Probe, Scenario, scenario
from npu_emulator.dry_run.models import checkpoint

GRAPHS = {"cudagraph_capture_sizes": [1, 2, 4]}
BLOCKS = (
    64  # of the KV cache, many times what the requests need: zeroing all of the memory took a fifth of a run
)


def play(plan: dict, run: dict) -> dict:
    """The result of one run: classes, seconds of each phase, and a verdict with its reason for each probe.

    Only ``absent``, with the reason, when the release has no such feature.
    """
    wanted = scenario(run["scenario"])
    stage = importlib.import_module(f"npu_emulator.dry_run.stages.{wanted.stage}")
    started = time.monotonic()
    try:
        folder = checkpoint(wanted.model, Path(plan["models"]))
        started = time.monotonic()
        running = stage.start(wanted, folder, options(wanted, run["tier"]))
    except engine.Absent as error:
        return {"absent": str(error), "seconds": time.monotonic() - started}
    result = {"classes": stage.classes(running), "start_seconds": time.monotonic() - started}
    started = time.monotonic()
    probes = [probe for probe in wanted.probes if probe.name in run.get("probes", [probe.name])]
    result["probes"] = [_judge(stage, running, wanted, folder, probe, plan) for probe in probes]
    result["seconds"] = time.monotonic() - started
    return result | getattr(stage, "end", engine.end)(running)


def options(wanted: Scenario, tier: str) -> dict:
    """The engine arguments of a tier."""
    graph = {} if tier == "eager" else {"compilation_config": GRAPHS}
    own = {"enforce_eager": tier == "eager", "num_gpu_blocks_override": BLOCKS}
    return engine.COMMON | own | graph | wanted.options


def _judge(stage, running, wanted: Scenario, folder: Path, probe: Probe, plan: dict) -> dict:
    outputs = stage.run(running, probe)
    why = checks.CHECKS[probe.check](stage, running, wanted, folder, probe, outputs, plan)
    return {"name": probe.name, "why": why, "tokens": [output.tokens for output in outputs]}
