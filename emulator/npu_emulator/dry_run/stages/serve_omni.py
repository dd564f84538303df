"""The real ``vllm serve --omni`` of two tiny stages: text from an AR stage, a waveform from another."""

from __future__ import annotations

import base64
import io
import os
import sys
import wave

import torch

from npu_emulator import record
from npu_emulator.dry_run import engine, plugin, server
from npu_emulator.dry_run.models import omni_pipeline, reference
from npu_emulator.dry_run.stages import serve
from npu_emulator.dry_run.stages.omni import expected_classes

COMMAND = (sys.executable, "-P", "-m", "vllm_omni.entrypoints.cli.main", "serve")
_SAMPLING = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True}
stop, end = serve.stop, serve.end


def start(wanted, folder, options):
    """A ready server of two stages on the checkpoint in ``folder``; raises :class:`engine.Absent`."""
    if omni_pipeline.register_pipeline() is None:
        raise engine.Absent("vllm-omni takes no pipeline from somebody else")
    path = os.path.join(os.environ[record.FOLDER], "stages.yaml")
    omni_pipeline.write(path, options | {"default_sampling_params": _SAMPLING, "gpu_memory_utilization": 0.4})
    command = [*COMMAND, str(folder), "--omni", "--deploy-config", path]
    return serve.launch(command, [], {plugin.MODELS: omni_pipeline.__name__})


def run(running, probe, prefix="", prompts=None):
    """The text, as tokens, and the waveform of each request."""
    return [_ask(running, prompt) for prompt in prompts or probe.prompts]


def _ask(running, prompt):
    body = _SAMPLING | {"messages": serve.messages(prompt), "modalities": ["text", "audio"]}
    choices = server.post(running, "/v1/chat/completions", body)["choices"]
    text = "".join(choice["message"].get("content") or "" for choice in choices)
    sound = [choice["message"]["audio"]["data"] for choice in choices if choice["message"].get("audio")]
    payload = {"audio": [_samples(data) for data in sound]}
    finished = all(choice["finish_reason"] for choice in choices)
    return engine.Output(_bytes(text), [], payload, finished)


def _bytes(text: str) -> list[int]:
    """The text's bytes without half a character at its end, which a server keeps back."""
    return list(text.rstrip("\N{REPLACEMENT CHARACTER}").encode())


def _samples(data: str) -> torch.Tensor:
    """The samples of a 16 bit WAV file, from -1 to 1."""
    with wave.open(io.BytesIO(base64.b64decode(data))) as file:
        frames = bytearray(file.readframes(file.getnframes()))
    return torch.frombuffer(frames, dtype=torch.int16).float() / 32768


def expected(folder, probe):
    """What a torch reference gives: the text's bytes in place of tokens, and the second stage's waveform."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    found = []
    for first in serve.expected(folder, probe):
        text = tokenizer.decode(first.tokens, skip_special_tokens=True)
        waveform = reference.hidden_states(folder, first.tokens)[-1].clamp(-1, 1)
        found.append(engine.Output(_bytes(text), [], {"audio": [waveform]}))
    return found


def classes(running) -> dict[str, str]:
    """The classes of both stages that the server's processes named, and those expected."""
    return serve.named([expected_classes("ar"), expected_classes("generation")])
