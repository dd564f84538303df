"""A tiny server with an engine process beside it, and faults: ``fake_server.py FAULT [OPTIONS]``."""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("fault")
for option in ("--host", "--port", "--served-model-name"):
    parser.add_argument(option)
args = parser.parse_args()
fault, counted, asked = args.fault, 0, 0


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, value: object, status: int = 200) -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self.answer(f'# TYPE x counter\nvllm:generation_tokens_total{{engine="0"}} {counted}.0\n')
            if fault == "late" and asked == 3:
                threading.Timer(0.5, os._exit, (0,)).start()
            if fault == "engine-late" and asked == 3:
                threading.Timer(0.5, engine.kill).start()
        elif self.path == "/v1/models":
            self.answer({"data": [{"id": "other" if fault == "wrong-name" else args.served_model_name}]})
        else:
            self.answer("")

    def do_POST(self) -> None:
        global counted, asked
        length = int(self.headers["Content-Length"])
        wanted = json.loads(self.rfile.read(length))["max_tokens"]
        asked += 1
        if fault == f"die-{asked}":
            os._exit(0)
        if fault == "error":
            self.answer({"error": "no"}, 500)
            return
        counted += 0 if fault == "uncounted" else wanted
        text = "" if fault == "empty" else " Paris"
        self.answer({"choices": [{"text": text}], "usage": {"completion_tokens": wanted}})

    def log_message(self, *unused: object) -> None:
        pass


if fault == "early":
    sys.exit(0)
print("Starting to load model", flush=True)
if fault == "hang":
    time.sleep(600)
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
engine = subprocess.Popen(
    [sys.executable, "-c", stubborn if fault == "stubborn" else "import time; time.sleep(600)"]
)


def leave(*unused: object) -> None:
    if fault != "stubborn":
        engine.kill()
    os._exit(0)


signal.signal(signal.SIGTERM, leave)
http.server.ThreadingHTTPServer((args.host, int(args.port)), Handler).serve_forever()
