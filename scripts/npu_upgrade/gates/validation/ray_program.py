"""Run by the interpreter that has ray, alone: tasks as JSON on stdin, their outcomes as JSON lines on stdout.

Imports nothing of this bundle, which that interpreter does not know.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys


def work(skill: bytes, argv: list[str]) -> dict:
    """One task, on whatever node: the command in a workspace of its own, and its evidence as a pack."""
    import io
    import pathlib
    import shutil
    import socket
    import subprocess
    import tarfile
    import tempfile
    import time

    started = time.monotonic()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="npu-upgrade-task-"))
    try:
        with tarfile.open(fileobj=io.BytesIO(skill)) as archive:
            archive.extractall(scratch / "skill", filter="data")
        workspace = scratch / "workspace"
        workspace.mkdir()
        program = [shutil.which("python3") or sys.executable, str(scratch / "skill/scripts/upgrade.py")]
        at = argv.index("--") if "--" in argv else len(argv)
        own = argv[:at]
        if "--workspace" in own:
            own[own.index("--workspace") + 1] = str(workspace)
        whole = scratch / "result.json"
        asked = [*own, "--format", "json", "--output", str(whole), *argv[at:]]
        done = subprocess.run([*program, *asked], capture_output=True, text=True, cwd=workspace)
        pack = scratch / "pack.tar.gz"
        packing = ["evidence", "pack", "--out", str(pack), "--workspace", str(workspace)]
        subprocess.run([*program, *packing], capture_output=True)
        return {
            "code": done.returncode,
            "stdout": whole.read_text("utf-8") if whole.exists() else done.stdout or done.stderr[-2000:],
            "pack": pack.read_bytes() if pack.exists() else b"",
            "node": socket.gethostname(),
            "seconds": round(time.monotonic() - started, 1),
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> int:
    asked = json.load(sys.stdin)
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        return _trouble(f"{sys.executable} has no ray")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            ray.init(address=asked["address"], log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        return _trouble(f"no Ray cluster at {asked['address']}: {str(error).strip().splitlines()[0]}")
    try:
        return _schedule(ray, asked)
    finally:
        ray.shutdown()


def _schedule(ray, asked: dict) -> int:
    most = max((node["Resources"].get("NPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
    short = [one["name"] for one in asked["tasks"] if one["npus"] > most]
    if short:
        return _trouble(
            f"no node of the cluster has the NPUs for {', '.join(short)}; the largest has {most:g}"
        )
    skill = ray.put(_archive(asked["skill"]))
    task = ray.remote(work)
    waiting, running, codes = list(asked["tasks"]), {}, {}
    while waiting or running:
        for one in list(waiting):
            if one["after"] in codes or one["after"] not in {other["name"] for other in asked["tasks"]}:
                waiting.remove(one)
                below = codes.get(one["after"], 0)
                if below:
                    codes[one["name"]] = 4
                    _say(one, {"code": 4, "stdout": f"not tried: {one['after']} did not pass", "ran": False})
                else:
                    options = {"num_cpus": 1, "resources": {"NPU": one["npus"]} if one["npus"] else {}}
                    running[task.options(**options, max_retries=0).remote(skill, one["argv"])] = one
        done, _ = ray.wait(list(running), num_returns=1) if running else ([], [])
        for reference in done:
            one = running.pop(reference)
            try:
                result = ray.get(reference) | {"ran": True}
            except Exception as error:  # a node that died is an outcome of this task, not of the others
                result = {"code": -1, "stdout": f"the task did not end: {error}"[:2000], "ran": True}
            codes[one["name"]] = result["code"]
            _keep(asked["packs"], one, result)
            _say(one, result)
    return 0


def _keep(folder: str, one: dict, result: dict) -> None:
    data = result.pop("pack", b"")
    result["pack"] = ""
    if data:
        result["pack"] = os.path.join(folder, f"{len(os.listdir(folder))}.tar.gz")
        with open(result["pack"], "wb") as stream:
            stream.write(data)


def _say(one: dict, result: dict) -> None:
    rest = {"node": "", "seconds": 0.0, "pack": ""} | result
    print(json.dumps({"name": one["name"]} | rest), flush=True)


def _archive(folder: str) -> bytes:
    import io
    import tarfile

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.add(folder, arcname=".")
    return data.getvalue()


def _trouble(text: str) -> int:
    print(json.dumps({"trouble": text}), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
