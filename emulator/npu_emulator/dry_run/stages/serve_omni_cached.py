"""The server of ``serve_omni`` with a prefix cache; text alone is asked first, then the same aloud."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from npu_emulator import record
from npu_emulator.dry_run import engine, plugin, server
from npu_emulator.dry_run.models import omni_pipeline
from npu_emulator.dry_run.stages import serve, serve_omni

stop, end, classes = serve_omni.stop, serve_omni.end, serve_omni.classes


def start(wanted, folder, options):
    """A ready server whose first stage keeps the prefixes of prompts; raises :class:`engine.Absent`."""
    if omni_pipeline.register_pipeline() is None:
        raise engine.Absent("vllm-omni takes no pipeline from somebody else")
    path = Path(os.environ[record.FOLDER]) / "stages.yaml"
    alike = {"default_sampling_params": serve_omni._SAMPLING, "gpu_memory_utilization": 0.4}
    omni_pipeline.write(str(path), options | alike)
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content["stages"][0]["enable_prefix_caching"] = True
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    command = [*serve_omni.COMMAND, str(folder), "--omni", "--deploy-config", str(path)]
    return serve.launch(command, [], {plugin.MODELS: omni_pipeline.__name__})


def run(running, probe, prefix="", prompts=None):
    """The text of each request, as tokens, and the waveform of those that want one."""
    aloud = "text" not in probe.name
    return [(serve_omni._ask if aloud else _text)(running, prompt) for prompt in prompts or probe.prompts]


def _text(running, prompt) -> engine.Output:
    body = serve_omni._SAMPLING | {"messages": serve.messages(prompt), "modalities": ["text"]}
    choices = server.post(running, "/v1/chat/completions", body)["choices"]
    text = "".join(choice["message"].get("content") or "" for choice in choices)
    silent = not any(choice["message"].get("audio") for choice in choices)
    return engine.Output(serve_omni._bytes(text), [], {}, silent)


def expected(folder, probe):
    """The text's bytes in place of tokens, and the waveform where it is asked for."""
    found = serve_omni.expected(folder, probe)
    for output in found:
        output.payload = {} if "text" in probe.name else output.payload
    return found
