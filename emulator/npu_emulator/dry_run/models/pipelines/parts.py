"""What the makers of pipelines share: seeded weights, a tokenizer by bytes, expected answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from npu_emulator.dry_run.catalogue import Probe, scenario
from npu_emulator.dry_run.models.files import write_json

EXPECTED = "expected.safetensors"


def seeded(module, seed: int):
    """``module`` with weights that keep the size of what goes through: matrices by their fan-in."""
    import torch

    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in sorted(module.named_parameters()):
            noise = torch.randn(value.shape, generator=random)
            if value.dim() > 1:
                value.copy_(noise * value[0].numel() ** -0.5)
            else:
                value.copy_(1 + 0.1 * noise if name.endswith("weight") else 0.05 * noise)
    return module


def tokenizer(folder: Path, special: tuple[str, ...], **more) -> None:
    """A Qwen2 tokenizer with a token for each byte after the ``special`` ones; the first of them pads."""
    from tokenizers import pre_tokenizers

    folder.mkdir(exist_ok=True)
    words = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    write_json(folder / "vocab.json", {word: index for index, word in enumerate(words)})
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    kept = {
        "tokenizer_class": "Qwen2Tokenizer",
        "pad_token": special[0],
        "unk_token": special[0],
        "model_max_length": 4096,
        "additional_special_tokens": list(special[1:]),
    }
    write_json(folder / "tokenizer_config.json", kept | more)


def expect(folder: Path, name: str, answer: Callable) -> None:
    """Keep the answers to the requests of scenario ``name``.

    ``answer`` takes a request's text, its index in the probe and what it has more; it gives tensors
    by name: "tokens", and values such as "answer".
    """
    from safetensors.torch import save_file

    found = {}
    for probe in scenario(name).probes:
        for index, prompt in enumerate(probe.prompts):
            for part, value in answer(text(prompt), index, probe.sampling).items():
                found[_key(probe, index, part)] = value.contiguous()
    save_file(found, folder / EXPECTED)


def by_diffusers(folder: Path, kind: str, **asked) -> Callable:
    """What diffusers' pipeline class ``kind`` makes in float32 on the CPU of a text and a seed."""
    import diffusers
    import torch

    pipeline = getattr(diffusers, kind).from_pretrained(
        folder, torch_dtype=torch.float32, local_files_only=True
    )
    pipeline.set_progress_bar_config(disable=True)
    return lambda text, seed: pipeline(
        prompt=text, generator=torch.Generator("cpu").manual_seed(seed), output_type="pt", **asked
    )


def expected(folder: Path, probe: Probe, index: int) -> dict:
    """What :func:`expect` kept for a request, by its parts; nothing where there is no reference."""
    from safetensors.torch import load_file

    path, start = folder / EXPECTED, _key(probe, index, "")
    known = load_file(path) if path.is_file() else {}
    return {name.removeprefix(start): one for name, one in known.items() if name.startswith(start)}


def stages(deploy: dict) -> list[dict]:
    """The engine arguments of a deploy file's stages, and what its section for NPUs has instead."""
    npu = deploy.get("platforms", {}).get("npu", {}).get("stages", [])
    return [one.get("engine_args", one) for one in [*(deploy.get("stages") or deploy["stage_args"]), *npu]]


def text(prompt: tuple[int, ...]) -> str:
    """A probe's prompt as text."""
    return "".join(map(chr, prompt))


def _key(probe: Probe, index: int, part: str) -> str:
    return json.dumps([probe.name, index]) + part
