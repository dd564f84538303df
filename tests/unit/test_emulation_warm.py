"""A server's spawned processes begin in a warm fork, with the server's variables and in its group."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from npu_emulator.dry_run import warm

ROOT = Path(__file__).resolve().parents[2]
# what the scenario's process has imported before: each fork writes a line when it ends
PAID = """
import os
from multiprocessing import util
def told():
    with open(os.environ["TOLD"], "a") as file:
        file.write(f"{os.getpid()}\\n")
util.register_after_fork(util, lambda _: util.Finalize(None, told, exitpriority=1))
"""
SCENARIO = """
import os, subprocess, sys
import paid
from npu_emulator.dry_run import warm
server = subprocess.Popen([sys.executable, "server.py"], env=os.environ | warm.offer(), process_group=0)
sys.exit(server.wait(timeout=40))
"""
SERVER = """
import json, multiprocessing, os, sys
from npu_emulator.dry_run import warm
def work(queue, pipe):
    pipe.send("over a pipe")
    queue.put({"paid": "paid" in sys.modules, "given": os.environ.get("GIVEN"), "pid": os.getpid(),
               "group": os.getpgrp(), "argv": sys.argv[0]})
    sys.exit(7)
if __name__ == "__main__":
    warm.use()
    os.environ["GIVEN"] = "by the server"
    spawning = multiprocessing.get_context("spawn")
    (ours, theirs), queue = spawning.Pipe(), spawning.Queue()
    one = spawning.Process(target=work, args=(queue, theirs))
    one.start()
    found = queue.get(timeout=30) | {"piped": ours.recv()}
    one.join(30)
    alive = spawning.Process(target=__import__("time").sleep, args=(60,))
    alive.start()
    alive.terminate()
    alive.join(30)
    print(json.dumps(found | {"server": os.getpid(), "code": one.exitcode, "ended": alive.exitcode}))
"""


@pytest.mark.skipif(not warm._KNOWN, reason="the fork server of this Python authenticates")
def test_a_spawned_process_is_a_warm_fork(tmp_path):
    for name, text in {"paid.py": PAID, "scenario.py": SCENARIO, "server.py": SERVER}.items():
        (tmp_path / name).write_text(text)
    told = tmp_path / "told"
    paths = os.pathsep.join((str(tmp_path), str(ROOT / "emulator")))
    done = subprocess.run(
        [sys.executable, "scenario.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths, "TOLD": str(told)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["paid"], found["given"]) == (True, "by the server")
    assert found["group"] == found["server"]
    assert found["piped"] == "over a pipe"
    assert (found["code"], found["ended"]) == (7, -15)
    assert str(found["pid"]) in told.read_text().split()


def test_without_an_offer_nothing_changes(monkeypatch):
    monkeypatch.delenv(warm.ADDRESS, raising=False)
    before = warm.spawn.get_preparation_data
    warm.use()
    assert warm.spawn.get_preparation_data is before
