"""Two tiny stages of vllm-omni on the emulated NPU, as something that the serve gate can start."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.audit.triples import open_triple
from npu_upgrade.gates.emulation.environment import prepare
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.sources.tree import open_source

OMNI, ASCEND = "pypi:vllm-omni==0.24.0", "pypi:vllm-ascend==0.24.0rc1"
_PIPELINE = "npu_emulator.dry_run.models.omni_pipeline"
_MAKE = """
import sys
from pathlib import Path
from npu_emulator.dry_run.models import checkpoint, omni_pipeline
folder = Path(sys.argv[1])
sampling = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True}
options = {"enforce_eager": True, "max_model_len": 128, "max_num_seqs": 4, "gpu_memory_utilization": 0.4}
omni_pipeline.write(str(folder / "stages.yaml"), options | {"default_sampling_params": sampling})
print(checkpoint("omni_ar", folder))
"""
_GATE = """requests:
  - name: speaks
    chat: Say something.
    body: {modalities: [text, audio], max_tokens: 8, temperature: 0, ignore_eos: true}
    expect: {audio: 0.0001}
"""


@dataclass(frozen=True)
class Stages:
    """What the gate is given; PYTHONPATH is part of ``environment``, so the gate has to keep it."""

    python: Path
    model: Path
    gate: Path
    environment: dict[str, str]
    arguments: tuple[str, ...]


def stages(folder: Path, omni_spec: str = OMNI, ascend_spec: str = ASCEND) -> Stages:
    """Make the environment, the checkpoint, the stages' file and a gate file. Raises UpgradeError."""
    omni = open_source(omni_spec)
    triple = open_triple(omni, ascend_spec, None)
    prepared = prepare(omni, triple.ascend, triple.vllm)
    variables = dict(prepared.variables) | {"NPU_EMULATOR_RECORD": str(folder / "record")}
    variables.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)  # the stages are processes of their own
    (folder / "record").mkdir()
    command = [str(prepared.python), "-P", "-c", _MAKE, str(folder)]
    made = subprocess.run(command, env=variables, capture_output=True, text=True)
    if made.returncode:
        raise Blocked(
            f"the stages cannot be made: {made.stderr.strip().rpartition(chr(10))[2]}",
            expected="an emulated environment that works",
            try_=f"upgrade.py emulate --omni {omni_spec} --tiers import",
        )
    gate = folder / "omni.yaml"
    gate.write_text(_GATE, encoding="utf-8")
    return Stages(
        prepared.python,
        Path(made.stdout.strip().splitlines()[-1]),
        gate,
        variables | {"NPU_EMULATOR_MODELS": _PIPELINE},
        ("--deploy-config", str(folder / "stages.yaml")),
    )
