"""Which device serves, and how much of its memory is in use, as the device's own tool says."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.evidence.store import DRY_RUN
from npu_upgrade.sources.installed import Installed

NPU, GPU, CPU, EMULATED = "npu", "gpu", "cpu", "npu emulated"
_CHIP = re.compile(r"^\|\s*\d+\s+(\S*(?:910|310|950|Ascend)\S*)\s*\|.*\n(.*)$", re.MULTILINE)
_USAGE = re.compile(r"(\d+)\s*/\s*([1-9]\d*)\b")  # what a chip does not have is 0 / 0
_VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
_DEVICES = Path("/dev")
_TOLERANCE = 256  # MiB of a device that the driver may keep


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
        chips = _chips()
        count = len(chips) or npu_count()
        return Device(NPU, chips[0][0] if chips else "", count) if count else Device(EMULATED)
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


def used_memory(device: Device, variables: Mapping[str, str]) -> list[int] | None:
    """MiB in use on each device that a process with these variables may take; None where no tool says."""
    if device.kind == NPU:
        used = [used for _, used in _chips()]
        # logical ids, in whose order npu-smi shows the chips; what is no list of them limits nothing
        ids = [int(one) for one in re.findall(r"\d+", variables.get(_VISIBLE, ""))]
        return [used[one] for one in ids if one < len(used)] or used or None
    if device.kind != GPU:
        return None
    text = _output(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"])
    return [int(line) for line in (text or "").split() if line.isdigit()] or None


def still_held(
    device: Device,
    variables: Mapping[str, str],
    before: Sequence[int] | None,
    serving: Sequence[int] | None,
    patience: float,
) -> tuple[dict[int, int], list[int] | None]:
    """The devices that did not get their memory back within ``patience`` seconds, with the MiB in use; and
    what is in use on all.

    ``serving``: what was in use while the server ran: a device on which nothing grew until then was not its
    own, and what somebody else holds there says nothing.
    """
    deadline = time.monotonic() + patience
    while True:
        used = used_memory(device, variables)
        held = {}
        for at, (now, was) in enumerate(zip(used or (), before or (), strict=False)):
            own = serving is None or at >= len(serving) or serving[at] > was + _TOLERANCE
            if own and now > was + _TOLERANCE:
                held[at] = now
        if not held or time.monotonic() > deadline:
            return held, used
        time.sleep(1.0)


def _chips() -> list[tuple[str, int]]:
    """Name and MiB in use of each NPU, as ``npu-smi info`` shows them: two rows a chip.

    The last usage of the second row is that of the memory that models take: HBM, or the memory of a chip
    that has no HBM.
    """
    found = []
    for name, row in _CHIP.findall(_output(["npu-smi", "info"]) or ""):
        usages = [int(used) for used, _ in _USAGE.findall(row)]
        found.append((name, usages[-1] if usages else 0))
    return found


def _output(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
