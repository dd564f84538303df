"""Throughput and latency of a served model, by ``vllm bench serve`` of the vLLM that serves.

Prompts are random tokens; how long they and the answers are, and how many requests are under way at once, is
stated with every value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.evidence.runs import Run
from npu_upgrade.gates.serving.checks import Check, failed, passed
from npu_upgrade.gates.serving.gate import Extra
from npu_upgrade.gates.serving.launch import Launch
from npu_upgrade.gates.serving.measuring import measure
from npu_upgrade.gates.serving.requests import Client, without_proxy
from npu_upgrade.ground.files import read_object
from npu_upgrade.ground.progress import say

LOG = "bench-{}.log"
RESULT = "bench-{}.json"
_EACH, _FEWEST = 4, 8  # requests for each of those at once; at least
_SECONDS = 1800.0


class Load(msgspec.Struct, frozen=True):
    """What one number of requests at once took. Lengths are tokens; ``tokens_per_second`` is of all answers
    together, ``total_per_second`` with the prompts; times are milliseconds, the median of the requests:
    until the first token, and for each one after it."""

    input_len: int
    output_len: int
    concurrency: int
    requests: int
    tokens_per_second: float
    total_per_second: float
    first_ms: float
    each_ms: float

    @property
    def shown(self) -> str:
        asked = f"{self.input_len}+{self.output_len} tokens, {self.concurrency} at once"
        times = f"first {self.first_ms:g} ms, each {self.each_ms:g} ms"
        return f"{asked}: {self.tokens_per_second:g} tokens/s, {times}"


def loads_of(run: Run) -> list[Load]:
    """What a run measured; nothing of a run that measured in another way."""
    try:
        return msgspec.convert(run.many("performance"), list[Load])
    except msgspec.ValidationError:
        return []


@dataclass
class Bench:
    """What is measured: at each number of ``concurrency``, filled into ``loads`` as it is done."""

    launch: Launch
    folder: Path
    input_len: int
    output_len: int
    concurrency: Sequence[int]
    loads: list[Load] = field(default_factory=list)

    @property
    def extra(self) -> list[Extra]:
        """What the gate asks besides."""
        return [self._of(number) for number in self.concurrency]

    def _of(self, number: int) -> Extra:
        return lambda client, name: [self._measured(client, name, number)]

    def _measured(self, client: Client, name: str, number: int) -> Check:
        say(f"vllm bench serve: {self.input_len}+{self.output_len} tokens, {number} at once")
        requests = max(_EACH * number, _FEWEST)
        if why := self._run(client, name, number, requests):
            return failed(f"performance:{number}", f"nothing was measured: {why}")
        told = read_object(self.folder / RESULT.format(number))
        done, values = told.get("completed"), [told.get(key) for key in _KEYS]
        if done != requests or not all(isinstance(one, int | float) for one in values):
            return failed(f"performance:{number}", f"{done} of {requests} requests were answered")
        rounded = [round(float(one), 2) for one in values if one is not None]
        load = Load(self.input_len, self.output_len, number, requests, *rounded)
        self.loads.append(load)
        return passed(f"performance:{number}", why=load.shown)

    def _run(self, client: Client, name: str, number: int, requests: int) -> str:
        """Why it did not end well; empty when it did."""
        asked: dict[str, Any] = {
            "backend": "vllm",
            "base-url": client.url,
            "model": self.launch.model,
            "served-model-name": name,
            "dataset-name": "random",
            "random-input-len": self.input_len,
            "random-output-len": self.output_len,
            "num-prompts": requests,
            "max-concurrency": number,
            "percentile-metrics": "ttft,tpot",
            "result-dir": self.folder,
            "result-filename": RESULT.format(number),
        }
        words = [word for key, value in asked.items() for word in (f"--{key}", str(value))]
        trust = [one for one in self.launch.arguments if one == "--trust-remote-code"]
        command = [*self.launch.program(), "bench", "serve", *words, *trust]
        command += ["--ignore-eos", "--save-result", "--disable-tqdm"]
        log = self.folder / LOG.format(number)
        variables = without_proxy(self.launch.variables()) | _OFFLINE
        return measure(
            command, log, variables=variables, cwd=self.folder, seconds=_SECONDS, broken=client.broken
        )

    def rows(self) -> list[dict[str, Any]]:
        """What was measured, as results name it."""
        return [msgspec.to_builtins(one) for one in self.loads]

    def logs(self) -> dict[str, Path]:
        """The files of evidence: what the program said, and what it wrote."""
        names = [form.format(number) for number in self.concurrency for form in (LOG, RESULT)]
        return {name: self.folder / name for name in names if (self.folder / name).is_file()}


_KEYS = ("output_throughput", "total_token_throughput", "median_ttft_ms", "median_tpot_ms")
_OFFLINE = {"HF_HUB_OFFLINE": "1"}  # the tokenizer is where the weights are
