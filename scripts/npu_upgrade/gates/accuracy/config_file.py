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
from typing import Annotated, Any, Literal

import msgspec
import yaml

from npu_upgrade.gates.serving.checks import Check, failed, passed, unsure
from npu_upgrade.gates.yaml_file import read_yaml
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic

_FLAGS = ("trust_remote_code", "enforce_eager", "enable_expert_parallel")
_VALUES = (
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "dtype", "max_model_len"),
    *("max_num_seqs", "gpu_memory_utilization", "quantization", "block_size", "max_num_batched_tokens"),
)
_OTHERS = ("max_images", "enable_thinking")
_RUN = ("num_fewshot", "limit", "batch_size", "apply_chat_template", "fewshot_as_multiturn")
RTOL = 0.05


class _Metric(msgspec.Struct, frozen=True):
    name: str
    value: float | None = None


class _Task(msgspec.Struct, frozen=True):
    name: str
    metrics: Annotated[list[_Metric], msgspec.Meta(min_length=1)]


class _File(msgspec.Struct, frozen=True):
    model_name: str
    tasks: Annotated[list[_Task], msgspec.Meta(min_length=1)]
    serve: dict[str, Any] | None = None
    envs: dict[str, Any] | None = None
    model_type: Literal["vllm", "vllm-vlm"] = "vllm"  # what can be measured here
    num_fewshot: int | None = None
    limit: int | float | None = None
    batch_size: int | str | None = None
    apply_chat_template: bool | None = None
    fewshot_as_multiturn: bool | None = None


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
    found = read_yaml(path, _File, _wrong)
    serve = found.serve or {}
    return Config(
        found.model_name,
        tuple(Task(one.name, {metric.name: metric.value for metric in one.metrics}) for one in found.tasks),
        tuple(_arguments(path, serve)),
        {name: str(value) for name, value in (found.envs or {}).items()},
        {key: value for key in _RUN if (value := getattr(found, key)) is not None},
        serve.get("enable_thinking"),
        found.model_type,
    )


def fill_in(path: Path, measured: Mapping[str, Mapping[str, float]]) -> None:
    """Write the measured values (task -> metric -> value) into a config; comments above its keys stay."""
    text = path.read_text("utf-8")
    content = yaml.safe_load(text)
    for task in content["tasks"]:
        for metric in task["metrics"]:
            metric["value"] = round(measured[task["name"]][metric["name"]], 4)
    lines = text.splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    values = yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)
    write_atomic(path, "".join(lines[:end]) + values)


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


def _wrong(path: Path, what: str) -> BadInput:
    return BadInput(
        f"{path} is no accuracy config: {what}",
        expected="model_name, serve and tasks with metrics, as in vllm-ascend's tests/e2e/models/configs",
        try_="compare it with one of those",
    )


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
