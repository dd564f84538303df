"""What the processes of one start told of themselves, and whether it is what was asked for."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.evidence.observed import ROLES, Observed, Process
from npu_upgrade.evidence.redaction import CHANGES_A_RUN
from npu_upgrade.gates.serving import observer
from npu_upgrade.gates.serving.checks import Check, failed, passed, unsure
from npu_upgrade.gates.serving.device import EMULATED, NPU, Device
from npu_upgrade.gates.serving.server import SOCKETS, TOKEN
from npu_upgrade.sources.installed import toolkit_folders

PLUGIN = "npu_upgrade_observer"
_POINTS = f"[vllm.general_plugins]\n{PLUGIN} = {PLUGIN}:observe\n"
_INFO = f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 1\n"
_TOLD = 5.0  # seconds until a process has told what it built
_PLAIN = ("PATH", "PYTHONPATH", "LANG", "TMPDIR", SOCKETS, TOKEN)  # told elsewhere, or the gate's own


@dataclass(frozen=True)
class Observer:
    """A private folder that the processes of one server load the observer from, and write into."""

    folder: Path

    def lay(self, packages: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
        """Fill the folder; the variables of a server whose processes load what is in it.

        ``packages``: those whose files and calls are told.
        """
        shutil.rmtree(self.folder, ignore_errors=True)  # of an earlier start that had the same log
        info = self.folder / f"{PLUGIN}-1.dist-info"
        for made in (info, self.folder / "seen"):
            made.mkdir(parents=True)
        shutil.copy(observer.__file__, self.folder / f"{PLUGIN}.py")
        (info / "METADATA").write_text(_INFO, "utf-8")
        (info / "entry_points.txt").write_text(_POINTS, "utf-8")
        settings = {"packages": packages, "variables": CHANGES_A_RUN.pattern, "began": time.time()}
        (self.folder / "settings.json").write_text(json.dumps(settings), "utf-8")
        before = environment.get("PYTHONPATH")
        more = {"PYTHONPATH": os.pathsep.join([str(self.folder), *([before] if before else [])])}
        if "VLLM_PLUGINS" in environment:  # a list of the only ones that vLLM loads
            more["VLLM_PLUGINS"] = f"{environment['VLLM_PLUGINS']},{PLUGIN}"
        return {**environment, **more}

    def told(self, server: int, device: Device) -> Observed:
        """What was told so far. ``server``: the process that was started."""
        said = {int(path.name.partition(".")[0]): path for path in self.folder.glob("seen/*.process.json")}
        raw = {pid: json.loads(path.read_text("utf-8")) for pid, path in said.items()}
        processes = [self._process(pid, one, server, device) for pid, one in raw.items()]
        kept = [one for one in processes if one.built or one.files or one.pid == server]
        kept.sort(key=lambda one: (one.kind != "server", one.stage or 0, one.rank, one.pid))
        variables: dict[str, str] = {}
        for one in sorted(kept, key=lambda one: bool(one.built)):
            variables |= raw[one.pid]["variables"]
        laid = variables.get("PYTHONPATH", "").split(os.pathsep)
        own = {"", str(self.folder), *toolkit_folders(variables)}
        if plugins := variables.get("VLLM_PLUGINS"):
            variables["VLLM_PLUGINS"] = plugins.removesuffix(f",{PLUGIN}")
        return Observed(
            mode="omni" if any(one.stage is not None for one in kept) else "plain",
            processes=tuple(kept),
            variables={name: variables[name] for name in sorted(variables) if name not in _PLAIN},
            pythonpath=tuple(one for one in laid if one not in own),
            work_dir=next((raw[one.pid]["work_dir"] for one in kept), ""),
        )

    def wait(self, server: int, device: Device, enough: Callable[[Observed], bool]) -> Observed:
        """As :meth:`told`, once it is enough; after some seconds whatever it is."""
        deadline = time.monotonic() + _TOLD
        while not enough(found := self.told(server, device)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _process(self, pid: int, raw: dict[str, Any], server: int, device: Device) -> Process:
        files = self.folder / "seen" / f"{pid}.files.json"
        roles = {one["role"] for one in raw["built"]}
        kinds = (("scheduler", "engine core"), ("worker", "worker"))
        kind = next((kind for role, kind in kinds if role in roles), "server" if pid == server else "other")
        known: dict[str, Any] = {"pid": pid, "kind": kind}
        if raw["device"] and raw["device"]["kind"] == device.kind:
            known["device"] = raw["device"] | {"name": device.name}
        if files.is_file():
            known["files"] = json.loads(files.read_text("utf-8"))
        return msgspec.convert(raw | known, Process)


def took_part(observed: Observed, package: str, unit_test: str = "") -> Check:
    """Whether a process loaded the plugin of the model; what no process tells is not known.

    ``unit_test``: what the plugin's own said when it was installed.
    """
    files = [path for process in observed.processes for path in process.files]
    if any(path.startswith(f"{package}/") for path in files):
        return passed("plugin", why="; ".join(filter(None, (f"{package} was loaded", unit_test))))
    if not observed.processes:
        return unsure("plugin", f"no process told whether it loaded {package}")
    return failed(
        "plugin", f"{package} did not take part: no process loaded it (VLLM_PLUGINS may leave it out)"
    )


def judge(observed: Observed, device: Device, omni: bool) -> Check:
    """Whether what was observed is what was asked for, and whether it is enough to say what served."""
    if why := _contradiction(observed, device, omni):
        return failed("observed", why)
    if why := missing(observed):
        problems = [text for process in observed.processes for text in process.problems]
        return unsure("observed", f"{why}{f' ({problems[0]})' if problems else ''}")
    runners = sorted({one.classes[0].name.rpartition(".")[2] for one in observed.built("runner")})
    return passed("observed", why=f"{observed.mode}, {', '.join(runners)} on {_kinds(observed)}")


def _contradiction(observed: Observed, device: Device, omni: bool) -> str:
    wanted, kinds = "omni" if omni else "plain", observed.devices
    if any(observed.built("runner")) and observed.mode != wanted:
        return f"it was asked for in {wanted} mode, and its processes ran in {observed.mode} mode"
    if NPU in kinds and device.kind == EMULATED:
        return "no driver shows an NPU, and no emulator is in the process whose parameters are on one"
    allowed = {EMULATED, NPU} if device.kind == NPU else {device.kind}
    if kinds - allowed:
        return f"its parameters live on {_kinds(observed)}, expected {device.kind}"
    return ""


def missing(observed: Observed) -> str:
    """What was not seen and is needed to say what served; empty when nothing is missing."""
    if not observed.processes:
        return (
            "no process told what it ran: the observer was not loaded, which needs a Python that reads"
            " PYTHONPATH and a vLLM that loads its general plugins"
        )
    needed = [role for role in ROLES[:4] if not any(observed.built(role))]
    if needed:
        return f"no {' and no '.join(needed)} was seen to be built, so nothing says which one served"
    if not observed.devices:
        return "no parameters of a model were seen, so nothing says on which device they are"
    runners = list(observed.built("runner"))
    if not any(one.steps for one in runners):
        return f"{runners[0].classes[0].name} was built and executed no step"
    changed = sorted(path for one in observed.processes for path, ran in one.files.items() if not ran.sha256)
    if changed:
        return f"{changed[0]} changed while the server started, so what ran of it is not known"
    return ""


def _kinds(observed: Observed) -> str:
    return " and ".join(sorted(observed.devices))
