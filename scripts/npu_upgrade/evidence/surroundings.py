"""The environment a gate ran in, as far as it can change a verdict."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from datetime import UTC, datetime
from typing import Any

PACKAGES = ("vllm", "vllm-ascend", "vllm-omni", "torch", "torch-npu", "transformers", "ruff", "ty")


def environment() -> dict[str, Any]:
    """Python, platform, machine and the installed packages of interest, of this process."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": dict(_installed()),
    }


@functools.cache  # a process that records many gates stays in one interpreter
def _installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def utc_now() -> str:
    """The present moment, UTC ISO 8601 to the second: ``2026-01-31T12:00:00Z``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
