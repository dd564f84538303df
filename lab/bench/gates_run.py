"""One fault from beginning to end: the gate as a command, the fault, the observers, and what is left."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench import gates_faulty_vllm
from bench.gates_cases import SMALL, Case
from bench.gates_damage import damaged
from bench.gates_inject import Scene, inject
from bench.gates_observers import Observers
from bench.gates_omni import Stages, stages
from bench.shared import UPGRADE
from npu_upgrade.evidence.store import Store
from npu_upgrade.gates.serving.server import HOST, choose_port
from npu_upgrade.gates.vllm_cpu import tiny
from npu_upgrade.ground.paths import WORKSPACE_DIR

_MARK = "BENCH_GATES_CASE"
_STARTED = re.compile(r"started .* process (\d+)")
_TINY = ("successor", "looker", "vision", "silent", "stutter", "dense", "mixture")
_CODES = {0: "PASS", 1: "FAIL", 2: "BAD INPUT", 3: "BLOCKED", 4: "INCONCLUSIVE", 130: "INTERRUPTED"}
_GRACE = 3.0  # seconds that the kernel gets to end what was killed


@dataclass
class Outcome:
    """What was seen of a case. ``left``: processes that outlived the gate.

    ``evidence``: what is wrong with it; ``observers``: name -> what it said.
    ``tail``: the end of the traceback of a root cause that no signature describes.
    ``passed``: names of the checks that passed.
    """

    verdicts: list[str]
    summary: str
    root: str | None
    seconds: float
    left: list[str]
    evidence: list[str]
    lines: int
    observers: dict[str, str] = field(default_factory=dict)
    tail: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)


def faults(case: Case, seen: Outcome) -> list[str]:
    """What the gate got wrong of a case; empty when it judged right and left nothing."""
    right = " or ".join(case.verdicts)
    wrong = [f"verdict {one}, expected {right}" for one in seen.verdicts if one not in case.verdicts]
    if case.root and seen.root != case.root:
        wrong.append(f"root cause {seen.root}, expected {case.root}")
    if not case.root and seen.root:
        wrong.append(f"root cause {seen.root}, where the log has none")
    if case.why and case.why not in seen.summary:
        wrong.append(f"it says {seen.summary[:100]!r}, expected {case.why!r}")
    wrong += [f"check {one} did not pass" for one in case.passed if one not in seen.passed]
    wrong += [f"left running: {one}" for one in seen.left]
    return wrong + [f"evidence: {one}" for one in seen.evidence]


def play(case: Case, stale_port: int | None) -> Outcome:
    """Run the gate on one case; ``stale_port`` is where another vLLM serves, for those that need one."""
    with tempfile.TemporaryDirectory(prefix="bench-gates-") as name:
        folder, began = Path(name), time.monotonic()
        mark = f"{os.getpid()}-{time.time_ns()}"
        omni = stages(folder) if case.omni else None
        model = (
            omni.model if omni else tiny(case.model) if case.model in _TINY else damaged(case.model, folder)
        )
        port = stale_port if case.on_stale and stale_port else choose_port(HOST, None)
        seen: set[tuple[int, float]] = set()
        with _gates(case, folder, model, port, mark, omni) as gates:
            scenes = [
                Scene(gate, port, _evidence(folder) / "scratch", _disk(case, folder), stale_port)
                for gate in gates
            ]
            observers = Observers(port)
            if case.fit is not None:
                observers.start()
            for scene in scenes:
                threading.Thread(target=_listen, args=(scene, observers), daemon=True).start()
            if case.inject:
                threading.Thread(target=inject, args=(scenes[0], case.inject), daemon=True).start()
            texts = [""] * len(gates)
            readers = [
                threading.Thread(target=_collect, args=(gate, texts, number))
                for number, gate in enumerate(gates)
            ]
            for reader in readers:
                reader.start()
            while any(reader.is_alive() for reader in readers):
                seen |= _ours(scenes, mark)
                time.sleep(0.3)
            said = observers.stop() if case.fit is not None else {}
            for scene in scenes:
                scene.close()
            codes = [gate.wait() for gate in gates]
        records, wrong = _look(_evidence(folder), case)
        return Outcome(
            [_CODES.get(code, f"exit code {code}") for code in codes],
            _summary(texts[0], records),
            _root(records),
            round(time.monotonic() - began, 1),
            _left(seen, scenes, mark),
            wrong,
            len(records),
            said,
            (records[0].get("root") or {}).get("traceback_tail", []) if records else [],
            _passed(records),
        )


@contextlib.contextmanager
def _gates(
    case: Case, folder: Path, model: Path, port: int, mark: str, omni: Stages | None
) -> Generator[list[psutil.Popen]]:
    """The gate's processes. Where something goes wrong here they are interrupted, as by Ctrl-C."""
    gates = [
        psutil.Popen(
            _on_disk(case, folder, _command(case, folder, model, one, mark, omni)),
            cwd=folder,
            env=_variables(case, folder, omni),
            stdin=-3,
            stdout=-1,
            stderr=-1,
            text=True,
            start_new_session=True,
        )
        for one in [port, *(choose_port(HOST, None) for _ in range(case.gates - 1))]
    ]
    try:
        yield gates
    finally:
        for gate in gates:
            if gate.poll() is None:
                gate.send_signal(2)
                gate.wait()


