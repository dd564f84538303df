"""The rows of the table: which release, runner, model and mode, and how it runs here. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from packaging.version import Version

from bench import shared

CPU, EMULATED = "CPU", "emulated dry-run"
RAY = "ray"
MODELS = {"ar": "Multimodal", "sampler": "Thinker", "talker": "Talker", "generation": "Waveform"}
SERVED = "served"  # over HTTP, a process of its own
MODELS |= {"ranks": "plain", "lora": "plain", "drafts": "Multimodal", SERVED: "Thinker"}
# samplers of real models, taken from a release of vllm-omni, against its own runner's tokens
REAL = {"hunyuanimage3": "Recaptioner", "cosyvoice3": "Speaker"}
BROKEN = {"broken": "Broken", "broken-wave": "BrokenWaveform"}
MODELS |= REAL | BROKEN
MODULES = dict.fromkeys(REAL, "real_sampler") | {"broken-wave": "broken_wave"}
OMNI = "0.30.0"
CPU_RELEASES = ("0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
ASCEND_RELEASES = (
    *("0.22.1rc1", "0.23.0.post1", "0.24.0rc1", "0.25.1rc1", "0.26.0rc1", "0.27.1rc1"),
    *("0.28.0rc1", "0.29.0rc1", "0.30.0rc2"),
)
ASCEND_V2_RELEASES = ASCEND_RELEASES[4:]  # the ones that can choose V2
NEWEST = ASCEND_RELEASES[-1]
HALF = ("0.29.0rc1",)  # its attention refuses a key-value cache of float32
GRAPHS = {"cudagraph_capture_sizes": [1, 2, 4]}
FULL = GRAPHS | {"cudagraph_mode": "FULL_DECODE_ONLY"}


@dataclass(frozen=True)
class Cell:
    """One engine. ``kind`` names its checks.

    ``mode`` has sync or async, eager, graph, full (graphs) or compiled, tp2, pp2 or dp2, and ray, vLLM's
    executor over Ray.
    """

    project: str
    version: str
    runner: str
    mode: str
    kind: str

    @property
    def how(self) -> str:
        """Which evidence it is, and with which labelled hooks."""
        kind = EMULATED if self.project == "vllm-ascend" else CPU
        hooks = f"hook: {' and '.join(self.hooks)}" if self.hooks else None
        return ", ".join(filter(None, [kind, self.half, hooks]))

    @property
    def half(self) -> str | None:
        """A type in place of float32, where vllm-ascend takes nothing wider."""
        if self.project != "vllm-ascend":
            return None
        attends = self.kind != "generation"
        return "float16" if self.kind == "lora" or (self.version in HALF and attends) else None

    @property
    def hooks(self) -> list[str]:
        """What stock vLLM, or Ray, refuses here and a test hook allows."""
        if self.project == "vllm-ascend":
            return ["ray_node"] if RAY in self.mode else []
        return [*(["v2"] if self.runner == "V2" else []), *(["asynchronous"] if "async" in self.mode else [])]

    @property
    def base(self) -> tuple[str, str, str]:
        return f"{self.project} {self.version}", self.runner, self.mode

    @property
    def label(self) -> str:
        return " ".join((self.project, self.version, self.runner, self.mode, self.kind))

    def plan(self, folder: str) -> dict[str, object]:
        """For runner_checks.probe; ``folder`` holds the checkpoints."""
        plan: dict[str, object] = {
            "kind": MODULES.get(self.kind, self.kind),
            "folder": f"{folder}/{MODELS[self.kind]}",
            "hooks": self.hooks,
        }
        options: dict[str, object] = {}
        if "tp2" in self.mode:
            options["tensor_parallel_size"] = 2
        if "pp2" in self.mode:
            options["pipeline_parallel_size"] = 2
        if RAY in self.mode:
            options["distributed_executor_backend"] = RAY
        if "compiled" in self.mode:
            options["enforce_eager"] = False
        if self.project != "vllm-ascend":
            return plan | {"options": options}
        options |= {"async_scheduling": "async" in self.mode, "max_num_seqs": 4}
        if self.half:
            options["dtype"] = self.half
        if "graph" in self.mode:
            options |= {"enforce_eager": False, "compilation_config": FULL if "full" in self.mode else GRAPHS}
        return plan | {"device": "npu", "options": options}

    def served(self) -> dict[str, object]:
        """For runner_checks.served."""
        plan: dict[str, object] = {"asynchronous": "async" in self.mode}
        if "dp2" in self.mode:
            plan["ranks"] = 2
        return plan | ({"device": "npu"} if self.project == "vllm-ascend" else {})


CELLS: list[Cell] = [
    Cell("vllm", version, runner, mode, kind)
    for version in CPU_RELEASES
    for runner, mode, kind in product(("V1", "V2"), ("sync", "async"), ("ar", "sampler", "generation"))
    if mode == "async" or kind != "generation"
]
CELLS += [
    Cell("vllm", version, "V1", mode, kind)
    for version in CPU_RELEASES
    for mode, kind in (
        *(("sync tp2", "ranks"), ("compiled sync pp2", "ranks")),
        *(("sync", "lora"), ("sync", "talker"), ("sync dp2", SERVED)),
    )
]
CELLS += [
    Cell("vllm", version, runner, mode, kind)
    for version in CPU_RELEASES
    for kind in REAL
    for runner, mode in (("V1", "sync"), ("V1", "async"), ("V2", "async"))
]
CELLS += [Cell("vllm", OMNI, "V1", mode, "broken") for mode in ("sync", "async")]
CELLS += [Cell("vllm", OMNI, "V2", "async", "broken"), Cell("vllm", OMNI, "V1", "sync", "broken-wave")]
CELLS += [Cell("vllm", "0.30.0", "V1", mode, SERVED) for mode in ("sync", "async")]
CELLS += [Cell("vllm", "0.28.0", "V1", "sync", "drafts")]  # later CPU builds fail in vLLM's rejection sampler
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
CELLS += [Cell("vllm-ascend", version, "V2", "eager async", "ar") for version in ASCEND_V2_RELEASES]
CELLS += [
    Cell("vllm-ascend", NEWEST, runner, mode, kind)
    for runner, mode, kind in (
        *(("V1", "eager sync tp2", "ranks"), ("V1", "eager sync pp2", "ranks")),
        ("V1", f"eager sync tp2 {RAY}", "ranks"),
        *(("V1", "full graph async", "talker"), ("V2", "full graph async", "talker")),
        *(("V2", "graph async", "ar"), ("V2", "eager async", "sampler")),
        *(("V1", "eager sync", SERVED), ("V1", "eager async", SERVED)),
        *(("V1", "eager sync", "drafts"), ("V1", "graph sync", "drafts"), ("V1", "eager sync", "lora")),
        *((runner, "eager async", kind) for runner in ("V1", "V2") for kind in REAL),
        *(("V1", "eager async", "broken"), ("V1", "eager sync", "broken-wave")),
    )
]


def each_kind() -> list[Cell]:
    """A cell for each runner and kind of check, and for each mode of a runner, of the newest release."""
    newest_first = sorted(CELLS, key=lambda cell: Version(cell.version), reverse=True)
    chosen = shared.each_kind(
        newest_first, lambda one: [(one.project, one.runner, part) for part in (f"kind {one.kind}", one.mode)]
    )
    return [cell for cell in CELLS if cell in chosen]
