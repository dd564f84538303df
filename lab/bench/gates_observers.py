"""What others would say of the same server: three common ways to wait for a vLLM.

- ``helper``: the rule of vLLM's own test helper (RemoteOpenAIServer in its tests/utils.py): poll /health
  until 200; give up when nothing answers and the process has ended (read at commit 00749580e3).
- ``bench``: the ready check of ``vllm bench serve`` (vllm/benchmarks/lib/ready_checker.py, vLLM 0.30.0, off
  by default there): a real completion, repeated until one succeeds, of the first model the server lists.
- ``curl``: a loop on /v1/models until it answers 200.

All of them say "ready" once and look no further.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import psutil

NAMES = ("helper", "bench", "curl")
_POLL = 0.5  # seconds
_ANSWER = 30.0  # seconds that a completion may take


@dataclass
class Observers:
    """Watches one port; ``said`` is what each said: "ready" or nothing yet."""

    port: int
    pid: int | None = None
    said: dict[str, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        began = time.monotonic()
        for name, ready in (("helper", self._helper), ("bench", self._bench), ("curl", self._curl)):
            thread = threading.Thread(target=self._watch, args=(name, ready, began), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> dict[str, str]:
        """What they said in the end."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * _POLL)
        return {name: "ready" if name in self.said else "not ready" for name in NAMES}

    def _watch(self, name: str, ready: Callable[[httpx.Client], bool | None], began: float) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=5.0, trust_env=False) as client:
            while not self._stop.wait(_POLL):
                try:
                    found = ready(client)
                except (httpx.HTTPError, ValueError, LookupError, TypeError):
                    found = False
                if found:
                    self.said[name] = round(time.monotonic() - began, 1)
                if found or found is None:
                    return

    def _helper(self, client: httpx.Client) -> bool | None:
        try:
            return client.get("/health").status_code == 200
        except httpx.HTTPError:
            return None if self.pid and not psutil.pid_exists(self.pid) else False

    def _bench(self, client: httpx.Client) -> bool:
        name = client.get("/v1/models").json()["data"][0]["id"]
        body = {"model": name, "prompt": "Hello", "max_tokens": 8}
        answer = client.post("/v1/completions", json=body, timeout=_ANSWER)
        return answer.status_code == 200 and bool(answer.json()["choices"])

    def _curl(self, client: httpx.Client) -> bool:
        return client.get("/v1/models").status_code == 200