def _command(case: Case, folder: Path, model: Path, port: int, mark: str, omni: Stages | None) -> list[str]:
    environment = case.environment | {_MARK: mark} | (omni.environment if omni else {})
    if case.fault:
        environment["BENCH_FAULT"] = case.fault
    kept = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    gate = omni.gate if omni else tiny("successor") / "gate.yaml"
    return [
        *(sys.executable, str(UPGRADE), "serve", str(model)),
        *("--python", str(omni.python) if omni else case.python),
        *("--load-format", case.load_format, "--port", str(port), "--workspace", str(folder)),
        *("--work-dir", str(folder), "--format", "json"),
        *(part for name, value in kept.items() for part in ("--env", f"{name}={value}")),
        *(("--keep-pythonpath",) if case.fault or omni else ()),
        *(("--omni", "--emulated") if omni else ()),
        *(("--gate", str(gate)) if case.gate_file else ()),
        *case.options,
        *("--", *(omni.arguments if omni else SMALL), *case.arguments),
    ]


def _variables(case: Case, folder: Path, omni: Stages | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if case.fault:
        kept["PYTHONPATH"] = str(gates_faulty_vllm.folder(folder))
    if omni:
        kept["PYTHONPATH"] = omni.environment.get("PYTHONPATH", "")
    return kept


def _on_disk(case: Case, folder: Path, command: list[str]) -> list[str]:
    """The same with the evidence on a small disk, in a mount namespace of its own."""
    disk = _disk(case, folder)
    if disk is None:
        return command
    disk.mkdir()
    mount = shlex.join(["mount", "-t", "tmpfs", "-o", f"size={case.disk}", "none", str(disk)])
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    return [*alone, f"{mount} && exec {shlex.join(command)}"]


def _disk(case: Case, folder: Path) -> Path | None:
    return folder / WORKSPACE_DIR if case.disk else None


def _evidence(folder: Path) -> Path:
    return folder / WORKSPACE_DIR / "evidence"


def _listen(scene: Scene, observers: Observers) -> None:
    for line in scene.gate.stderr:
        if found := _STARTED.search(line):
            scene.server = observers.pid = int(found[1])
        scene.said.append(line)


def _collect(gate: psutil.Popen, texts: list[str], number: int) -> None:
    texts[number] = gate.stdout.read()
    gate.wait()


def _ours(scenes: list[Scene], mark: str) -> set[tuple[int, float]]:
    """Processes of the servers: those in their groups, and those that carry the case's mark."""
    groups, found = {scene.server for scene in scenes if scene.server}, set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            ours = os.getpgid(process.pid) in groups or process.environ().get(_MARK) == mark
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.add((process.pid, process.create_time()))
    return found


def _left(seen: set[tuple[int, float]], scenes: list[Scene], mark: str) -> list[str]:
    """What of the servers still lives; it is ended, since the bench started it."""
    deadline = time.monotonic() + _GRACE
    while True:
        left = []
        for pid, born in seen | _ours(scenes, mark):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.create_time() == born and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(process)
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    names = [f"{' '.join(one.cmdline())[:80]} ({one.pid})" for one in left]
    for one in left:
        with contextlib.suppress(psutil.Error):
            one.kill()
    return names


def _look(evidence: Path, case: Case) -> tuple[list[dict[str, Any]], list[str]]:
    """The verdicts that are recorded, and what is wrong with the evidence."""
    store = Store(evidence)
    if not store.runs.is_dir():
        return [], [] if case.lines == 0 else ["there is none"]
    records = store.records()
    wrong = [f"{name}: {one}" for name, record in records.items() for one in store.problems(record)]
    wrong += [f"unrecorded: {name}" for name in store.unrecorded()]
    wrong += [f"incomplete: {name}" for name in store.incomplete()]
    wrong += [f"scratch left: {path.name}" for path in (evidence / "scratch").glob("*")]
    wrong += [f"{len(records)} ledger lines, expected {case.lines}"] if len(records) != case.lines else []
    return [json.loads((store.runs / name / "result.json").read_text("utf-8")) for name in records], wrong


def _summary(text: str, records: list[dict[str, Any]]) -> str:
    if records:
        return records[0]["summary"]
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        return str(found.get("summary") or found.get("error"))
    return text[:200]


def _root(records: list[dict[str, Any]]) -> str | None:
    return (records[0].get("root") or {}).get("id") if records else None


def _passed(records: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for record in records for one in record.get("checks", ()) if one["state"] == "PASS"]
