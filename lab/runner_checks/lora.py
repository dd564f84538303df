"""Checks of an AR engine with a LoRA adapter: as a checkpoint into which the adapter was merged."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from vllm import SamplingParams
from vllm.lora.request import LoRARequest

from npu_emulator.dry_run.models import reference as dense
from runner_checks.ar import PROMPTS, ask, wrong_rows
from runner_checks.ar import SCHEDULERS as SCHEDULERS
from runner_checks.ar import WORKER as WORKER

RANK = 4
TARGETS = ("q_proj", "o_proj", "down_proj")
OPTIONS = {"max_num_batched_tokens": 64, "enable_prefix_caching": False, "enable_lora": True}
OPTIONS |= {"max_lora_rank": 8, "max_loras": 1}


def adapted_requests_equal_merged_weights(engine, folder):
    """A batch with the adapter gives what merged weights give, and one without it what the plain ones give.

    Never mixed: on the CPU vLLM 0.30.0 applies the only adapter to the requests of the batch that have none.
    """
    with tempfile.TemporaryDirectory() as place:
        adapter, merged = make(folder, Path(place))
        asked = [{"prompt_token_ids": list(prompt)} for prompt in PROMPTS]
        params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
        request = LoRARequest("tiny", 1, str(adapter))
        adapted = engine.generate(asked, params, lora_request=request, use_tqdm=False)
        for name, outputs, weights in (("with", adapted, merged), ("without", ask(engine), folder)):
            for prompt, output in zip(PROMPTS, outputs, strict=True):
                if why := _differs(output, list(prompt), weights):
                    return f"{len(prompt)} tokens {name} the adapter: {why}"
    return ""


def _differs(output, prompt: list[int], weights: Path) -> str:
    tokens = list(output.outputs[0].token_ids)
    expected = dense.generate(weights, [prompt], {"max_tokens": 6})[0].tokens
    if tokens != expected:
        return f"tokens {tokens}, expected {expected}"
    return wrong_rows(output, prompt, weights)


def make(folder: Path, place: Path) -> tuple[Path, Path]:
    """An adapter with random weights for the checkpoint in ``folder``, and the checkpoint with it merged."""
    torch.manual_seed(1)
    weights = load_file(folder / "model.safetensors")
    parts = {}
    for name in [one for one in weights if one.split(".")[-2] in TARGETS]:
        rows, columns = weights[name].shape
        a, b = torch.randn(RANK, columns) / columns**0.5, torch.randn(rows, RANK) / RANK**0.5
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        parts |= {f"{stem}.lora_A.weight": a, f"{stem}.lora_B.weight": b}
        weights[name] = (weights[name].float() + b @ a).to(weights[name].dtype)
    adapter, merged = place / "adapter", place / "merged"
    adapter.mkdir()
    save_file(parts, adapter / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": list(TARGETS)}
    (adapter / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    merged.mkdir()
    for path in folder.iterdir():
        (merged / path.name).symlink_to(path.resolve())
    (merged / "model.safetensors").unlink()
    save_file(weights, merged / "model.safetensors")
    return adapter, merged


CHECKS = {one.__name__: one for one in (adapted_requests_equal_merged_weights,)}
