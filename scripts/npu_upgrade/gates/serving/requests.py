"""What a server is asked, and what it answered, kept word for word."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

GENERATED = "vllm:generation_tokens_total"


@dataclass(frozen=True)
class Exchange:
    """One request and its answer; ``status`` 0 means that there was none, and ``error`` says why."""

    method: str
    path: str
    sent: Any
    status: int
    answer: Any
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Client:
    """Asks one server; ``exchanges`` is everything that was said."""

    url: str
    seconds: float = 60.0
    exchanges: list[Exchange] = field(default_factory=list)

    def healthy(self) -> bool:
        return self._ask("GET", "/health").status == 200

    def models(self) -> list[str]:
        """The names the server serves; empty when it does not answer."""
        answer = self._ask("GET", "/v1/models").answer
        try:
            return [model["id"] for model in answer["data"]]
        except (TypeError, KeyError):
            return []

    def complete(self, model: str, prompt: str, tokens: int) -> Exchange:
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        return self._ask("POST", "/v1/completions", body)

    def generated(self) -> float | None:
        """How many tokens the engine counted so far; None when its metrics do not say."""
        text = self._ask("GET", "/metrics").answer
        found = re.findall(
            rf"^{GENERATED}(?:\{{[^}}]*\}})? (\S+)$", text if isinstance(text, str) else "", re.MULTILINE
        )
        return sum(map(float, found)) if found else None

    def _ask(self, method: str, path: str, body: Any = None) -> Exchange:
        try:
            answer = httpx.request(method, self.url + path, json=body, timeout=self.seconds, trust_env=False)
            is_json = "json" in answer.headers.get("content-type", "")
            exchange = Exchange(
                method, path, body, answer.status_code, answer.json() if is_json else answer.text
            )
        except (httpx.HTTPError, ValueError) as error:
            exchange = Exchange(method, path, body, 0, None, f"{type(error).__name__}: {error}")
        self.exchanges.append(exchange)
        return exchange
