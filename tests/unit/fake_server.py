"""A tiny ``vllm serve`` with an engine process beside it; the variable FAULT names what goes wrong."""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("serve")
parser.add_argument("model")
parser.add_argument("--omni", action="store_true")
for option in ("--host", "--port", "--served-model-name", "--load-format"):
    parser.add_argument(option)
args, more = parser.parse_known_args()
fault, counted, asked, begun = os.environ.get("FAULT", "none"), 0, 0, 0
told, one_at_a_time, counting = False, threading.Lock(), threading.Lock()
refused, _, room = fault.partition(":")  # refuse:OPTION, needs:OPTION, room:TOKENS of the KV cache
PATHS = {"/v1/completions": {}, "/v1/chat/completions": {}}
CONFIG = {
    "load_config": {"load_format": "auto" if fault == "wrong-weights" else args.load_format or "auto"},
    "model_config": {"multimodal_config": {} if fault.startswith("image") else None, "max_model_len": 64},
    "parallel_config": {"enable_expert_parallel": "--enable-expert-parallel" in more},
}
http.server.ThreadingHTTPServer.request_queue_size = 128


def given(option: str, default: str = "") -> str:
    """The value of an option that is not one of the gate's own."""
    return more[more.index(option) + 1] if option in more else default


CONFIG["model_config"]["max_model_len"] = int(given("--max-model-len", "64"))
DRAFTS = """vllm:spec_decode_num_drafts_total{engine="0"} 9.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 4.0
"""


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, value: object, status: int = 200) -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/metrics":
            most = int(given("--max-num-seqs", "1"))
            preempted = begun // most if fault == "preempting" else 0
            drafts = DRAFTS if "--speculative-config" in more else ""
            lines = f'vllm:generation_tokens_total{{engine="0"}} {0 if args.omni else counted}.0\n{drafts}'
            if args.omni:
                lines += f'vllm_omni:generation_tokens_total{{model_name="x"}} {counted}.0\n'
            if fault == "read-one-by-one":
                lines += f'vllm:num_requests_running{{engine="0"}} {most}.0\n'
            self.answer(f'# TYPE x counter\n{lines}vllm:num_preemptions_total{{engine="0"}} {preempted}.0\n')
        elif self.path == "/v1/models":
            name = "other" if fault == "wrong-name" else args.served_model_name
            names = [name, *([given("--lora-modules").partition("=")[0]] if "--lora-modules" in more else [])]
            self.answer({"data": [{"id": one} for one in names]})
        elif self.path == "/openapi.json":
            self.answer({"paths": PATHS})
        else:
            self.answer("")
            later = {"late": lambda: os._exit(0), "engine-late": engine.kill}.get(fault)
            if told and later:  # health is asked again in the quiet window
                threading.Timer(0.1, later).start()

    def do_POST(self) -> None:
        global counted, asked, told
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked += 1
        told = told or "messages" in body
        with contextlib.suppress(OSError):
            engine.stdin.write(b"\n")
            engine.stdin.flush()
        if fault == f"die-{asked}":
            os._exit(0)
        if fault == f"halt-{asked}":
            engine.send_signal(signal.SIGSTOP)
            time.sleep(600)
        if fault == f"engine-{asked}":
            engine.kill()
            time.sleep(600)
        if fault == "error":
            self.answer({"error": {"message": "no"}}, 500)
            return
        if fault == "no-template" and "messages" in body:
            self.answer({"error": {"message": "there is no chat template"}}, 400)
            return
        if isinstance(body.get("prompt"), list) and isinstance(body["prompt"][0], str):
            self.stream_batch(len(body["prompt"]), body["max_tokens"])
            return
        if body.get("stream"):
            self.stream(8)
            return
        if args.omni and "messages" not in body:
            self.answer({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": {}})
            return
        tokens = 8
        read = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 3
        if fault == "half-read" and read > 3:
            read //= 2
        counted += 0 if fault == "uncounted" else tokens
        ids, text = said(body)
        usage = {"completion_tokens": 0 if fault == "no-tokens" else tokens, "prompt_tokens": read}
        finish = None if fault == "no-reason" else "length"
        choice = {"message": {"content": text}} if "messages" in body else {"text": text}
        choice |= {"index": 0, "token_ids": ids, "finish_reason": finish}
        if body.get("logprobs") and "messages" in body:
            change = zlib.crc32(json.dumps(body).encode()) if fault == "image-probabilities" else 1
            choice["logprobs"] = {"content": [{"logprob": -float(change)}]}
        self.answer({"choices": [choice], "usage": usage})

    def stream_batch(self, prompts: int, tokens: int) -> None:
        """Answers of one request, in step, or one after the other where the engine takes them so."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        counts, indexes = range(8, tokens + 1, 8), range(prompts)
        order = [(count, index) for count in counts for index in indexes]
        if fault == "one-by-one":
            order = [(count, index) for index in indexes for count in counts]
        for count, index in order:
            chunk = {"choices": [{"index": index, "text": "x"}], "usage": {"completion_tokens": count}}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.001)
        whole = {"choices": [], "usage": {"completion_tokens": prompts * tokens}}
        self.wfile.write(f"data: {json.dumps(whole)}\n\ndata: [DONE]\n\n".encode())

    def stream(self, tokens: int) -> None:
        """Chunk after chunk; after the first, wait for as many requests as are to run together."""
        most = int(given("--max-num-seqs", "1"))
        global counted, begun
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        alone = fault in ("one-by-one", "read-one-by-one", "too-fast")
        with one_at_a_time if alone else contextlib.nullcontext():
            for count in range(1, tokens + 1):
                usage = {"completion_tokens": 0 if fault == "silent-stream" else count}
                self.wfile.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
                self.wfile.flush()
                if count == 1:
                    with counting:
                        begun += 1
                        all_of_them = -(-begun // most) * most
                deadline = time.monotonic() + 20
                while not alone and begun < all_of_them and time.monotonic() < deadline:
                    time.sleep(0.01)
                time.sleep(0.03)
        counted += tokens
        if fault == "broken-stream":
            self.wfile.write(b'data: {"error": {"message": "the engine is gone"}}\n\n')
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *unused: object) -> None:
        pass


def said(body: dict) -> tuple[list[int], str]:
    """Token ids and text of an answer: a function of what was asked, unless the fault says otherwise."""
    if fault in ("empty", "loud-end"):
        return [2] * 2, ""
    if fault == "one-token":
        return [7] * 8, "aaaaaaaa"
    if fault == "one-answer":
        return list(range(8)), "always this"
    seen = json.dumps(body.get("messages") or body["prompt"])
    if fault in ("image-ignored", "image-probabilities"):
        seen = "the same"
    if fault == "unsteady":
        seen += str(asked)
    number = zlib.crc32(seen.encode())
    return [number % 97, *range(7)], f"<think>{number}</think><recaption>"


if fault == "early":
    sys.exit(0)
print("Starting to load model", flush=True)
if fault == "root-cause":
    print("ValueError: No available memory for the cache blocks. Try increasing it.", flush=True)
    sys.exit(1)
if refused == "needs" and room not in more:
    sys.exit(1)
if refused == "refuse" and room in more:
    print(f"ValueError: TinyForCausalLM does not support {room} yet.", flush=True)
    sys.exit(1)
if refused == "room":
    if CONFIG["model_config"]["max_model_len"] > int(room):
        print(
            "ValueError: To serve at least one request with the model's max seq len (9), (1 GiB KV cache is",
            end=" ",
        )
        print(
            f"needed. the estimated maximum model length is {room}. Try decreasing `max_model_len`",
            flush=True,
        )
        sys.exit(1)
    print(f"INFO 11-22 03:04:05 [x.py:9] CPU KV cache size: {room} tokens", flush=True)
if "--enable-expert-parallel" in more:
    print("(Worker_TP0_EP0 pid=7) INFO 11-22 03:04:05 [x.py:9] one of two ranks", flush=True)
while fault == "flood":
    print("x" * 100_000)
if fault == "dying":
    print("(EngineCore pid=1) ERROR [core.py:1366] EngineCore failed to start.", flush=True)
while fault in ("busy", "dying"):
    pass
if fault == "hang":
    time.sleep(600)
if fault == "far-disk":
    with open("/dev/zero", "rb", buffering=0) as weights:
        for _ in range(16):
            weights.read(2 << 20)
            time.sleep(0.25)
if args.omni and fault != "plain":
    CONFIG["model_config"]["stage_id"] = 0
engine = subprocess.Popen(
    [sys.executable, str(Path(__file__).with_name("fake_engine.py")), json.dumps(CONFIG)],
    stdin=subprocess.PIPE,
    start_new_session=fault == "escaped",
)


def leave(*unused: object) -> None:
    if fault not in ("stubborn", "escaped"):
        engine.kill()
    if fault == "loud-end":
        print(
            'Traceback (most recent call last):\n  File "x.py", line 1, in x\nLookupError: gone', flush=True
        )
    os._exit(0)


signal.signal(signal.SIGTERM, leave)
http.server.ThreadingHTTPServer((args.host, int(args.port)), Handler).serve_forever()
