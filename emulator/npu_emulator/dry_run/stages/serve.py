"""The real ``vllm serve`` of a tiny checkpoint on vllm-ascend, asked over HTTP."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from npu_emulator.dry_run import engine, executed, observe, plugin, server, warm
from npu_emulator.dry_run.models import reference
from npu_emulator.dry_run.stages.plain import EXPECTED

COMMAND = (sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve")
_ASKED = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_tokens_as_token_ids": True}


def start(wanted, folder, options):
    """A ready server of the checkpoint in ``folder``."""
    return launch([*COMMAND, str(folder)], server.flags(options), {})


def launch(command, options: list[str], variables: dict[str, str]) -> server.Server:
    """Start a server process that tells what it runs; the port and the model's name are drawn anew."""
    port, name = server.free_port(), f"dry-run-{secrets.token_hex(6)}"
    environment = os.environ | {plugin.WATCHED: json.dumps(executed.watched())} | variables
    environment |= warm.offer()
    environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    where = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", name]
    return server.start([*command, *where, *options], environment, port, name)


def run(running, probe, prefix="", prompts=None):
    """The outputs of a probe's requests, all asked at once."""
    prompts = prompts or probe.prompts
    with ThreadPoolExecutor(max(len(prompts), 1)) as pool:
        return list(pool.map(lambda prompt: _WAYS[probe.name](running, prompt), prompts))


def _complete(running, prompt):
    body = _ASKED | {"prompt": list(prompt), "logprobs": 1}
    return _read([server.post(running, "/v1/completions", body)])


def _stream(running, prompt):
    body = _ASKED | {"prompt": list(prompt), "logprobs": 1}
    return _read(server.stream(running, "/v1/completions", body))


def _chat(running, prompt):
    body = _ASKED | {"messages": messages(prompt), "logprobs": True, "top_logprobs": 1}
    choice = server.post(running, "/v1/chat/completions", body)["choices"][0]
    steps = choice["logprobs"]["content"]
    tokens = [_token_id(step["token"]) for step in steps]
    return engine.Output(tokens, [step["logprob"] for step in steps], {}, choice["finish_reason"] == "length")


def _read(answers):
    output = engine.Output([], [], {}, finished=False)
    for answer in answers:
        choice = answer["choices"][0]
        output.tokens += [_token_id(token) for token in choice["logprobs"]["tokens"]]
        output.logprobs += choice["logprobs"]["token_logprobs"]
        output.finished = choice["finish_reason"] == "length"
    return output


def _token_id(text: str) -> int:
    return int(text.removeprefix("token_id:"))


def messages(prompt) -> list[dict[str, str]]:
    return [{"role": "user", "content": "".join(chr(number) for number in prompt)}]


_WAYS = {"completion": _complete, "three at once": _complete, "streamed": _stream, "chat": _chat}


def expected(folder, probe):
    """What a torch reference of the checkpoint gives for the probe's requests."""
    prompts = probe.prompts
    if probe.name.startswith("chat"):
        prompts = [_chat_tokens(folder, prompt) for prompt in prompts]
    return reference.generate(folder, prompts, engine.GREEDY | probe.sampling)


def _chat_tokens(folder, prompt) -> list[int]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    text = tokenizer.apply_chat_template(messages(prompt), tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False)


def classes(running) -> dict[str, str]:
    """The worker and runner classes that the server's processes named, and those expected."""
    return named([EXPECTED])


def named(expected: list[tuple[str, str]]) -> dict[str, str]:
    """The classes of all stages of the server, in alphabetical order, and those expected."""
    found = observe.events("classes")
    return {
        "worker": " and ".join(sorted({one["worker"] for one in found})),
        "runner": " and ".join(sorted({one["runner"] for one in found})),
        "expected_worker": " and ".join(sorted(worker for worker, _ in expected)),
        "expected_runner": " and ".join(sorted(runner for _, runner in expected)),
    }


def stop(running) -> str:
    """End the server; the reason it did not end well, or nothing."""
    return server.stop(running)


def end(running) -> dict:
    """The graphs that the server's processes captured and replayed."""
    graphs: Counter[str] = Counter()
    for event in observe.events("end"):
        graphs.update(event["graphs"])
    return {"graphs": dict(graphs)}
