"""What the tests of the feature matrix share: packages, checkpoints, logs and starts that are made up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model_kit import shard
from sources_kit import write_tree

from npu_upgrade.gates.features.model import Checkpoint, read
from npu_upgrade.gates.features.source import Package, given
from npu_upgrade.gates.serving.starts import Start, Started
from npu_upgrade.ground.verdict import Verdict

VLLM = {
    "vllm/engine/arg_utils.py": """
class EngineArgs:
    def add_cli_args(parser):
        parser.add_argument("--enforce-eager")
        parser.add_argument("--enable-expert-parallel", "-ep")
        parser.add_argument("--speculative-config", "-sc")
        parser.add_argument("--limit-mm-per-prompt")
        parser.add_argument("--quantization", "-q")
        parser.add_argument("--enable-lora")
        parser.add_argument("--additional-config")
""",
    "vllm/entrypoints/cli_args.py": "class FrontendArgs:\n    lora_modules: list | None = None\n",
    "vllm/config/speculative.py": 'METHODS = ["mtp", "ngram"]\n',
    "vllm/config/compilation.py": """
class CUDAGraphMode(enum.Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)

def resolve(config):
    if config.backend is None:
        logger.warning("the backend %s has no graphs at all", config.backend)
        config.cudagraph_mode = CUDAGraphMode.NONE
    if config.pooling:
        logger.info("pooling takes the lesser graphs")
        config.cudagraph_mode = CUDAGraphMode.PIECEWISE
""",
    "vllm/v1/spec_decode/metrics.py": """
NAMES = ["vllm:spec_decode_num_drafts", "vllm:spec_decode_num_accepted_tokens"]
""",
    "vllm/v1/executor/multi.py": """
def title(rank):
    name = "Worker"
    name += f"_TP{rank}"
    name += f"_EP{rank}"
""",
    "vllm/v1/worker/runner.py": 'logger.info("Graph capturing finished in %.0f secs", 3.0)\n',
    "vllm/model_executor/layers/quantization/__init__.py": 'QuantizationMethods = Literal["awq", "fp8"]\n',
}
ASCEND = {
    "vllm_ascend/envs.py": """
variables = {
    # whether the flashcomm is used
    "VLLM_ASCEND_ENABLE_FLASHCOMM1": lambda: bool(int(os.getenv("VLLM_ASCEND_ENABLE_FLASHCOMM1", "0"))),
}
""",
    "vllm_ascend/utils.py": """
METHOD = "ascend"
def enable_sp():
    return envs.VLLM_ASCEND_ENABLE_FLASHCOMM1
""",
    "vllm_ascend/graphs.py": """
def replay(entry):
    logger.debug("going to replay graph %s", entry)
    logger.info_once("Replaying the graph of the model")
    logger.info_once("Replaying the graph of the draft model")
""",
    "vllm_ascend/platform.py": """
from vllm_ascend.utils import METHOD
class NPUPlatform:
    supported_quantization: list[str] = [METHOD, "fp8"]
    def get_punica_wrapper(cls):
        return "vllm_ascend.lora.Punica"
""",
    "vllm_ascend/spec_decode/__init__.py": 'def method(name):\n    return name in ("eagle", "mtp")\n',
}


def package(root: Path, name: str, files: Mapping[str, str]) -> Package:
    """A package of a folder with these files, and an ``__init__.py``."""
    return given(f"dir:{write_tree(root, {f'{name}/__init__.py': '', **files})}", name)


def checkpoint(folder: Path, config: Mapping[str, Any], *weights: str) -> Checkpoint:
    """A checkpoint whose weights have names and no values worth having."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["TinyForCausalLM"], **config}), "utf-8")
    if weights:
        (folder / "model.safetensors").write_bytes(shard(dict.fromkeys(weights, (1,))))
    return read(folder)


def started(folder: Path, start: Start, log: str = "", **more: Any) -> Started:
    """A start that served, unless ``more`` says otherwise, with this log."""
    path = folder / f"{start.name}.log"
    path.write_text(log, "utf-8")
    fields: dict[str, Any] = {"verdict": Verdict.PASS, "summary": "it served"} | more
    return Started(start=start, log=path, shown_log=f"{start.name}/server.log", **fields)
