"""``python -m npu_emulator.dry_run PLAN.json``: the import tier, then one forked process for each scenario.

PLAN.json holds ``out`` (a folder for results), ``models`` (a folder for tiny checkpoints), ``modules`` (what
the import tier imports), ``watched`` (files whose executed lines are recorded), and ``runs`` (scenario and
tier). Each finished step is one JSON line on stdout, and its result one JSON file in ``out``. A run may name
an ``out`` of its own, the only ``probes`` to run, and with ``shadow`` (package -> folder) files to import
instead of the installed ones.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from npu_emulator import record
from npu_emulator.dry_run import observe
from npu_emulator.dry_run.executed import Executed, watch
from npu_emulator.dry_run.failure import describe
from npu_emulator.dry_run.waiting import wait


def main(arguments: list[str]) -> int:
    """Run a plan; the exit code is 0 when all results were written, whatever they say."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a running scenario is ended as well
    plan = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    out = Path(plan["out"])
    os.environ.setdefault("NPU_EMULATOR_DEVICES", str(_devices(plan["runs"])))
    executed = watch(plan["watched"])
    result = _import(plan["modules"])
    result["lines"] = executed.lines()
    _write(out, "import", result)
    if "error" in result:
        return 0
    gc.freeze()  # vLLM collects garbage a dozen times at each start: not over all that was imported
    for run in plan["runs"]:
        _in_child(plan, run, Path(run.get("out", out)), executed)
    return 0


def _devices(runs: list[dict]) -> int:
    """As many emulated devices as the widest of the scenarios is split over."""
    from npu_emulator.dry_run.catalogue import scenario

    options = [scenario(run["scenario"]).options for run in runs]
    return max(
        (one.get("tensor_parallel_size", 1) * one.get("pipeline_parallel_size", 1) for one in options),
        default=1,
    )


def _import(modules: list[str]) -> dict:
    started = time.monotonic()
    try:
        from npu_emulator.dry_run.imports import import_all

        import_all(modules)
        observe.failures()
    except BaseException as error:
        return {"error": describe(error), "seconds": time.monotonic() - started}
    return {"seconds": time.monotonic() - started}


def _in_child(plan: dict, run: dict, out: Path, executed: Executed) -> None:
    """Fork, run one scenario there, and see to it that the process and all it started are gone."""
    name = f"{run['tier']}-{run['scenario']}"
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _child(plan, run, out, name, executed)
    try:
        status, late, idle = wait(pid, started + run["seconds"])
    finally:
        _end_group(pid)
        for event in observe.events("group", out / f"{name}.record"):  # a server has a session of its own
            _end_group(event["group"])
    path = out / f"{name}.json"
    if not path.exists():
        why = f"the process ended with status {status}"
        if late:
            state = "its processes wait and do nothing" if idle else "its processes are still busy"
            why = f"no result after {run['seconds']} s: {state}"
        error = {"type": "Ended", "text": why, "where": "", "traceback": [], "late": late, "idle": idle}
        _write(out, name, {"error": error})
        return
    print(json.dumps({"done": name, "seconds": round(time.monotonic() - started, 1)}), flush=True)


def _child(plan: dict, run: dict, out: Path, name: str, executed: Executed) -> None:
    """The forked process: its own session, its own log, one result file; never returns."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    log = os.open(out / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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
