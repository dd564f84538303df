"""A text model on vllm-ascend alone, whose reference is transformers' own implementation of it."""

from __future__ import annotations

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models import published
from npu_emulator.dry_run.stages import plain

start, run, classes = plain.start, plain.run, plain.classes


def likelihoods(folder, probe, outputs):
    """How likely transformers finds the tokens of the outputs."""
    return published.likelihoods(folder, probe.prompts, outputs, "AutoModelForCausalLM")


def expected(folder, probe):
    """What transformers gives for the probe's requests."""
    import torch

    requests = [{"input_ids": torch.tensor([prompt])} for prompt in probe.prompts]
    return published.generate(folder, requests, engine.GREEDY | probe.sampling, "AutoModelForCausalLM")
