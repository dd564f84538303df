"""What vLLM itself gives on a CPU: the reference of the plain models.

``python -m npu_emulator.dry_run.cpu_reference SCENARIO FOLDER FILE`` runs with the interpreter of an
environment that has vLLM for CPU: it makes the checkpoint of the scenario in FOLDER when it is missing and
writes tokens and log-probabilities of each probe that is compared by tokens into FILE. Nothing is emulated.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.catalogue import scenario
from npu_emulator.dry_run.models import checkpoint


def main(arguments: list[str]) -> int:
    """Write the reference of one scenario."""
    name, folder, target = arguments
    wanted = scenario(name)
    from vllm.engine.arg_utils import EngineArgs

    model = checkpoint(wanted.model, Path(folder))
    options = engine.COMMON | {"enforce_eager": True} | wanted.options
    running = engine.start(EngineArgs(model=str(model), **options))
    found = {}
    for probe in wanted.probes:
        if probe.check == "tokens":
            outputs = engine.generate(running, probe.prompts, probe.sampling, probe.name)
            found[probe.name] = [{"tokens": one.tokens, "logprobs": one.logprobs} for one in outputs]
    path = Path(target)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"scenario": name, "probes": found}), encoding="utf-8")
    partial.rename(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
