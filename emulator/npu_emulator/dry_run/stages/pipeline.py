"""The real ``vllm serve --omni`` of a real pipeline: vllm-omni's models, processors and deploy file."""

from __future__ import annotations

import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from npu_emulator import record
from npu_emulator.dry_run import engine, plugin, replaced
from npu_emulator.dry_run.models.pipelines import parts
from npu_emulator.dry_run.stages import serve
from npu_emulator.dry_run.stages.omni import expected_classes

COMMAND = (sys.executable, "-P", "-m", "vllm_omni.entrypoints.cli.main", "serve")
_MEMORY_MB = "4096"  # of the emulated device: a deploy file shares it among its stages
stop = serve.stop
_module = None  # of this process's pipeline
_first: dict = {}  # the first answer to each request, where nothing else is a reference


def start(wanted, folder, options):
    """A ready server of the pipeline in ``folder``; raises :class:`engine.Absent`."""
    global _module
    _module = importlib.import_module(f"npu_emulator.dry_run.models.{wanted.model}")
    place = Path(os.environ[record.FOLDER])
    home = place / "home"  # vllm-omni keeps voices in the user's
    home.mkdir(exist_ok=True)
    source = parts.offered(_module.ARCHITECTURE, _module.DEPLOY)
    more = ["--deploy-config", _deployed(source, place, wanted.options)] if source else []
    command = [*COMMAND, str(folder), "--omni", *_module.OPTIONS, *more]
    variables = {"NPU_EMULATOR_MEMORY_MB": _MEMORY_MB, "HOME": str(home), plugin.MODELS: replaced.__name__}
    return serve.launch(command, [], variables)


def _deployed(source: Path, place: Path, options: dict) -> str:
    """The release's own deploy file, with what the module makes smaller and each stage's ``options``."""
    import yaml

    content = yaml.safe_load(source.read_text(encoding="utf-8"))
    if base := content.pop("base_config", None):
        content = yaml.safe_load((source.parent / base).read_text(encoding="utf-8")) | content
    _module.reduce(content)
    for stage in parts.stages(content):
        stage.update(options)
    target = place / source.name
    target.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(target)


def run(running, probe, prefix="", prompts=None):
    """The answers to a probe's requests, all asked at once; ``sampling`` is what their bodies have more."""
    prompts = prompts or probe.prompts
    with ThreadPoolExecutor(max(len(prompts), 1)) as pool:
        asked = [pool.submit(_module.ask, running, one, at, probe.sampling) for at, one in enumerate(prompts)]
        outputs = [one.result() for one in asked]
    for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        _first.setdefault((prompt, index), output)
    return outputs


def expected(folder, probe):
    """What the checkpoint's maker expects; the rest from the first answer to the same request."""
    found = []
    for index, prompt in enumerate(probe.prompts):
        first, known = _first[prompt, index], parts.expected(folder, probe, index)
        tokens = known.pop("tokens").tolist() if "tokens" in known else first.tokens
        values = first.payload | {part: [value] for part, value in known.items()}
        found.append(engine.Output(tokens, [], values))
    return found


def classes(running) -> dict[str, str]:
    """The classes of the stages that have a worker of vLLM's kind, and those expected."""
    return serve.named([expected_classes(kind) for kind in _module.WORKERS])


end = serve.end
