"""What a server is asked, and what it answered, kept word for word."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from npu_upgrade.gates.serving.server import HOST
from npu_upgrade.ground.progress import say

GENERATED, READ = "vllm:generation_tokens_total", "vllm:prompt_tokens_total"
COUNTERS = (GENERATED, "vllm_omni:generation_tokens_total")  # vLLM's own stands still in vllm-omni's stages
_Answered = tuple[int, Any, str]  # status, answer, error
_POLL = 0.2  # seconds between two looks at the server while it answers
_GRACE = 2.0  # seconds that an answer may still take when the server broke


@dataclass(frozen=True)
class Exchange:
    """One request and its answer; ``status`` 0 means that there was none, and ``error`` says why."""

    method: str
    path: str
    sent: Any
    status: int
    answer: Any
    error: str = ""
    seconds: float = 0.0

    @property
    def why(self) -> str:
        """What is wrong with the answer, in a few words; empty for a 200."""
        if self.status == 200:
            return ""
        said = self.answer.get("error", self.answer) if isinstance(self.answer, dict) else self.answer
        said = said.get("message", said) if isinstance(said, dict) else said
        text = f"HTTP {self.status}: {' '.join(str(said).split())[:300]}" if self.status else ""
        return "; ".join(part for part in (self.error, text) if part)


@dataclass(frozen=True)
class Arrival:
    """``tokens`` of an answer had arrived at ``at``, seconds of the monotonic clock.

    ``index``: which of a request's answers; None where the count is of them all, or is said without one.
    """

    at: float
    tokens: int
    index: int | None = None


@dataclass
class Client:
    """Asks one server; ``exchanges`` is everything that was said.

    ``broken`` is asked while an answer is waited for: nothing is waited for from a server that is gone.
    """

    url: str
    seconds: float = 60.0
    broken: Callable[[], str] = lambda: ""
    exchanges: list[Exchange] = field(default_factory=list)

    def healthy(self) -> bool:
        return self._ask("GET", "/health", keep=False).status == 200

    def models(self, keep: bool = True) -> list[str]:
        """The names the server serves; empty when it does not answer."""
        answer = self._ask("GET", "/v1/models", keep=keep).answer
        try:
            return [model["id"] for model in answer["data"]]
        except (TypeError, KeyError):
            return []

    def paths(self) -> set[str]:
        """The routes the server says it has; empty when it does not say."""
        answer = self._ask("GET", "/openapi.json", keep=False).answer
        return set(answer.get("paths", ())) if isinstance(answer, dict) else set()

    def metrics(self) -> str:
        text = self._ask("GET", "/metrics", keep=False).answer
        return text if isinstance(text, str) else ""

    def post(self, path: str, body: dict[str, Any], seconds: float | None = None) -> Exchange:
        return self._ask("POST", path, body, seconds=seconds)

    def stream(
        self, path: str, body: dict[str, Any], seconds: float | None = None
    ) -> tuple[Exchange, list[Arrival]]:
        """Ask for a streamed answer: the exchange, with the last chunk's ``usage``, and when tokens came."""
        arrived: list[Arrival] = []
        asked = body | {
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        within = seconds or self.seconds
        return self._ask(
            "POST", path, asked, send=lambda: self._listen(path, asked, within, arrived)
        ), arrived

    def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        keep: bool = True,
        seconds: float | None = None,
        send: Callable[[], _Answered] | None = None,
    ) -> Exchange:
        started = time.monotonic()
        answered: list[_Answered] = []
        send = send or (lambda: self._send(method, path, body, seconds or self.seconds))
        thread = threading.Thread(target=lambda: answered.append(send()), daemon=True)
        thread.start()
        why = ""
        while thread.is_alive() and not why:
            thread.join(_POLL)
            why = self.broken() if thread.is_alive() else ""
        if why:
            thread.join(_GRACE)
        status, answer, error = answered[0] if answered else (0, None, why)
        if method == "POST" and (status == 0 or status >= 500):
            # that an engine is gone says more than what is left of the server answers
            error = settled(self.broken) or error
        exchange = Exchange(method, path, body, status, answer, error, round(time.monotonic() - started, 3))
        if keep or status > 200:  # while it starts, nobody answers
            self.exchanges.append(exchange)
        if method == "POST":
            say(f"{len(self.exchanges)} answers, the last one within {exchange.seconds:.1f} s")
        return exchange

    def _send(self, method: str, path: str, body: Any, seconds: float) -> _Answered:
        try:
            answer = httpx.request(method, self.url + path, json=body, timeout=seconds, **self._plainly)
            return answer.status_code, _content(answer), ""
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            return 0, None, f"{type(error).__name__}: {error}"

    def _listen(self, path: str, body: Any, seconds: float, arrived: list[Arrival]) -> _Answered:
        began, usage = time.monotonic(), None
        pieces: list[tuple[float, bytes]] = []
        try:
            with httpx.stream("POST", self.url + path, json=body, timeout=seconds, **self._plainly) as answer:
                if answer.status_code != 200:
                    answer.read()
                    return answer.status_code, _content(answer), ""
                for piece in answer.iter_bytes():  # read later: many streams share this process
                    pieces.append((time.monotonic(), piece))
                    if time.monotonic() > began + seconds:
                        return 0, None, f"no end after {seconds:.0f} s"
            for at, chunk in _chunks(pieces):
                if "error" in chunk:
                    return 500, chunk, ""
                if usage := chunk.get("usage") or usage:
                    first = next(iter(chunk.get("choices") or ()), {})
                    arrived.append(Arrival(at, int(usage["completion_tokens"]), first.get("index")))
            return 200, {"usage": usage, "chunks": len(arrived)}, ""
        except (httpx.HTTPError, ValueError, OverflowError, LookupError, TypeError, RecursionError) as error:
            return 0, None, f"{type(error).__name__}: {error}"

    @property
    def _plainly(self) -> dict[str, Any]:
        """No proxy; and certificates, which take longer to read than an answer, only where they are used."""
        return {"trust_env": False, "verify": self.url.startswith("https")}


def without_proxy(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables of a program that asks one of our servers, and whatever else it needs by the proxy it has."""
    found = dict(variables)
    for name in ("no_proxy", "NO_PROXY"):
        found[name] = ",".join(filter(None, (found.get(name), HOST)))
    return found


def _content(answer: httpx.Response) -> Any:
    return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text


def _chunks(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, dict[str, Any]]]:
    """The objects of a stream of server-sent events, each with the time when its end came."""
    rest = b""
    for at, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            kind, _, data = line.partition(b":")
            if kind == b"data" and data.strip() != b"[DONE]":
                yield at, dict(json.loads(data))


def settled(broken: Callable[[], str], seconds: float = _GRACE) -> str:
    """What is broken, when a moment is given to a server that is about to end; empty when nothing is."""
    deadline = time.monotonic() + seconds
    while not (why := broken()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return why


def counted(metrics: str, name: str = GENERATED) -> float | None:
    """The sum of a counter over all engines; None when the metrics do not have it as a finite number."""
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", metrics, re.MULTILINE)
    try:
        total = sum(map(float, found))
    except ValueError:
        return None
    return total if found and math.isfinite(total) else None
