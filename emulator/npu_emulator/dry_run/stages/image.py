"""A vision-language model on vllm-ascend alone: request i comes with the picture of seed i."""

from __future__ import annotations

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models import published, vision
from npu_emulator.dry_run.stages import plain

classes = plain.classes
_LIMITS = {"limit_mm_per_prompt": {"image": 1, "video": 0}}


def start(wanted, folder, options):
    """An engine on the checkpoint in ``folder``."""
    return plain.start(wanted, folder, _LIMITS | options)


def run(running, probe, prefix="", prompts=None):
    """The outputs of a probe's requests, each with its picture."""
    requests = [
        {"prompt_token_ids": _text(prompt, 1), "multi_modal_data": {"image": vision.image(seed)}}
        for seed, prompt in enumerate(prompts or probe.prompts)
    ]
    return engine.generate(running, requests, probe.sampling, prefix or f"{probe.name} ", probe.every)


def _text(prompt, count):
    """The prompt after a picture of ``count`` tokens."""
    return [vision.START, *[vision.IMAGE] * count, vision.END, *prompt]


def expected(folder, probe):
    """What transformers gives for the probe's requests and pictures."""
    import torch
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(folder, local_files_only=True)
    requests = []
    for seed, prompt in enumerate(probe.prompts):
        seen = processor(images=[vision.image(seed)], return_tensors="pt")
        tokens = int(seen["image_grid_thw"].prod()) // vision.MERGED**2
        asked = torch.tensor([_text(prompt, tokens)])
        requests.append({"input_ids": asked, "mm_token_type_ids": (asked == vision.IMAGE).int(), **seen})
    return published.generate(folder, requests, engine.GREEDY | probe.sampling, "AutoModelForImageTextToText")
