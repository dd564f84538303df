"""``python -m npu_emulator.dry_run PLAN.json``: the import tier, then one forked process for each scenario.

PLAN.json holds ``out`` (a folder for results), ``models`` (a folder for tiny checkpoints), ``modules`` (what
the import tier imports), ``watched`` (files whose executed lines are recorded), and ``devices`` (how many
are emulated). Runs (scenario, tier, seconds) come as JSON lines on stdin and start at once, each in a fork of
this warm process; the end of stdin ends all. Each finished step is one JSON line on
stdout, and its result one JSON file in ``out``. A run may name an ``out`` of its own, the only ``probes`` to
run, and with ``shadow`` (package -> folder) files to import instead of the installed ones.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from npu_emulator import record
from npu_emulator.dry_run import observe
from npu_emulator.dry_run.executed import Executed, loaded_files, watch
from npu_emulator.dry_run.failure import describe
from npu_emulator.dry_run.waiting import Waited


def main(arguments: list[str]) -> int:
    """Run what is asked; the exit code is 0 when all results were written, whatever they say."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plan = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    out = Path(plan["out"])
    os.environ.setdefault("NPU_EMULATOR_DEVICES", str(plan["devices"]))
    executed = watch(plan["watched"])
    result = _import(plan["modules"])
    result["lines"] = executed.lines()
    result["loaded"] = loaded_files()
    _write(out, "import", result)
    if "error" in result:
        return 0
    gc.freeze()  # vLLM collects garbage a dozen times at each start: not over all that was imported
    running: list[_Running] = []
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))  # ends no ending halfway
    try:
        for run in _asked(running, told):
            running.append(_Running(plan, run, Path(run.get("out", out)), executed))
    finally:
        for one in running:
            one.stop()
    return 143 if told else 0


def _asked(running: list[_Running], told: list[int]) -> Iterator[dict]:
    """The runs that stdin asks for; between them the finished ones are taken out of ``running``.

    Ends with stdin, for who asks has all results then or is gone, and once ``told`` to end.
    """
    text = b""
    while not told:
        if select.select([0], [], [], 0.05)[0]:
            read = os.read(0, 65536)
            if not read:
                return
            *lines, text = (text + read).split(b"\n")
            yield from map(json.loads, lines)
        for one in [one for one in running if one.finished()]:
            running.remove(one)


def _import(modules: list[str]) -> dict:
    started = time.monotonic()
    gc.disable()  # what is imported stays: a tenth of the time went into looking for what does not
    try:
        from npu_emulator.dry_run.imports import import_all

        import_all(modules)
        observe.failures()
    except BaseException as error:
        return {"error": describe(error), "seconds": time.monotonic() - started}
    finally:
        gc.enable()
    return {"seconds": time.monotonic() - started}


class _Running:
    """One scenario in a fork of this process."""

    def __init__(self, plan: dict, run: dict, out: Path, executed: Executed) -> None:
        self._run, self._out, self._name = run, out, f"{run['tier']}-{run['scenario']}"
        out.mkdir(parents=True, exist_ok=True)
        self._started = time.monotonic()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _child(plan, run, out, self._name, executed)
        self._waited = Waited(pid, self._started + run["seconds"])

    def finished(self) -> bool:
        """Whether it ended; its result is then written, and nothing it started is left."""
        status = self._waited.ended()
        if status is None:
            return False
        self.end()
        seconds = time.monotonic() - self._started
        if (self._out / f"{self._name}.json").exists():
            print(json.dumps({"done": self._name, "seconds": round(seconds, 1)}), flush=True)
        else:
            _write(self._out, self._name, {"error": self._ended(status), "seconds": seconds})
        return True

    def _ended(self, status: int) -> dict:
        why, late, idle = f"the process ended with status {status}", self._waited.late, self._waited.idle
        if late:
            state = "its processes wait and do nothing" if idle else "its processes are still busy"
            why = f"no result after {self._run['seconds']} s: {state}"
        return {"type": "Ended", "text": why, "where": "", "traceback": [], "late": late, "idle": idle}

    def stop(self) -> None:
        """End it while it runs, even before it has its own session."""
        os.kill(self._waited.pid, signal.SIGKILL)  # nobody took its status: the number is still its own
        self.end()

    def end(self) -> None:
        """End what is left of the scenario's own session, and of the servers' it started."""
        _end_group(self._waited.pid)
        for event in observe.events("group", self._out / f"{self._name}.record"):
            _end_group(event["group"])


def _child(plan: dict, run: dict, out: Path, name: str, executed: Executed) -> None:
    """The forked process: its own session, its own log, one result file; never returns."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    log = os.open(out / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _own_record(out / f"{name}.record")
    code = 0
    try:
        from npu_emulator.dry_run.scenario import play
        from npu_emulator.dry_run.shadow import shadow

        shadow(run.get("shadow", {}))
        result = play(plan, run)
    except BaseException as error:
        result = {"error": observe.first_failure() or describe(error)}
        code = 1
    try:
        result["lines"] = observe.all_lines(executed.lines())
        result["loaded"] = observe.all_loaded(loaded_files())
        result["peak_mib"] = _peak_mib()
        _write(out, name, result, announce=False)
        from npu_emulator.autoload import end

        end()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _peak_mib() -> int:
    """The most memory this process used and, counted for two workers, the largest of those it started."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    own, started = (resource.getrusage(kind).ru_maxrss for kind in kinds)
    return (own + 2 * started) // 1024


def _own_record(folder: Path) -> None:
    """Let this process and all it starts write their events into a folder of this run."""
    folder.mkdir(exist_ok=True)
    for earlier in folder.glob("*.jsonl"):
        earlier.unlink()
    os.environ[record.FOLDER] = str(folder)


def _end_group(group: int) -> None:
    """End what the scenario's process left behind in its own session."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _write(out: Path, name: str, result: dict, announce: bool = True) -> None:
    path = out / f"{name}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.rename(path)
    if announce:
        print(json.dumps({"done": name, "seconds": round(result.get("seconds", 0), 1)}), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
