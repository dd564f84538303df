"""A real pipeline of vllm-omni on the emulated NPU, under its own runners or ours; its answers in a file.

``python -m runner_checks.pipeline PLAN`` with PLAN as JSON: ``scenario`` names a pipeline of the emulator,
``models`` the folder of tiny checkpoints, ``out`` a folder, ``workers`` the class of each stage's worker,
``runner`` "v1" or "v2", ``eager`` or not, ``asked`` the probes. Prints a line of JSON: classes of workers and
runners, graphs that were replayed, and why it ended.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from npu_emulator import record
from npu_emulator.dry_run.catalogue import scenario
from npu_emulator.dry_run.models import checkpoint
from npu_emulator.dry_run.models.pipelines import parts
from npu_emulator.dry_run.stages import pipeline


def main(plan: dict[str, Any]) -> None:
    """Start the server, ask, write ``answers.safetensors`` and ``answers.json``, and end it."""
    out = Path(plan["out"])
    (out / "record").mkdir(parents=True, exist_ok=True)
    os.environ[record.FOLDER] = str(out / "record")
    wanted = scenario(plan["scenario"])
    module = importlib.import_module(f"npu_emulator.dry_run.models.{wanted.model}")
    reduce = module.reduce

    def deployed(deploy: dict[str, Any]) -> None:
        reduce(deploy)
        change(deploy, plan)

    module.reduce = deployed
    folder = checkpoint(wanted.model, Path(plan["models"]))
    options = {"enforce_eager": True} if plan["eager"] else {}
    running = pipeline.start(replace(wanted, options=wanted.options | options), folder, {})
    try:
        tensors, texts = asked(running, wanted, plan.get("asked"))
    finally:
        ended = pipeline.stop(running)
    save_file(tensors, out / "answers.safetensors")
    (out / "answers.json").write_text(json.dumps(texts), encoding="utf-8")
    print(json.dumps(pipeline.classes(running) | pipeline.end(running) | {"ended": ended}))


def change(deploy: dict[str, Any], plan: dict[str, Any]) -> None:
    """Put the plan's workers and runner into a deploy file."""
    stages = parts.stages(deploy)
    for stage, worker in zip(stages, plan["workers"], strict=False):
        stage["worker_cls"] = worker
    own = deploy.get("platforms", {}).get("npu", {})
    for one in (deploy, own):
        if "model_runner" in one or one is deploy:
            one["model_runner"] = plan["runner"]


def asked(running: Any, wanted: Any, names: list[str] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers to the probes: tensors by "probe, request, part", and tokens by "probe, request"."""
    tensors, texts = {}, {}
    for probe in wanted.probes:
        if not probe.prompts or (names and probe.name not in names):
            continue
        for index, output in enumerate(pipeline.run(running, probe)):
            texts[f"{probe.name} {index}"] = output.tokens
            for part, values in output.payload.items():
                for number, value in enumerate(values):
                    tensors[f"{probe.name} {index} {part} {number}"] = value.contiguous()
    return tensors, texts


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
