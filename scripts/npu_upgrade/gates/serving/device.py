"""Which device serves, and how much of its memory is in use, as the device's own tool says."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.evidence.store import DRY_RUN
from npu_upgrade.sources.installed import Installed

NPU, GPU, CPU, EMULATED = "npu", "gpu", "cpu", "npu emulated"
_USAGE = re.compile(r"(\d+)\s*/\s*(\d+)\s*\|\s*$")
_CHIP = re.compile(r"^\|\s*(\d+)\s+(\S*(?:910|310|950|Ascend)\S*)\s*\|", re.MULTILINE)
_DEVICES = Path("/dev")
_TOLERANCE = 256  # MiB that the driver may keep


@dataclass(frozen=True)
class Device:
    """What is expected to compute, before anything ran.

    ``kind`` npu, gpu, cpu or npu emulated; ``name`` and ``count`` as the tool says, where there is one.
    """

    kind: str
    name: str = ""
    count: int = 1


def label(kinds: Collection[str], expected: Device, load_format: str) -> str:
    """The label of evidence for parameters that live on ``kinds`` of devices; the least of them counts.

    An emulated device counts for none, nor does an NPU that no driver shows, nor what ran in place of one.
    """
    order = (EMULATED, CPU, GPU, NPU)
    least = min(kinds, key=order.index)
    if EMULATED in (least, expected.kind) or (least == NPU and expected.kind != NPU):
        return DRY_RUN
    return f"{least.upper()} {load_format}"


def detect(installed: Installed, emulated: bool = False) -> Device:
    """The device vLLM of this installation runs on. Looks at files and distributions; starts no engine.

    Where vllm-ascend is installed and no driver shows an NPU, only an emulated one can serve.
    """
    if emulated:
        return Device(EMULATED)
    if "vllm_ascend" in installed.imports:
        names = _CHIP.findall(_npu_smi() or "")
        count = len(names) or npu_count()
        return Device(NPU, names[0][1] if names else "", count) if count else Device(EMULATED)
    return Device(CPU if "cpu" in installed.versions.get("vllm", "") else GPU)


def npu_count() -> int:
    """How many NPUs the driver of this machine shows."""
    return len(list(_DEVICES.glob("davinci[0-9]*")))


def missing_for_npu(installed: Installed | None) -> list[str]:
    """What an NPU run lacks on this machine; empty when all is there."""
    lacks = []
    if not npu_count():
        lacks.append("no NPU: there is no /dev/davinci*")
    if not shutil.which("npu-smi"):
        lacks.append("npu-smi is not on PATH (the driver's tools)")
    if installed is None:
        lacks.append("no interpreter with vllm")
        return lacks
    lacks += [
        f"{name.replace('_', '-')} is not installed for it"
        for name in ("torch_npu", "vllm_ascend")
        if name not in installed.imports
    ]
    return lacks


def used_memory(device: Device) -> int | None:
    """MiB in use on all devices together; None where no tool says."""
    if device.kind == NPU:
        return _npu_memory(_npu_smi())
    if device.kind == GPU:
        return _gpu_memory()
    return None


def memory_is_back(device: Device, baseline: int | None, patience: float) -> tuple[bool, int | None]:
    """Whether the memory in use is what it was before, within ``patience`` seconds; and what it is now."""
    deadline = time.monotonic() + patience
    while True:
        used = used_memory(device)
        if baseline is None or used is None or used <= baseline + _TOLERANCE:
            return True, used
        if time.monotonic() > deadline:
            return False, used
        time.sleep(1.0)


def _npu_memory(text: str | None) -> int | None:
    """The sum over the second row of each chip: ``| AICore  used / total | HBM used / total |``."""
    if not text:
        return None
    used = []
    for line in text.splitlines():
        found = _USAGE.search(line)
        if found and line.count("/") >= 2 and int(found[2]) > 0:
            used.append(int(found[1]))
    return sum(used) if used else None


def _npu_smi() -> str | None:
    return _output(["npu-smi", "info"])


def _gpu_memory() -> int | None:
    text = _output(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"])
    numbers = [int(line) for line in (text or "").split() if line.isdigit()]
    return sum(numbers) if numbers else None


def _output(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
