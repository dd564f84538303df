"""A real pipeline of vllm-omni on the emulated NPU, under the runners that ``OMNI_RUNNERS`` chooses.

``python -m runner_checks.pipeline PLAN`` with PLAN as JSON: ``scenario`` names a pipeline of the emulator,
``models`` the folder of tiny checkpoints, ``out`` a folder, ``runner`` "v1" or "v2", ``eager`` or not. The
answers and the server's log are in ``out`` afterwards. Prints a line of JSON: classes of workers and runners,
whether a graph was replayed, and why the server did not end well, if so.
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
from npu_emulator.dry_run.stages import pipeline

REPLAYED = "graph replay is active"  # vllm-ascend's own words


def main(plan: dict[str, Any]) -> dict[str, Any]:
    """Start the server, ask, write ``answers.safetensors`` and ``answers.json``, and end it."""
    out = Path(plan["out"])
    (out / "record").mkdir(parents=True, exist_ok=True)
    os.environ[record.FOLDER] = str(out / "record")
    wanted = scenario(plan["scenario"])
    module = importlib.import_module(f"npu_emulator.dry_run.models.{wanted.model}")
    reduce = module.reduce

    def deployed(deploy: dict[str, Any]) -> None:
        reduce(deploy)
        choose(deploy, plan["runner"], plan["eager"])

    module.reduce = deployed
    folder = checkpoint(wanted.model, Path(plan["models"]))
    options = {"enforce_eager": True} if plan["eager"] else {}
    running = pipeline.start(replace(wanted, options=wanted.options | options), folder, {})
    try:
        tensors, tokens = asked(running, wanted)
    finally:
        ended = pipeline.stop(running)
    save_file(tensors, out / "answers.safetensors")
    (out / "answers.json").write_text(json.dumps(tokens), encoding="utf-8")
    replayed = REPLAYED in (out / "log").read_text(encoding="utf-8", errors="replace")
    return pipeline.classes(running) | {"replayed": replayed, "ended": ended}


def choose(deploy: dict[str, Any], runner: str, eager: bool) -> None:
    """Let a deploy file ask for a runner; on V2 its section for NPUs is called as our platform is."""
    platforms = deploy.setdefault("platforms", {})
    section = platforms.pop("npu", {})
    section["model_runner"] = deploy["model_runner"] = runner
    for stage in section.get("stages", []):
        stage["enforce_eager"] = eager or stage.get("enforce_eager", False)
    platforms["npu_v2" if runner == "v2" else "npu"] = section


def asked(running: Any, wanted: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers to all probes: tensors by "probe request part number", tokens by "probe request"."""
    tensors, tokens = {}, {}
    for probe in [one for one in wanted.probes if one.prompts]:
        for index, output in enumerate(pipeline.run(running, probe)):
            tokens[f"{probe.name} {index}"] = output.tokens
            for part, values in output.payload.items():
                for number, value in enumerate(values):
                    tensors[f"{probe.name} {index} {part} {number}"] = value.contiguous()
    return tensors, tokens


def logged(plan: dict[str, Any]) -> None:
    """Run with all that the server says in a file, and say the end of it when it fails."""
    path = Path(plan["out"]) / "log"
    said = os.fdopen(os.dup(1), "w")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        result = main(plan)
    except BaseException as error:
        said.write(path.read_text(encoding="utf-8", errors="replace")[-20000:] + f"\n{error}\n")
        raise
    finally:
        said.flush()
    said.write(json.dumps(result) + "\n")
    said.close()


if __name__ == "__main__":
    logged(json.loads(sys.argv[1]))
