"""What the templates show beside the facts: sentences, commands and rows, each of them from a run."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from npu_upgrade.artifacts.facts import Facts, Feature
from npu_upgrade.artifacts.roots import Changed
from npu_upgrade.checkpoint.analysis_file import described
from npu_upgrade.checkpoint.serving import NO_ONE
from npu_upgrade.evidence.runs import LABELS, Run, mapping
from npu_upgrade.evidence.store import DRY_RUN
from npu_upgrade.gates.performance import loads_of
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.paths import SKILL
from npu_upgrade.sources.checkout import open_checkout

Row = dict[str, Any]
_SERIES = (
    {"name": "A3", "suffix": "-a3", "devices": 16},
    {"name": "A2", "suffix": "", "devices": 8},
)
_RESOLVED = (
    *("tensor_parallel_size", "pipeline_parallel_size", "dtype", "max_model_len", "max_num_seqs"),
    *("gpu_memory_utilization", "enforce_eager", "quantization", "enable_expert_parallel"),
    "trust_remote_code",
)
_UNREAD = ("block_size", "max_num_seqs", "pipeline_parallel_size")
# checks that say what a server is worth, not whether it lives
_SERVED = {"native": "vLLM", "ascend": "vllm-ascend", "transformers": "Transformers' own model in vLLM"}
_MEASURED = ("accuracy", "performance", "reference", "semantic", "concurrent", "filled", "observed", "plugin")
_PROMPT = "Give me a short introduction to large language models."
# how dummy and real weights compare, by the states of a check
_NOTES = {
    ("PASS", "PASS"): "both",
    ("PASS", "FAIL"): "real only",
    ("FAIL", "PASS"): "dummy only",
    ("SKIPPED", "PASS"): "real alone",
    ("", "PASS"): "real alone",
    ("SKIPPED", "SKIPPED"): "neither",
}


class ModelView:
    """What the templates call ``m``; ``f`` are the facts."""

    series = _SERIES

    def __init__(
        self, facts: Facts, changes: list[Changed] | None, config_options: set[str] | None, tree: Path
    ) -> None:
        self.facts, self.changes, self.options = facts, changes, config_options
        self.tree = tree.resolve()
        self.has_config = config_options is not None
        self.best = facts.served or facts.dummy or facts.runs[-1]
        self.description = self._described()

    @property
    def title(self) -> str:
        """The page's heading: experimental while any requirement is open."""
        return f"{self.facts.name} (Experimental)" if self.facts.gaps else self.facts.name

    @property
    def architectures(self) -> list[str]:
        return [str(one) for one in self.best.result.get("architectures") or ["unknown"]]

    @property
    def digest(self) -> str:
        return str(self.best.result.get("model_digest") or "unknown")[:16]

    @property
    def source(self) -> str:
        return self.facts.source.name or self.facts.model

    @property
    def stored_as(self) -> str:
        """The data types of the weights, the one of most tensors first."""
        return ", ".join(self.facts.analysis.weights.dtypes) if self.facts.analysis else "not analysed"

    @property
    def served_with(self) -> str:
        if not self.facts.on_npu:
            return "not yet served on an NPU"
        best = self.best.map("device")
        dtype = str(self.facts.resolved.get("dtype") or "").removeprefix("torch.")
        device = f"{best.get('count') or 1} x {best.get('name') or self.facts.hardware}"
        return f"{device}, {dtype}" if dtype else device

    @property
    def versions(self) -> str:
        return "; ".join(self.facts.versions) or "not recorded"

    @property
    def plugin(self) -> str:
        """The folder of the model's plugin in the tree; empty where it has none, or elsewhere."""
        root = self.facts.plugin.resolve() if self.facts.plugin else None
        return root.relative_to(self.tree).as_posix() if root and root.is_relative_to(self.tree) else ""

    @property
    def unserved(self) -> bool:
        """Whether nothing that was released serves the architecture."""
        return bool(self.facts.analysis) and self.facts.analysis.serving.by in NO_ONE

    def _described(self) -> dict[str, str]:
        """What the analysis says of the model, served by what stands in the tree with this page."""
        rows = described(self.facts.analysis) if self.facts.analysis else {}
        by = rows.get("Served by", "")
        rest = "the model's own plugin" if self.facts.plugin else "code that came with this page"
        return rows | {"Served by": _SERVED.get(by, rest if by in NO_ONE else by)} if by else rows

    @property
    def skill(self) -> str:
        """The skill that made this, with the address where it can be read if its checkout tells one."""
        address = skill_address()
        return f"[vllm-npu-upgrade]({address})" if address else "`vllm-npu-upgrade`"

    @property
    def standing_sentence(self) -> str:
        facts = self.facts
        label = f"evidence label: {facts.label}"
        if facts.served:
            served = f"Real weights were served and answered on {facts.hardware} ({label})."
            if facts.on_npu:
                return served
            emulated = any(run.label == DRY_RUN and run.verdict == "PASS" for run in facts.current)
            also = (
                " and on an emulated NPU, which shows that vllm-ascend's code runs and nothing of its speed"
            )
            return (
                f"**Nothing was validated on NPU hardware yet.** Real weights were served on a CPU"
                f"{also if emulated else ''} ({label})."
            )
        seen = f"only dummy weights were served ({label})" if facts.label else "nothing was served"
        return f"**Not validated**: {seen}. Dummy weights never sign off a model."

    @property
    def ready(self) -> str:
        seconds = self.facts.served.result.get("ready_seconds") if self.facts.served else None
        return f"{seconds:g} s" if isinstance(seconds, int | float) else "an unrecorded time"

    @property
    def theoretical(self) -> str:
        return str(self.facts.theoretical_length or "unknown")

    @property
    def practical(self) -> str:
        length = self.facts.practical_length
        if not length:
            return "not measured"
        return (
            str(length) if self.facts.filled_length else f"{length} (started; no request was of that length)"
        )

    @property
    def environment(self) -> list[tuple[str, str]]:
        variables = self.facts.served.map("environment") if self.facts.served and self.facts.on_npu else {}
        return [(name, shlex.quote(str(value))) for name, value in sorted(variables.items())]

    @property
    def serve_command(self) -> str:
        served = self.facts.served
        assert served
        omni = ["--omni"] if served.result.get("mode") == "omni" else []
        given = [str(one) for one in served.result.get("serve_arguments") or []]
        if not self.facts.on_npu:  # how a CPU was served is no setting of an NPU
            given = [one for one in given if one == "--trust-remote-code"]
        named = ["--served-model-name", self.facts.name, "--host", "0.0.0.0", "--port", "8000"]
        return "vllm serve <YOUR_MODEL_PATH>" + shell_lines([*omni, *named, *given])

    @property
    def resolved(self) -> list[tuple[str, Any]]:
        values = self.facts.served.map("resolved") if self.facts.served and self.facts.on_npu else {}
        return [(key, values[key]) for key in _RESOLVED if values.get(key) is not None]

    @property
    def _asked(self) -> Row:
        """The check of a request whose prompt and answer the page shows."""
        checks = _many(self.facts.served, "checks")
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
        if not self.facts.multimodal:
            return ""
        parts = [
            {"type": "image_url", "image_url": {"url": "<URL_OF_AN_IMAGE>"}},
            {"type": "text", "text": "What is in the image?"},
        ]
        return self._curl("chat/completions", {"messages": [{"role": "user", "content": parts}]})

    @property
    def answer(self) -> str:
        """What an NPU answered."""
        return quoted(self._asked["answer"]) if self._asked and self.facts.on_npu else ""

    @property
    def bench(self) -> Row:
        """What to measure a running server with: as it was, else lengths that its context has room for."""
        if self.loads:
            return self.loads[-1]
        room = self.facts.theoretical_length or 4096
        lengths = {"input_len": min(1024, room // 2), "output_len": min(128, room // 4)}
        return lengths | {"requests": 64, "concurrency": 16}

    @property
    def accuracy_tool(self) -> str:
        run = self.facts.accuracy
        return str(run.map("accuracy").get("tool") or "an unnamed tool") if run else ""

    @property
    def commands(self) -> list[str]:
        gates = ("serve", "features", "capacity", "performance", "accuracy")
        return [self.facts.command(gate).short for gate in gates]

    @property
    def unsupported_keys(self) -> list[str]:
        """What the accuracy run was served with and the tree's own test would not read."""
        run = self.facts.accuracy
        if run is None:
            return []
        resolved, read = run.map("resolved"), {*(self.options or ()), *_UNREAD}
        return [key for key in _RESOLVED if key not in read and resolved.get(key)] + sorted(
            run.map("environment")
        )

    @property
    def evidence(self) -> list[Run]:
        """The newest run of every gate and label, and each that shows a feature; strongest label first, then
        gates by name."""
        newest = {(run.gate, run.label): run for run in self.facts.runs}
        chosen = {run.id: run for run in newest.values()}
        chosen |= {row.run.id: row.run for row in self.facts.features if row.run}
        order = {label: number for number, label in enumerate(LABELS)}
        return sorted(
            chosen.values(), key=lambda run: (order.get(run.label, len(LABELS)), run.gate, run.record.started)
        )

    @property
    def failures(self) -> list[Run]:
        """The run in which each failure was met first: by its root cause, else by what it said."""
        found: dict[str, Run] = {}
        for run in self.facts.runs:
            if run.verdict == "FAIL" or (run.verdict == "INCONCLUSIVE" and run.root):
                found.setdefault(str(run.root.get("id") or run.record.summary), run)
        return list(found.values())

    @property
    def known_causes(self) -> list[Run]:
        """Those with a root cause that says what to do."""
        return [run for run in self.failures if run.root.get("next")]

    @property
    def features(self) -> list[Feature]:
        """The matrix as a reader with an NPU needs it: what a CPU says is said as that."""
        return [
            replace(one, status="not tried on an NPU", why=f"on a CPU: {one.status}", requested="")
            if one.on_cpu_only
            else replace(one, status=one.status or "not tried")
            for one in self.facts.features
        ]

    @property
    def feature_causes(self) -> list[Feature]:
        """The features with which a server did not serve for a known cause, none of a CPU's own."""
        return [one for one in self.facts.features if one.cause and not one.on_cpu_only]

    @property
    def false_ready(self) -> list[Row]:
        """Runs whose server reported that it was ready and then failed."""
        found = []
        for run in self.facts.runs:
            names = [str(c.get("name")) for c in run.many("checks") if c.get("state") == "FAIL"]
            failed = [name for name in names if name.partition(":")[0] not in _MEASURED]
            ready = run.result.get("ready_seconds")
            if run.verdict == "FAIL" and ready is not None and failed:
                found.append({"run": run, "ready": f"{ready:g} s", "checks": ", ".join(failed)})
        return found

    @property
    def ladder(self) -> list[Row]:
        return [
            {
                "step": str(step.get("step")),
                "state": str(step.get("state")),
                "why": str(step.get("why") or ""),
                "cause": cause(mapping(step.get("root"))),
                "where": run.path(),
            }
            for run in self.facts.runs
            for step in run.many("ladder")
        ]

    @property
    def capacity_rows(self) -> list[Row]:
        return [
            {
                "length": row.get("max_model_len") or "-",
                "sequences": row.get("max_num_seqs") or "-",
                "state": str(row.get("state")),
                "tokens": row.get("kv_cache_tokens") or "-",
                "cause": cause(mapping(row.get("root"))) or str(row.get("why") or "-"),
            }
            for row in _many(self.facts.capacity, "capacity")
        ]

    @property
    def comparison(self) -> list[Row]:
        """Every check of dummy and real weights beside each other."""
        runs = (self.facts.dummy, self.facts.served)
        left, right = (
            {str(c.get("name")): str(c.get("state")) for c in _many(run, "checks")} for run in runs
        )
        pairs = {name: (left.get(name, ""), right.get(name, "")) for name in [*left, *right]}
        return [
            {"name": name, "dummy": dummy, "real": real, "note": _NOTES.get((dummy, real), "apart")}
            for name, (dummy, real) in pairs.items()
        ]

    @property
    def loads(self) -> list[Row]:
        """What `vllm bench serve` measured, on an NPU."""
        run = self.facts.shown_by("throughput")
        return [msgspec.to_builtins(one) | {"label": run.label} for one in loads_of(run)] if run else []

    @property
    def all_loads(self) -> list[Row]:
        """The same of the newest run of each label."""
        newest = {run.label: run for run in self.facts.current if run.gate == "performance"}
        return [
            msgspec.to_builtins(one) | {"label": run.label, "where": run.path()}
            for run in newest.values()
            for one in loads_of(run)
        ]

    @property
    def accuracy_rows(self) -> list[Row]:
        run = self.facts.accuracy
        return [
            {
                "task": task["name"],
                "fewshot": "-" if task.get("num_fewshot") is None else task["num_fewshot"],
                "limit": "" if task.get("limit") is None else task["limit"],
                "metric": metric["name"],
                "value": round(float(metric["value"]), 4),
            }
            for task in (run.map("accuracy").get("tasks") or [] if run else [])
            for metric in task["metrics"]
        ]

    def _curl(self, path: str, body: Row) -> str:
        whole = {"model": self.facts.name} | body | {"max_tokens": 16, "temperature": 0}
        text = json.dumps(whole, ensure_ascii=False, indent=2)
        return (
            f"curl http://localhost:8000/v1/{path} \\\n"
            f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(text)}"
        )


@functools.cache
def skill_address() -> str:
    """The page of SKILL.md where this skill's checkout was cloned from; empty where it is no clone."""
    try:
        checkout = open_checkout(SKILL)
        said = checkout.ask("remote", "get-url", "origin") or ""
    except UpgradeError:
        return ""
    known = re.fullmatch(r"(?:https://|git@|ssh://git@)([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?", said.strip())
    return f"https://{known[1]}/{known[2]}/blob/HEAD/SKILL.md" if known else ""


def cause(root: Row) -> str:
    """A root cause in words."""
    return str(root.get("cause") or root.get("id") or "")


def _many(run: Run | None, key: str) -> list[Row]:
    return run.many(key) if run else []


def quoted(value: Any) -> str:
    """A text as a JSON string: control characters and newlines are visible."""
    return json.dumps(value, ensure_ascii=False)


def shell_lines(words: Iterable[str]) -> str:
    """Options as indented continuation lines of a shell command, an option and its value together."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("-") or not lines or len(lines[-1]) > 1 or "=" in lines[-1][0]:
            lines.append([word])
        else:
            lines[-1].append(word)
    return "".join(f" \\\n  {shlex.join(line)}" for line in lines)
