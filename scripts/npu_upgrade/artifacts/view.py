"""The model as the templates see it: only texts and rows, every one of them from a run or the analysis."""

from __future__ import annotations

import json
import shlex
from typing import Any

from npu_upgrade.artifacts import rows
from npu_upgrade.artifacts.analysis_view import AnalysisView
from npu_upgrade.artifacts.facts import BASELINE_LENGTH, BASELINE_SEQUENCES, Facts
from npu_upgrade.artifacts.page_text import quoted, shell_lines
from npu_upgrade.artifacts.roots import Changed
from npu_upgrade.checkpoint.gate_commands import gate_command
from npu_upgrade.evidence.runs import Run, mapping

_SERIES = (
    {"name": "A3", "suffix": "-a3", "devices": 16},
    {"name": "A2", "suffix": "", "devices": 8},
)
_RESOLVED = (
    *("tensor_parallel_size", "pipeline_parallel_size", "dtype", "max_model_len", "max_num_seqs"),
    *(
        "gpu_memory_utilization",
        "enforce_eager",
        "quantization",
        "enable_expert_parallel",
        "trust_remote_code",
    ),
)
_UNREAD = ("block_size", "max_num_seqs", "pipeline_parallel_size")
_PROMPT = "Give me a short introduction to large language models."


