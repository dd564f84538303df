"""The warm process that plays runs: what starts when, when it stops, and that nothing of it is left."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from npu_emulator.dry_run import server
from npu_upgrade.gates.emulation import process
from npu_upgrade.ground.behind import BEHIND
from npu_upgrade.ground.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
# in place of what needs torch: nothing is imported, and a scenario is what its name says
FAKES = """
import os, subprocess, sys, time, types
if "SLOW" in os.environ:
    killpg = os.killpg
    os.killpg = lambda *group: (time.sleep(1), killpg(*group))
imports, scenario = (types.ModuleType(f"npu_emulator.dry_run.{name}") for name in ("imports", "scenario"))
imports.import_all = lambda modules: None
def play(plan, run):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "sleeper of " + plan["out"]])
    time.sleep(60 if run["scenario"] == "long" else 0.3)
    if run["scenario"] == "bad":
        raise TypeError("bad")
    return {"probes": [], "started": time.time() - 0.3}
scenario.play = play
sys.modules |= {module.__name__: module for module in (imports, scenario)}
"""


@pytest.fixture
def variables(tmp_path):
    """What the driver is started with."""
    (tmp_path / "fakes").mkdir()
    (tmp_path / "fakes" / "sitecustomize.py").write_text(FAKES)
    return {"PYTHONPATH": os.pathsep.join((str(tmp_path / "fakes"), str(ROOT / "emulator")))}


def plan_of(out: Path) -> dict:
    return {"out": str(out), "models": str(out), "modules": [], "watched": [], "devices": 1}


def runs_of(*names: str) -> list[dict]:
    return [{"tier": "eager", "scenario": name, "seconds": 50} for name in names]


def left(out: Path) -> list[str]:
    """The living processes that carry the folder's name; the kernel may take a moment to end one."""
    deadline = time.monotonic() + 10
    while found := [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if str(out).encode() in _read(path) and path.parent.name != str(os.getpid())
    ]:
        if time.monotonic() > deadline:
            return found
        time.sleep(0.1)
    return []


def wait_until_at_work(out: Path) -> None:
    """Wait until the long scenario has begun and started a process."""
    deadline = time.monotonic() + 30
    while not (out / "eager-long.log").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_all_play_and_nothing_is_left(tmp_path, variables, monkeypatch):
    monkeypatch.setattr(process, "AT_ONCE", 2)
    out, seen = tmp_path / "out", []

    def go_on(run):
        seen.append(run["scenario"])
        return True

    process.play(Path(sys.executable), variables, plan_of(out), out, runs_of("a", "bad", "b"), go_on)
    assert sorted(seen) == ["a", "b", "bad"]
    assert json.loads((out / "eager-bad.json").read_text())["error"]["text"] == "bad"
    assert json.loads((out / "eager-b.json").read_text())["probes"] == []
    assert not left(out)


def test_no_more_start_once_they_are_not_wanted_and_those_at_work_end(tmp_path, variables, monkeypatch):
    monkeypatch.setattr(process, "AT_ONCE", 2)
    out = tmp_path / "out"
    runs = runs_of("bad", "long", "later")
    begun = time.monotonic()
    process.play(Path(sys.executable), variables, plan_of(out), out, runs, lambda run: False)
    assert time.monotonic() - begun < 30
    assert (out / "eager-bad.json").exists()
    assert not list(out.glob("eager-l*.json"))
    assert not left(out)


def test_a_check_that_raises_ends_what_is_at_work(tmp_path, variables):
    out = tmp_path / "out"

    def check() -> None:
        if (out / "import.json").exists():
            raise BadInput("the files changed", expected="the same", try_="again")

    with pytest.raises(BadInput, match="the files changed"):
        process.play(
            Path(sys.executable), variables, plan_of(out), out, runs_of("long"), lambda run: True, check
        )
    assert not (out / "eager-long.json").exists()
    assert not left(out)


ASKER = """
import json, signal, sys
from pathlib import Path
from npu_upgrade.gates.emulation import process
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background job of a shell ignores
out, variables, plan, runs = json.loads(sys.argv[1])
process.play(Path(sys.executable), variables, plan, Path(out), runs)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whoever_asked_may_go_at_any_time(tmp_path, variables, how):
    out = tmp_path / "out"
    asked = json.dumps([str(out), variables, plan_of(out), runs_of("long")])
    paths = os.pathsep.join((str(ROOT / "scripts"), str(ROOT / "emulator")))
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, asked], env=os.environ | {"PYTHONPATH": paths}, start_new_session=True
    )
    wait_until_at_work(out)
    assert asker.poll() is None
    asker.send_signal(how)
    assert asker.wait(timeout=30) != 0
    assert not left(out)
    assert not server.members(asker.pid)


def test_a_second_word_to_end_does_not_stop_the_ending(tmp_path, variables):
    """The end of its input ends the scenarios; the signal that follows finds it at that."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "plan.json").write_text(json.dumps(plan_of(out)))
    driver = subprocess.Popen(
        [sys.executable, "-P", "-m", "npu_emulator.dry_run", str(out / "plan.json")],
        env=os.environ | variables | {"SLOW": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin
    assert driver.stdout
    driver.stdout.readline()  # it has imported
    driver.stdin.write(json.dumps(runs_of("long")[0]) + "\n")
    driver.stdin.flush()
    wait_until_at_work(out)
    driver.stdin.close()
    time.sleep(0.3)
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(timeout=30) == 143
    driver.stdout.close()
    assert not left(out)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this system has no autogroups")
@pytest.mark.parametrize("behind", [True, False])
def test_behind_each_session_of_a_run_gives_way(tmp_path, variables, monkeypatch, behind):
    """The scheduler divides the time between sessions first, so that nice alone does nothing."""
    if behind:
        monkeypatch.setenv(BEHIND, "1")
    seen: list[set[str]] = []

    def look() -> None:
        pids = [
            path.parent
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(tmp_path).encode() in _read(path)
        ]
        seen.append({_read(pid / "autogroup").decode().rpartition(" ")[2].strip() for pid in pids})
        if len(seen) > 2:
            raise BadInput("it was seen", expected="-", try_="-")

    with pytest.raises(BadInput, match="it was seen"):
        process.play(
            Path(sys.executable), variables, plan_of(tmp_path), tmp_path, runs_of("long"), check=look
        )
    assert ("19" in seen[-1]) is behind
    assert ("0" in seen[-1]) is not behind
