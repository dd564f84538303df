"""Start the dry run in its environment, show its progress, and leave no process of it behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from npu_upgrade.code.definitions import module_of
from npu_upgrade.gates.emulation.standstill import Watch
from npu_upgrade.ground.behind import let_give_way
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.signals import terminated_as_interrupted
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.sources.tree import SourceTree

_MODULE = "npu_emulator.dry_run"
AT_ONCE = min(2, os.cpu_count() or 1)
_PASSED = ("PATH", "HOME", "LANG", "TMPDIR", "USER", "XDG_CACHE_HOME", "SSL_CERT_FILE")


def play(
    python: Path,
    variables: Mapping[str, str],
    plan: Mapping[str, Any],
    out: Path,
    runs: Sequence[Mapping[str, Any]] = (),
    go_on: Callable[[Mapping[str, Any]], bool] = lambda run: True,
    check: Callable[[], object] = lambda: None,
) -> None:
    """Import, then play ``runs`` in forks of that one process; results and logs are in ``out`` afterwards.

    Two play at a time where there are two cores. ``go_on`` is told each run that ended and says whether more
    are to start; those at work are then ended, as they are when ``check``, asked every second, raises. Only
    what is needed of this process's own variables is passed on, so that a user's settings of vLLM do not
    decide. Raises :class:`Blocked` when the process cannot be started or says nothing at all.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "plan.json", dict(plan) | {"runs": list(runs)})
    kept = {name: os.environ[name] for name in _PASSED if name in os.environ}
    record = out / "import.record"  # each scenario then has one of its own
    record.mkdir(exist_ok=True)
    kept["NPU_EMULATOR_RECORD"] = str(record)
    command = [str(python), "-P", "-m", _MODULE, str(out / "plan.json")]
    with open(out / "driver.log", "wb") as log, terminated_as_interrupted():
        process = subprocess.Popen(
            command,
            env=kept | dict(variables),
            cwd=out,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended, and the files say how
                _follow(process, runs, go_on, lambda: (let_give_way(process.pid), check()), Watch(out))
        finally:
            _end(process)
    if not (out / "import.json").exists():
        raise Blocked(
            f"the dry run ended before it could import anything (exit {process.returncode})",
            expected="an interpreter and native parts that start",
            try_=f"see {out / 'driver.log'}; {upgrade('env', 'prune', '--all').short} makes it anew",
        )


def _follow(
    process: subprocess.Popen[str],
    runs: Sequence[Mapping[str, Any]],
    go_on: Callable[[Mapping[str, Any]], bool],
    check: Callable[[], object],
    watch: Watch,
) -> None:
    """Start runs as others end, until all have ended or no more are wanted."""
    assert process.stdin is not None
    waiting, at_work = deque(runs), []

    def look() -> None:
        check()
        watch.look(f"{run['tier']}-{run['scenario']}" for run in at_work)

    for line in _lines(process, look):
        said = _said(line)
        if said is None:
            continue
        ended = [run for run in at_work if f"{run['tier']}-{run['scenario']}" == said["done"]][:1]
        at_work = [run for run in at_work if run not in ended]
        watch.ended(said["done"])
        left = f", {len(waiting) + len(at_work)} of {len(runs)} runs left" if runs else ""
        say(f"  {said['done']:<28} {said['seconds']:>6.1f} s{left}")
        if ended and not go_on(ended[0]):
            return
        while waiting and len(at_work) < AT_ONCE:
            at_work.append(waiting.popleft())
            process.stdin.write(json.dumps(at_work[-1]) + "\n")
            process.stdin.flush()
        if not at_work:
            return


def _lines(process: subprocess.Popen[str], check: Callable[[], object]) -> Iterator[str]:
    """What the process prints, line by line, with ``check`` asked in between."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError):  # closed by who ended the process
            for line in process.stdout:
                lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=1.0)
        except queue.Empty:
            check()
            continue
        if not line:
            return
        yield line


def _said(line: str) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        said = json.loads(line)
        return said if isinstance(said, dict) and "done" in said else None
    return None


def _end(process: subprocess.Popen[str]) -> None:
    """End the driver, which ends each scenario's own process group; it does so too when we are gone."""
    with contextlib.suppress(BrokenPipeError):
        if process.stdin:
            process.stdin.close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def runner_module(ascend: SourceTree, vllm: SourceTree) -> str:
    """The module of vllm-ascend's own runner, which imports all that a run needs."""
    return module_of(Downstream(ascend, {"vllm": vllm}).runners[0].path)


def import_once(
    python: Path, variables: Mapping[str, str], packages: Mapping[str, Path], module: Callable[[], str]
) -> None:
    """Import once ``module``, as every run of these vLLM and vllm-ascend does, and remember that.

    What it says does not matter here: the import tier will say it again.
    """
    made_from = "\n".join(str(packages[top]) for top in ("vllm", "vllm_ascend"))
    mark = python.parents[1] / f".imported-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"
    if mark.exists():
        return
    say("importing everything once, which writes its byte code (about 30 s)")
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as folder, contextlib.suppress(Blocked):
        plan = {"out": folder, "models": folder, "modules": [module()], "watched": [], "devices": 1}
        play(python, variables, plan, Path(folder))
    mark.touch()