class ModelView:
    """What the templates call ``m``."""

    def __init__(self, facts: Facts, changes: list[Changed] | None, config_options: set[str] | None) -> None:
        self.facts, self.changes = facts, changes
        self.name, self.gaps = facts.name, facts.gaps
        self.hf_id, self.place = facts.source.hf_id, facts.source.place
        self.served, self.dummy, self.accuracy = facts.served, facts.dummy, facts.accuracy
        self.capacity, self.features = facts.capacity, rows.features(facts.features)
        self.label, self.on_npu, self.hardware = facts.label, facts.on_npu, facts.hardware
        self.multimodal, self.gap = facts.multimodal, facts.gap
        self.has_config = config_options is not None
        self.series = _SERIES
        analysis = AnalysisView(facts.analysis)
        self.analysed, self.description = bool(facts.analysis), analysis.rows
        self.findings, self.strategy, self.risks = analysis.findings, analysis.strategy, analysis.risks
        self.failures, self.false_ready = rows.failures(facts.runs), rows.false_ready(facts.runs)
        self.ladder, self.evidence = rows.ladder(facts.runs), rows.evidence(facts.runs)
        self.capacity_rows = rows.capacity(facts.capacity)
        self.has_baseline = any(
            row["length"] == BASELINE_LENGTH and row["sequences"] == BASELINE_SEQUENCES
            for row in self.capacity_rows
        )
        self.comparison = rows.comparison(facts.dummy, facts.served)
        self.performance, self.throughput = rows.performance(facts.served)
        self.accuracy_rows = rows.accuracy(facts.accuracy)
        self.unsupported_keys = self._unsupported(config_options or set())

    @property
    def title(self) -> str:
        """The page's heading: experimental until real weights were served on an NPU."""
        return self.name if self.on_npu else f"{self.name} (Experimental)"

    @property
    def best(self) -> Run:
        return self.served or self.dummy or self.facts.runs[-1]

    @property
    def architectures(self) -> list[str]:
        return [str(one) for one in self.best.result.get("architectures") or ["unknown"]]

    @property
    def kind(self) -> str:
        return ", and takes images beside text" if self.multimodal else ""

    @property
    def digest(self) -> str:
        return str(self.best.result.get("model_digest") or "unknown")[:16]

    @property
    def source(self) -> str:
        return self.facts.source.name or self.facts.model

    @property
    def dtype(self) -> str:
        return str(self.facts.resolved.get("dtype") or "as configured").removeprefix("torch.")

    @property
    def served_with(self) -> str:
        best = self.best.map("device")
        return f"{best.get('count') or 1} x {best.get('name') or self.hardware}"

    @property
    def versions(self) -> str:
        versions = {k: v for k, v in self.best.map("versions").items() if v}
        return ", ".join(f"{name} {version}" for name, version in versions.items()) or "not recorded"

    @property
    def standing_sentence(self) -> str:
        if self.on_npu:
            return f"Real weights were served and answered on {self.hardware} (evidence label: NPU real)."
        if self.served:
            return (
                f"Real weights were served and answered on {self.hardware} (evidence label: {self.label}). "
                "**Validation on NPU hardware is pending.**"
            )
        seen = (
            f"only dummy weights were served (evidence label: {self.label})"
            if self.label
            else "nothing was served"
        )
        return f"**Not validated**: {seen}. Dummy weights never sign off a model."

    @property
    def ready(self) -> str:
        seconds = self.served.result.get("ready_seconds") if self.served else None
        return f"{seconds:g} s" if isinstance(seconds, int | float) else "an unrecorded time"

    @property
    def theoretical(self) -> str:
        return str(self.facts.theoretical_length or "unknown")

    @property
    def practical(self) -> str:
        return str(self.facts.practical_length or "not measured")

    @property
    def environment(self) -> list[tuple[str, str]]:
        variables = self.served.map("environment") if self.served else {}
        return [(name, shlex.quote(str(value))) for name, value in sorted(variables.items())]

    @property
    def serve_command(self) -> str:
        assert self.served
        omni = ["--omni"] if self.served.result.get("mode") == "omni" else []
        given = [str(one) for one in self.served.result.get("serve_arguments") or []]
        return "vllm serve <YOUR_MODEL_PATH>" + shell_lines(
            [*omni, "--served-model-name", self.name, "--host", "0.0.0.0", "--port", "8000", *given]
        )

    @property
    def resolved(self) -> list[dict[str, Any]]:
        values = self.served.map("resolved") if self.served else {}
        return [{"name": key, "value": values[key]} for key in _RESOLVED if values.get(key) is not None]

    @property
    def _asked(self) -> dict[str, Any]:
        """The check of a request whose prompt and answer the page shows."""
        checks = self.served.many("checks") if self.served else []
        asked = [c for c in checks if c.get("state") == "PASS" and c.get("prompt") and c.get("answer")]
        order = ("chat", "completion", "generation")
        return next((c for name in order for c in asked if c.get("name") == name), {})

    @property
    def curl(self) -> str:
        prompt = str(self._asked.get("prompt") or _PROMPT)
        if self._asked.get("name") in ("completion", "generation"):
            return self._curl("completions", {"prompt": prompt})
        return self._curl("chat/completions", {"messages": [{"role": "user", "content": prompt}]})

    @property
    def image_curl(self) -> str:
        if not self.multimodal:
            return ""
        parts = [
            {"type": "image_url", "image_url": {"url": "<URL_OF_AN_IMAGE>"}},
            {"type": "text", "text": "What is in the image?"},
        ]
        return self._curl("chat/completions", {"messages": [{"role": "user", "content": parts}]})

    @property
    def answer(self) -> str:
        return quoted(self._asked["answer"]) if self._asked else ""

    @property
    def accuracy_tool(self) -> str:
        return str(self.accuracy.map("accuracy").get("tool") or "an unnamed tool") if self.accuracy else ""

    @property
    def commands(self) -> list[str]:
        return [
            gate_command(gate, self.facts.model) for gate in ("serve", "features", "capacity", "accuracy")
        ]

    def _curl(self, path: str, body: dict[str, Any]) -> str:
        whole = {"model": self.name} | body | {"max_tokens": 16, "temperature": 0}
        text = json.dumps(whole, ensure_ascii=False, indent=2)
        return (
            f"curl http://localhost:8000/v1/{path} \\\n"
            f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(text)}"
        )

    def _unsupported(self, options: set[str]) -> list[str]:
        run = self.accuracy
        if run is None:
            return []
        resolved = mapping(run.result.get("resolved"))
        lost = [key for key in _RESOLVED if key not in options and resolved.get(key) and key not in _UNREAD]
        return lost + sorted(run.map("environment"))
