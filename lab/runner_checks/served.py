"""``python -m runner_checks.served FOLDER SCRATCH [PLAN]``: vllm serve with an AR runner, asked over HTTP.

The checkpoint in FOLDER is that of the model Thinker. PLAN is JSON: ``ranks`` (the data-parallel size),
``asynchronous`` (scheduling; on a CPU by the hook of that name), ``device`` ("npu": vllm-ascend, on the
emulator). Prints a JSON object: each check and why it failed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from omni_runners import client
from omni_runners.errors import PayloadError
from omni_runners.payload_files import FOLDER, PayloadFiles
from runner_checks.names import HOOKS, SCHEDULERS, WORKER, WORKERS
from runner_checks.sampler_tokens import (
    BIASED,
    DECLINES_AFTER,
    PENALISED,
    PENALISED_TOKENS,
    UNPENALISED_TOKENS,
)

FORCED = "</think><recaption>"
READY_SECONDS = 600  # two engines on a busy machine
PLUGINS = (
    "[vllm.general_plugins]\nrunner_models = runner_checks.models:register\n"
    "runner_hooks = runner_checks.platform:asked_for\n"
)


class Server:
    """``vllm serve`` in a process group of its own, its models registered by a plugin."""

    def __init__(self, folder: Path, scratch: Path, plan: dict) -> None:
        self.scratch, self.payloads, self._port = scratch, scratch / "payloads", _free_port()
        about = scratch / "plugin" / "runner_models-1.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: runner-models\nVersion: 1\n")
        (about / "entry_points.txt").write_text(PLUGINS)
        paths = [str(scratch / "plugin"), *sys.path]
        variables = {"PYTHONPATH": os.pathsep.join(paths), FOLDER: str(self.payloads)}
        on_npu, later = plan.get("device") == "npu", plan.get("asynchronous", False)
        if later and not on_npu:
            variables[HOOKS] = "asynchronous"
        options = ["--data-parallel-size", str(plan["ranks"])] if "ranks" in plan else []
        if on_npu:
            options += ["--async-scheduling" if later else "--no-async-scheduling"]
        self.log = (scratch / "log").open("w")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder)),
                *("--port", str(self._port), "--served-model-name", "tiny", "--dtype", "float32"),
                *("--max-model-len", "256", "--max-num-seqs", "8", "--enforce-eager"),
                *("--worker-cls", WORKERS[WORKER] if on_npu else WORKER),
                *("--scheduler-cls", SCHEDULERS[later], *options),
            ],
            env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"} | variables,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Raises RuntimeError with the end of the log."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                urllib.request.urlopen(self._url("/health"), timeout=2)
                return
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        log = Path(self.log.name).read_text()[-2000:]
        raise RuntimeError(f"the server is not ready (exit code {self._process.poll()}):\n{log}")

    def complete(self, **more) -> dict | list[dict]:
        """One completion; the list of chunks for a stream."""
        body = {"model": "tiny", "prompt": [7, 9, 11], "max_tokens": 6, "temperature": 0} | more
        body |= {"ignore_eos": True, "skip_special_tokens": False}
        request = urllib.request.Request(
            self._url("/v1/completions"), json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            if not more.get("stream"):
                return json.load(answer)
            lines = (line.decode().strip().removeprefix("data: ") for line in answer)
            return [json.loads(line) for line in lines if line.startswith("{")]

    def finished(self) -> dict[str, float]:
        """Engine -> requests that it brought to an end."""
        with urllib.request.urlopen(self._url("/metrics"), timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found: dict[str, float] = {}
        for line in lines:
            if line.startswith("vllm:request_success_total"):
                engine = line.partition('engine="')[2].partition('"')[0]
                found[engine] = found.get(engine, 0.0) + float(line.rpartition(" ")[2])
        return found

    def kill_engine(self) -> None:
        """As the kernel's out-of-memory killer does: the engine core, with no chance to clean up."""
        import psutil

        for child in psutil.Process(self._process.pid).children(recursive=True):
            if "EngineCore" in " ".join(child.cmdline()) or "EngineCor" in child.name():
                child.kill()

    def stop(self) -> None:
        """End the whole group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self.log.close()

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}{path}"


def the_forced_token_follows(server):
    """</think> is followed by <recaption>, and the payload comes with it."""
    response = server.complete()
    text, payload = response["choices"][0]["text"], client.take(response)
    if FORCED not in text:
        return f"the text is {text!r}"
    return _rows(payload, 8)


def penalties_over_http(server):
    """On and off, alone and eight at once: the model draws from what they leave of the logits.

    No request is as long as to have the model decline, which it does for all requests of a step.
    """
    for asked, expected in ((BIASED, UNPENALISED_TOKENS), (PENALISED, PENALISED_TOKENS)):
        for prompts in ([[7, 9, 11]], [[7 + one, 9, 11] for one in range(8)]):
            with ThreadPoolExecutor(len(prompts)) as pool:
                futures = [pool.submit(_tokens, server, prompt, asked) for prompt in prompts]
                found = [future.result() for future in futures]
            if wrong := [tokens for tokens in found if tokens != expected[:DECLINES_AFTER]]:
                return f"{len(wrong)} of {len(prompts)} drew {wrong[0]}, expected {expected[:DECLINES_AFTER]}"
    return ""


def _tokens(server, prompt, asked):
    response = server.complete(prompt=prompt, max_tokens=DECLINES_AFTER, return_token_ids=True, **asked)
    client.take(response)
    return response["choices"][0]["token_ids"]


def what_the_client_sent_for_transfer_is_preserved(server):
    """Only our key is taken out."""
    response = server.complete()
    response["kv_transfer_params"] |= {"remote": 1}
    return "" if client.take(response).transfer == {"remote": 1} else "lost"


def a_stream_has_a_channel(server):
    """Asked for, in the last chunk; not asked for, nothing."""
    chunks = server.complete(stream=True, vllm_xargs={"omni_payload": True})
    quiet = server.complete(stream=True)
    if any("omni_payload" in json.dumps(chunk) for chunk in quiet):
        return "a stream that did not ask has a payload"
    return _rows(client.take_from_stream(chunks), 8)


def several_choices(server):
    """Each choice has a payload of its own."""
    response = server.complete(n=2, temperature=1.0, vllm_xargs={"omni_payload": True})
    return _rows(client.take(response, 0), 8) or _rows(client.take(response, 1), 8)


def a_request_may_opt_out(server):
    """Over HTTP too."""
    response = server.complete(vllm_xargs={"omni_payload": False})
    return f"got {response['kv_transfer_params']}" if response.get("kv_transfer_params") else ""


def every_engine_hands_over(server):
    """Requests at once are spread over the data-parallel ranks, and each has its own payload."""
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda number: server.complete(prompt=[7, 9, 11 + number]), range(8)))
    for response in responses:
        if why := _rows(client.take(response), 8):
            return why
    idle = [engine for engine, count in server.finished().items() if not count]
    return f"engine {', '.join(idle)} answered nothing" if idle else ""


def a_disk_that_takes_nothing(server):
    """The client is told, its tokens are complete, and the engine goes on."""
    engine = next(server.payloads.glob("engine-*/"))
    shutil.rmtree(engine)
    response = server.complete()
    engine.mkdir()
    try:
        client.take(response)
        return "the client got a payload"
    except PayloadError as error:
        if "could not be written" not in str(error):
            return f"the client is told: {error}"
    return the_forced_token_follows(server)


def a_killed_engine_leaves_nothing(server):
    """What it had not handed over is swept when the next one starts."""
    server.complete()  # not read
    if not list(server.payloads.glob("engine-*/*.safetensors")):
        return "there was nothing to leave behind"
    server.kill_engine()
    server.stop()
    PayloadFiles(server.payloads).close()
    left = [str(path) for path in server.payloads.glob("engine-*")]
    return f"left: {left}" if left else ""


def _rows(payload, expected):
    rows = len(payload.tensors["hidden"])
    return "" if rows == expected else f"{rows} rows, expected {expected}"


CHECKS = (
    the_forced_token_follows,
    penalties_over_http,
    what_the_client_sent_for_transfer_is_preserved,
    a_stream_has_a_channel,
    several_choices,
    a_request_may_opt_out,
    a_disk_that_takes_nothing,
    a_killed_engine_leaves_nothing,
)
RANKS_CHECKS = (the_forced_token_follows, several_choices, a_request_may_opt_out, every_engine_hands_over)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main(folder: Path, scratch: Path, plan: dict) -> dict[str, str]:
    """Start the server, ask, and stop it whatever happens."""
    server, found = Server(folder, scratch, plan), {}
    try:
        server.wait_until_ready()
        for check in RANKS_CHECKS if "ranks" in plan else CHECKS:
            found[check.__name__] = check(server)
    finally:
        server.stop()
    return found


if __name__ == "__main__":
    asked = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    print("\n" + json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), asked)), flush=True)
