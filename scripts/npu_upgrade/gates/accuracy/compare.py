"""Measured values against those of a config: near enough on both sides, as vllm-ascend's own test has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from npu_upgrade.gates.accuracy.config_file import Task
from npu_upgrade.gates.serving.checks import Check, failed, passed, unsure

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
