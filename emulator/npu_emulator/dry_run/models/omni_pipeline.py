"""Two tiny stages behind one server: text from an AR stage, and a waveform that a second one makes of it."""

from __future__ import annotations

import importlib
from pathlib import Path

NAME = "npu_emulator_tiny"
_CHECKPOINT = "qwen3"  # the model type of the tiny checkpoint, by which older releases look it up
_HERE = __name__
_FOLDER = "npu_emulator.dry_run.models"
_MODELS = {
    "TinyOmniAR": f"{_FOLDER}.omni_ar:TinyOmniAR",
    "TinyOmniGeneration": f"{_FOLDER}.omni_generation:TinyOmniGeneration",
}
# where vllm-omni keeps its registry of pipelines, newest first
_REGISTRIES = ("vllm_omni.config.pipeline_registry", "vllm_omni.config.stage_config")


def register() -> None:
    """Make the tiny models and their pipeline known to the vllm-omni of this process.

    Models by name, as plugins do: to import one before vllm-ascend's patches would change what runs.
    """
    from vllm import ModelRegistry
    from vllm_omni.model_executor.models.registry import OmniModelRegistry

    for name, place in _MODELS.items():
        for registry in (OmniModelRegistry, ModelRegistry):
            registry.register_model(name, place)
    for name in (NAME, _CHECKPOINT):
        register_pipeline()(_pipeline(name, *_MODELS))


def register_pipeline():
    """vllm-omni's function that takes a pipeline of somebody else; None in a release that has none."""
    for name in _REGISTRIES:
        try:
            return importlib.import_module(name).register_pipeline
        except (ImportError, AttributeError):
            continue
    return None


def _pipeline(name: str, first: str, second: str):
    from vllm_omni.config.stage_config import PipelineConfig, StageExecutionType, StagePipelineConfig

    ar = StagePipelineConfig(
        stage_id=0,
        model_stage="thinker",
        model_arch=first,
        execution_type=StageExecutionType.LLM_AR,
        final_output=True,
        final_output_type="text",
        owns_tokenizer=True,
        engine_output_type="latent",
    )
    waveform = StagePipelineConfig(
        stage_id=1,
        model_stage="code2wav",
        model_arch=second,
        execution_type=StageExecutionType.LLM_GENERATION,
        input_sources=(0,),
        final_output=True,
        final_output_type="audio",
        engine_output_type="audio",
        custom_process_input_func=f"{_HERE}.tokens_of",
    )
    return PipelineConfig(model_type=name, model_arch=first, stages=(ar, waveform))


def tokens_of(source_outputs, prompt=None, requires_multimodal_data=False):
    """The second stage's prompts: the tokens that the first one gave."""
    from vllm_omni.inputs.data import OmniTokensPrompt

    found = []
    for output in source_outputs:
        completion = output.outputs[0]
        tokens = getattr(completion, "cumulative_token_ids", None) or completion.token_ids
        found.append(OmniTokensPrompt(prompt_token_ids=list(tokens), multi_modal_data=None))
    return found


def write(path: str, options: dict) -> None:
    """Write the deploy file that runs both stages with engine ``options`` on device 0."""
    import yaml

    stages = [{"stage_id": number, "devices": "0", **options} for number in (0, 1)]
    content = {"pipeline": NAME, "async_chunk": False, "stages": stages}
    Path(path).write_text(yaml.safe_dump(content), encoding="utf-8")
