"""The rows of the table: which release, runner, model and mode, and how it runs here. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

CPU, EMULATED = "CPU", "emulated dry-run"
HEAD = ("base", "runner", "mode", "stage", "how")
MODELS = {"ar": "Multimodal", "sampler": "Thinker", "talker": "Talker", "generation": "Waveform"}
SERVED = "served"  # over HTTP, a process of its own
MODELS |= {"ranks": "plain", "lora": "plain", SERVED: "Thinker"}
CPU_RELEASES = ("0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
ASCEND_RELEASES = (
    *("0.22.1rc1", "0.23.0.post1", "0.24.0rc1", "0.25.1rc1", "0.26.0rc1", "0.27.1rc1"),
    *("0.28.0rc1", "0.29.0rc1", "0.30.0rc2"),
)
GRAPHS = {"cudagraph_capture_sizes": [1, 2, 4]}


@dataclass(frozen=True)
class Cell:
    """One engine. ``kind`` names its checks; ``mode`` has sync or async, eager or graph, tp2 or pp2."""

    project: str
    version: str
    runner: str
    mode: str
    kind: str

    @property
    def how(self) -> str:
        """Which evidence it is, and with which labelled hooks."""
        if self.project == "vllm-ascend":
            return EMULATED
        return f"{CPU}, hook: {' and '.join(self.hooks)}" if self.hooks else CPU

    @property
    def hooks(self) -> list[str]:
        """What stock vLLM refuses on a CPU and a test hook allows."""
        if self.project == "vllm-ascend":
            return []
        return [*(["v2"] if self.runner == "V2" else []), *(["asynchronous"] if "async" in self.mode else [])]

    @property
    def columns(self) -> tuple[str, ...]:
        return (f"{self.project} {self.version}", self.runner, self.mode, self.kind, self.how)

    @property
    def label(self) -> str:
        return " ".join((self.project, self.version, self.runner, self.mode, self.kind))

    def plan(self, folder: str) -> dict[str, object]:
        """For runner_checks.probe; ``folder`` holds the checkpoints."""
        plan: dict[str, object] = {
            "kind": self.kind,
            "folder": f"{folder}/{MODELS[self.kind]}",
            "hooks": self.hooks,
        }
        options: dict[str, object] = {}
        if "tp2" in self.mode:
            options["tensor_parallel_size"] = 2
        if "pp2" in self.mode:
            options["pipeline_parallel_size"] = 2
        if self.project != "vllm-ascend":
            return plan | {"options": options}
        options |= {"async_scheduling": "async" in self.mode, "max_num_seqs": 4}
        if "graph" in self.mode:
            options |= {"enforce_eager": False, "compilation_config": GRAPHS}
        return plan | {"device": "npu", "options": options}


CELLS: list[Cell] = [
    Cell("vllm", version, runner, mode, kind)
    for version in CPU_RELEASES
    for runner, mode, kind in product(("V1", "V2"), ("sync", "async"), ("ar", "sampler", "generation"))
    if mode == "async" or kind != "generation"
]
CELLS += [
    Cell("vllm", version, "V1", mode, kind)
    for version in CPU_RELEASES
    for mode, kind in (("sync tp2", "ranks"), ("sync", "lora"), ("sync", "talker"), ("sync dp2", SERVED))
]
CELLS += [
    Cell("vllm-ascend", version, "V1", mode, kind)
    for version in ASCEND_RELEASES
    for mode, kind in (
        ("eager sync", "ar"),
        ("graph async", "ar"),
        ("eager async", "sampler"),
        ("eager sync", "generation"),
    )
]
CELLS += [
    Cell("vllm-ascend", ASCEND_RELEASES[-1], "V1", f"eager sync {ranks}", "ranks") for ranks in ("tp2", "pp2")
]
