"""Servers that compute something else than their checkpoint says: ``make bench-wrong-weights``.

The defects are those of an adapter's code, so the checkpoint is sound and the fault is in the server: a
plugin changes what vLLM reads or builds, or ``--hf-overrides`` what it makes of the configuration. Every
wrong one has to differ from Transformers, every right one to equal it. A default run has all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.gates_cases import OPEN, Case
from bench.shared import begin, options, some
from npu_upgrade.gates.emulation.catalogue import EMULATOR
from npu_upgrade.gates.vllm_cpu import DEFAULT, cpu_python
from npu_upgrade.ground.errors import UpgradeError, report
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table

_QUICK = ("--generations", "1", "--quiet", "1")
_FINE = ("--dtype", "float32")  # for what bfloat16 would hide
_BIASED = """
import sys
from pathlib import Path
import torch
from npu_emulator.dry_run.models import dense, files
config = dense.CONFIG | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "head_dim": 32}
shapes = {name: shape for name, shape in dense.shapes(config).items() if "_norm." not in name}
random = torch.Generator().manual_seed(1)
biases = {
    name.replace("weight", "bias"): 0.2 * torch.randn(shape[0], generator=random)
    for name, shape in shapes.items() if name.rpartition(".")[0][-6:] in ("q_proj", "k_proj", "v_proj")
}
files.write(Path(sys.argv[1]), config, shapes, weights=biases)
"""


def make_biased(folder: Path) -> None:
    """A Qwen2 with random weights: biases at query, key and value, and a square output projection."""
    folder.mkdir()
    environment = {"PYTHONPATH": str(EMULATOR), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([cpu_python(), "-P", "-c", _BIASED, folder], env=environment, check=True)


_right = partial(Case, verdicts=("PASS",), options=_QUICK, passed=("reference",), fit=OPEN)
_differs = partial(Case, verdicts=("FAIL",), options=_QUICK, why="differs from Transformers", fit=OPEN)


def _wrong(model: str, fault: str, *arguments: str) -> Case:
    name = " ".join([f"{fault}: {model}", *arguments])
    return _differs(name, model=model, fault=fault, arguments=arguments)


def _read(model: str, what: str, **config: object) -> Case:
    return _differs(f"{what}: {model}", model=model, arguments=("--hf-overrides", json.dumps(config)))


CASES = (
    *(_right(f"right: {model}", model=model) for model in ("biased", "dense", "mixture", "looker")),
    _right(f"right: dense {' '.join(_FINE)}", model="dense", arguments=_FINE),
    _wrong("dense", "swapped-gate-up"),
    _wrong("mixture", "swapped-gate-up"),
    _wrong("biased", "transposed-projection"),
    _wrong("biased", "dropped-bias"),
    _wrong("dense", "norm-plus-one"),
    _wrong("dense", "norm-missing"),
    _wrong("dense", "norm-eps", *_FINE),
    _wrong("biased", "rope-interleaved"),
    _read("dense", "rope-theta", rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    _wrong("dense", "embedding-scale"),
    _wrong("biased", "attention-scale"),
    _wrong("dense", "logit-scale"),
    _read("mixture", "router-scale", norm_topk_prob=False),
    _wrong("looker", "picture-scale"),
)


def main() -> int:
    """Exit code 1 when a wrong server passes or a right one does not, 3 when something outside is missing."""
    from bench.gates_run import Outcome, faults, play  # which takes a model of this module

    parser = options(__doc__)
    parser.add_argument("--case", action="append", default=[], help="words in the name of a case; repeatable")
    given = parser.parse_args()
    run = begin("bench-wrong-weights", given, given.case)
    words = given.case or [""]
    rows, missed, judged = [], [], [0, 0]
    try:
        for case in some([one for one in CASES if any(word in one.name for word in words)], words):
            say(case.name)
            seen = run.result(case.name, asdict(case), Outcome, play, case, None)
            wrong = faults(case, seen)
            missed += [f"{case.name}: {one}" for one in wrong]
            judged[case.verdicts == ("PASS",)] += not wrong
            rows.append((case.name, ", ".join(seen.verdicts), f"{seen.seconds:.0f}", seen.summary))
    except UpgradeError as error:
        return report(error, as_text=True)
    print(table(("server", "the gate", "s", "it says"), rows))
    rights = sum(case[0].startswith("right") for case in rows)
    figures = {"wrong": f"{judged[0]}/{len(rows) - rights}", "right": f"{judged[1]}/{rights}"}
    return run.close({"vllm": DEFAULT} | figures, missed)


if __name__ == "__main__":
    sys.exit(main())
