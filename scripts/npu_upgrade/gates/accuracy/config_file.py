"""Accuracy configs, as vllm-ascend keeps them below tests/e2e/models/configs, and values held against them.

.. code-block:: yaml

    model_name: Qwen/Qwen3-8B
    hardware: Atlas A2 Series
    serve: {tensor_parallel_size: 1, dtype: auto, max_model_len: 4096}
    tasks:
      - name: gsm8k
        metrics: [{name: "exact_match,strict-match", value: 0.87}]
    num_fewshot: 5
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from npu_upgrade.gates.serving.checks import Check, failed, passed, unsure
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic

_KINDS = ("vllm", "vllm-vlm")
_FLAGS = ("trust_remote_code", "enforce_eager", "enable_expert_parallel")
_VALUES = (
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "dtype", "max_model_len"),
    *("max_num_seqs", "gpu_memory_utilization", "quantization", "block_size", "max_num_batched_tokens"),
)
_OTHERS = ("max_images", "enable_thinking")
_RUN = {
    "num_fewshot": int, "limit": (int, float), "batch_size": (int, str), "apply_chat_template": bool,
    "fewshot_as_multiturn": bool,
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """``values``: metric name, as lm_eval calls it -> the value it has to have; None: not measured yet."""

    name: str
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Config:
    """What to serve, how to ask, and what has to come out."""

    model: str
    tasks: tuple[Task, ...]
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    thinking: bool | None = None
    kind: str = "vllm"


def load(path: Path) -> Config:
    """Raises :class:`BadInput` that names the place of what is wrong."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _wrong(path, " ".join(str(error).split())) from error
    if not isinstance(content, dict) or not isinstance(content.get("model_name"), str):
        raise _wrong(path, "it needs model_name")
    serve = content.get("serve") or {}
    if not isinstance(serve, dict):
        raise _wrong(path, "serve is a mapping of options")
    kind = content.get("model_type", "vllm")
    if kind not in _KINDS:
        raise _wrong(path, f"model_type {kind!r} cannot be measured here; {' and '.join(_KINDS)} can")
    envs = content.get("envs") or {}
    if not isinstance(envs, dict):
        raise _wrong(path, "envs is a mapping of variables")
    return Config(
        content["model_name"],
        _tasks(path, content.get("tasks")),
        tuple(_arguments(path, serve)),
        {str(name): str(value) for name, value in envs.items()},
        _run(path, content),
        serve.get("enable_thinking"),
        kind,
    )


def fill_in(path: Path, measured: Mapping[str, Mapping[str, float]]) -> None:
    """Write the measured values (task -> metric -> value) into a config; comments above its keys stay."""
    text = path.read_text("utf-8")
    content = yaml.safe_load(text)
    for task in content["tasks"]:
        for metric in task["metrics"]:
            metric["value"] = round(measured[task["name"]][metric["name"]], 4)
    head = "".join(line for line in _leading_comments(text.splitlines(keepends=True)))
    write_atomic(path, head + yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True))


def _leading_comments(lines: list[str]) -> list[str]:
    end = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    return lines[:end]


def _tasks(path: Path, entries: Any) -> tuple[Task, ...]:
    if not isinstance(entries, list) or not entries:
        raise _wrong(path, "it needs tasks, a list")
    found = []
    for entry in entries:
        metrics = entry.get("metrics") if isinstance(entry, dict) else None
        if not isinstance(metrics, list) or not metrics or not isinstance(entry.get("name"), str):
            raise _wrong(path, f"a task needs a name and metrics: {entry!r}")
        values: dict[str, float | None] = {}
        for metric in metrics:
            value = metric.get("value") if isinstance(metric, dict) else "?"
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not isinstance(metric, dict) or "name" not in metric or not (number or value is None):
                raise _wrong(path, f"a metric of {entry['name']} needs a name and a number: {metric!r}")
            values[str(metric["name"])] = value
        found.append(Task(entry["name"], values))
    return tuple(found)


def _arguments(path: Path, serve: Mapping[str, Any]) -> list[str]:
    """Options of vllm serve for the keys of ``serve``."""
    if unknown := sorted(set(serve) - {*_FLAGS, *_VALUES, *_OTHERS}):
        raise _wrong(path, f"serve has {', '.join(unknown)}, which this reader does not know")
    found = []
    for key, value in serve.items():
        option = f"--{key.replace('_', '-')}"
        if key in _FLAGS:
            found += [option] if value else []
        elif key == "max_images":
            found += ["--limit-mm-per-prompt", json.dumps({"image": value})]
        elif key in _VALUES and value is not None:
            found += [option, str(value)]
    return found


def _run(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: content[key] for key in _RUN if content.get(key) is not None}
    for key, value in found.items():
        if not isinstance(value, _RUN[key]) or (isinstance(value, bool) and _RUN[key] is not bool):
            raise _wrong(path, f"{key} has a value of the wrong kind: {value!r}")
    return found


def _wrong(path: Path, what: str) -> BadInput:
    return BadInput(
        f"{path} is no accuracy config: {what}",
        expected="model_name, serve and tasks with metrics, as in vllm-ascend's tests/e2e/models/configs",
        try_="compare it with one of those",
    )


RTOL = 0.05


def by_name(tasks: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Task -> metric -> value."""
    return {task["name"]: {one["name"]: one["value"] for one in task["metrics"]} for task in tasks}


def compare(wanted: Sequence[Task], measured: Mapping[str, Mapping[str, float]]) -> list[Check]:
    """One check for each metric of a config. Better than named is as much a failure as worse."""
    return [
        _check(f"accuracy:{task.name}:{metric}", value, measured.get(task.name, {}), metric)
        for task in wanted
        for metric, value in task.values.items()
    ]


def _check(name: str, wanted: float | None, measured: Mapping[str, float], metric: str) -> Check:
    if metric not in measured:
        known = ", ".join(measured) or "nothing"
        return failed(name, f"lm_eval measured no {metric}, it measured {known}")
    value = measured[metric]
    if wanted is None:
        return unsure(name, f"{value:.4f} was measured, and the config names no value to hold it against")
    if abs(value - wanted) <= RTOL * abs(wanted):
        return passed(name, why=f"{value:.4f}, expected {wanted:.4f}")
    side = "above" if value > wanted else "below"
    return failed(name, f"{value:.4f} is more than {RTOL:.0%} {side} {wanted:.4f}")
