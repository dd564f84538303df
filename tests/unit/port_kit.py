"""A small vllm, vllm-ascend and vllm-omni before and after a change of the GPU side, for tests of port.

PYTEST_DONT_REWRITE: the tests import it before pytest takes its fixtures from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lineage_kit import GPU_WORKER, NPU_WORKER, commit_at, write_tree
from merge_kit import runner_files, upgrade

VLLM_OLD = """class GPUModelRunner:
    def load(self, path):
        self.path = path

    def pick(self, logits, scale):
        return logits.argmax()

    def run(self, batch):
        tokens = self.count(batch)
        return self.forward(batch, tokens)
"""

ASCEND = """from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm_ascend.context import set_ascend_forward_context


class NPUModelRunner(GPUModelRunner):
    def run(self, batch):
        tokens = self.count(batch)
        return self.forward(batch, tokens)

    def count(self, batch):
        return len(batch)

    def forward(self, batch, tokens):
        return tokens
"""

GPU_BASE = """from vllm.v1.worker.gpu_model_runner import GPUModelRunner


class OmniGPUModelRunner(GPUModelRunner):
    def talk(self, batch):
        self.said = batch
"""

GPU_AR_OLD = """from vllm.context import set_forward_context

from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner


class GPUARModelRunner(OmniGPUModelRunner):
    def __init__(self, config):
        super().__init__(config)
        self.stage_name = config.stage_name

    def run(self, batch):
        speech = self.talk(batch)
        tokens = self.count(batch)
        with set_forward_context(batch, cudagraph_runtime_mode=tokens):
            states = self.forward(batch, tokens)
        payload = self.pack(states)
        self.send(payload)
        return payload

    def pack(self, states):
        return {"hidden": states}

    def send(self, payload):
        self.sent = payload
"""

GPU_AR_NEW = """from vllm.context import set_forward_context
from vllm.stats import StepStats

from vllm_omni.keys import flatten_payload
from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner


class GPUARModelRunner(OmniGPUModelRunner):
    def __init__(self, config):
        super().__init__(config)
        self.stage_name = config.stage_name
        self.downstream_cache = {}

    def run(self, batch):
        speech = self.talk(batch)
        tokens = self.count(batch)
        stats = StepStats(tokens)
        with set_forward_context(batch, cudagraph_runtime_mode=tokens):
            states = self.forward(batch, tokens)
        payload = self.pack(states)
        if self.needs_payload(batch):
            payload = flatten_payload(payload)
        self.send(payload)
        return payload

    def pack(self, states):
        return {"hidden": states}

    def send(self, payload):
        self.sent = payload

    def needs_payload(self, batch):
        key = batch.name
        return self.downstream_cache.get(key, True)

    def pick(self, logits, scale):
        # The model may want to choose by itself.
        chooser = getattr(self.model, "choose", None)
        return chooser(logits) if chooser else super().pick(logits, scale)
"""

NPU_AR = """from vllm_ascend.context import set_ascend_forward_context

from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner


class NPUARModelRunner(OmniNPUModelRunner):
    def __init__(self, config):
        super().__init__(config)
        self.stage_name = config.stage_name  # ours

    # ------- Omni-new -------
    def run(self, batch):
        speech = self.talk(batch)
        tokens = self.count(batch)
        if self.dynamic_eplb:
            tokens += 1
        with set_ascend_forward_context(batch, aclgraph_runtime_mode=tokens):
            states = self.forward(batch, tokens)
        payload = self.pack(states)
        self.send(payload)
        return payload

    def pack(self, states):
        return {"hidden": states}

    def send(self, payload):
        self.sent = payload
"""


def omni_files(gpu_ar: str, npu_ar: str = NPU_AR, gpu_base: str = GPU_BASE) -> dict[str, str]:
    """A vllm-omni with this GPU AR runner and this NPU AR runner; the others hold nothing."""
    gpu = "from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner\n"
    shape = "    dynamic_eplb = False\n    def shape(self):\n        return self.path\n"
    return runner_files(shape) | {
        "vllm_omni/keys.py": "def flatten_payload(payload):\n    return payload\n",
        f"{GPU_WORKER}/gpu_model_runner.py": gpu_base,
        f"{GPU_WORKER}/gpu_ar_model_runner.py": gpu_ar,
        f"{GPU_WORKER}/gpu_generation_model_runner.py": (
            f"{gpu}\n\nclass GPUGenerationModelRunner(OmniGPUModelRunner):\n    pass\n"
        ),
        f"{NPU_WORKER}/npu_ar_model_runner.py": npu_ar,
    }


@dataclass
class PortWorld:
    """``omni`` holds the NPU runners and the new GPU side, ``old`` the GPU side they correspond to."""

    root: Path
    files: dict[str, str] = field(default_factory=lambda: omni_files(GPU_AR_NEW))
    old_files: dict[str, str] = field(default_factory=lambda: omni_files(GPU_AR_OLD))
    vllm_new: str = VLLM_OLD.replace(
        "        return self.forward(batch, tokens)",
        "        stats = StepStats(tokens)\n        return self.forward(batch, tokens)",
    )
    ascend_new: str = ASCEND

    def __post_init__(self) -> None:
        runner = "vllm/v1/worker/gpu_model_runner.py"
        more = {
            "vllm/__init__.py": "",
            "vllm/context.py": "",
            "vllm/stats.py": "class StepStats:\n    def __init__(self, tokens):\n        pass\n",
        }
        self.vllm = write_tree(self.root / "vllm", {**more, runner: self.vllm_new})
        context = {"vllm_ascend/context.py": "def set_ascend_forward_context(batch):\n    return batch\n"}
        runner = {"vllm_ascend/worker/model_runner_v1.py": self.ascend_new}
        upstream = {"vllm_ascend/__init__.py": "", **runner, **context}
        self.ascend = self.root / "ascend"
        commit_at(self.ascend, "2026-01-01", upstream)
        self.old = write_tree(self.root / "old", self.old_files)
        self.omni = write_tree(self.root / "omni", self.files)
        self.workspace = self.root / "workspace"
        self.workspace.mkdir()

    @property
    def ar(self) -> Path:
        return self.omni / NPU_WORKER / "npu_ar_model_runner.py"

    def port(
        self, *more: str, omni: str | None = None, since: str | None = None
    ) -> tuple[int, dict[str, Any], str]:
        """Run the command: exit code, JSON, stderr."""
        specs = ["--omni", omni or f"dir:{self.omni}", "--ascend", f"git:{self.ascend}@HEAD"]
        specs += ["--vllm", f"dir:{self.vllm}", "--since", since or f"dir:{self.old}"]
        return upgrade("port", *specs, "--workspace", str(self.workspace), *more)

    def hunks(self, *more: str) -> dict[str, dict[str, Any]]:
        """The open hunks by their group."""
        _, data, _ = self.port(*more)
        return {hunk["group"]: hunk for hunk in data["hunks"]}
