"""What the AR and generation stages of vllm-omni share."""

from __future__ import annotations

import dataclasses
import importlib

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.stages import plain

OMNI_ONLY = {"async_chunk", "stage_id", "stage_connector_spec", "custom_process_next_stage_input_func"}
WORKER = "vllm_omni.platforms.npu.worker"


def start(folder, options, *, worker_type: str, model: str, scheduler: str):
    """An engine with vllm-omni's worker and runner, on the tiny model of module ``models/{model}.py``."""
    import vllm_omni  # noqa: F401 - patches vLLM
    from vllm import ModelRegistry
    from vllm_omni.engine.arg_utils import OmniEngineArgs
    from vllm_omni.model_executor.models.registry import OmniModelRegistry

    _require(OmniEngineArgs, options)
    architecture = importlib.import_module(f"npu_emulator.dry_run.models.{model}").MODEL
    name = architecture.__name__
    for registry in (OmniModelRegistry, ModelRegistry):
        registry.register_model(name, architecture)
    arguments = OmniEngineArgs(
        model=str(folder),
        worker_type=worker_type,
        engine_output_type=options.pop("engine_output_type", "text"),
        model_stage=options.pop("model_stage", "thinker"),
        model_arch=name,
        scheduler_cls=scheduler,
        skip_tokenizer_init=False,
        **options,
    )
    return engine.start(arguments)


def _require(arguments: type, options) -> None:
    """Raises :class:`engine.Absent` when the release lacks an option of vllm-omni's that a scenario needs."""
    known = {field.name for field in dataclasses.fields(arguments)}
    lacking = sorted(OMNI_ONLY & options.keys() - known)
    if lacking:
        raise engine.Absent(f"OmniEngineArgs has no {', '.join(lacking)}")


def classes(running, kind: str) -> dict[str, str]:
    """The classes in use; ``kind`` is "ar" or "generation"."""
    return plain.named(running, expected_classes(kind))


def expected_classes(kind: str) -> tuple[str, str]:
    """The worker and the runner of a stage; ``kind`` is "ar" or "generation"."""
    word = {"ar": "AR", "generation": "Generation"}[kind]
    return (
        f"{WORKER}.npu_{kind}_worker.NPU{word}Worker",
        f"{WORKER}.npu_{kind}_model_runner.NPU{word}ModelRunner",
    )
