"""What the pipelines share: seeded weights, tokenizers by bytes, pictures and sounds, expected answers."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import math
import wave
from collections.abc import Callable, Mapping
from pathlib import Path

from npu_emulator.dry_run import server
from npu_emulator.dry_run.catalogue import Probe, scenario
from npu_emulator.dry_run.engine import Absent, Output
from npu_emulator.dry_run.models.files import write_json

EXPECTED = "expected.tensors"  # no weights: a loader takes every file of their kind
WORDS, _VARIED, _SURE, _SEEDS = slice(1000, 1016), 4, 0.4, 200
_RATE, SIZE = 16000, 128  # of the sound and the picture in a request
# ids and a size that vllm-omni's code for the Qwen-Omni models holds
QWEN_ROLES, QWEN_WORDS = {"user": 872, "system": 8948, "assistant": 77091}, 152064


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


def whole_tokenizer(
    folder: Path, size: int, plain: Mapping[str, int], special: Mapping[str, int], kept: Mapping, chat: str
) -> None:
    """A token for each byte and each word with its number; the rest of ``size`` is unused words."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    words = {word: at for at, word in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    words |= plain | special
    taken = set(words.values())
    # vLLM warns at every step of a vocabulary with holes
    words |= {f"<unused{number}>": number for number in range(size) if number not in taken}
    made = Tokenizer(BPE(vocab=words, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(role, normalized=False) for role in plain])
    made.add_special_tokens(list(special))
    made.save(str(folder / "tokenizer.json"))
    alike = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "model_max_length": 65536}
    write_json(folder / "tokenizer_config.json", alike | {"chat_template": chat} | kept)
    (folder / "chat_template.jinja").write_text(chat, encoding="utf-8")


def choose_words(
    folder: Path,
    name: str,
    head,
    answer: Callable,
    kept: Mapping | None = None,
    words: slice = WORDS,
) -> None:
    """Weights of a few ``words`` in ``head`` with which answers differ and no rounding turns a choice.

    ``answer`` is :func:`expect`'s, of a few tokens, but for the logits of each token as "logits", and for
    the "margins" of further choices. Keeps the tokens and their log-probabilities. ``kept`` are weights of
    other words.
    """
    import torch

    margins: list[float] = []
    said: dict[tuple, tuple] = {}

    def tried(text: str, index: int, more: Mapping) -> dict:
        found = answer(text, index, more)
        likely = found.pop("logits").float().log_softmax(-1).topk(2).values
        margins.extend((likely[:, 0] - likely[:, 1]).tolist())
        margins.extend(found.pop("margins", ()))
        said[text, tuple(more.get("seen", ()))] = tuple(found["tokens"].tolist())
        return {"logprobs": likely[:, 0]} | found

    for seed in range(_SEEDS):
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            chosen = head.weight.zero_()[words]
            chosen.copy_(torch.randn(chosen.shape, generator=random))
            for word, weights in (kept or {}).items():
                head.weight[word] = weights
        margins.clear()
        expect(folder, name, tried)
        different = {word for answer in said.values() for word in answer}
        if min(margins) > _SURE and len(set(said.values())) == len(said) and len(different) >= _VARIED:
            return
    raise RuntimeError(f"in {_SEEDS} draws of words answers were alike, or a rounding could turn a choice")


def answer_by_thinker(folder: Path, name: str, model, tokens: int, messages: Callable) -> None:
    """Choose words for what transformers' ``model.thinker`` answers to ``messages``."""
    import torch
    import transformers

    processor = transformers.AutoProcessor.from_pretrained(folder)

    def answer(text: str, _: int, more: Mapping) -> dict:
        seen = more.get("seen", ())
        inputs = processor(
            text=[processor.apply_chat_template(messages(text, seen), tokenize=False)],
            images=[picture()] if "image" in seen else None,
            audio=[tone()] if "audio" in seen else None,
            return_tensors="pt",
        )
        found = model.thinker.generate(
            **{name: one.bfloat16() if one.is_floating_point() else one for name, one in inputs.items()},
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        )
        said = found.sequences[0, inputs["input_ids"].shape[1] :]
        return {"tokens": said, "logits": torch.cat(found.logits)}

    choose_words(folder, name, model.eval().thinker.lm_head, answer)


def qwen_omni_files(
    folder: Path, special: Mapping[str, int], named: Mapping[str, str], processor: str, patch: int
) -> None:
    """The tokenizer and the processor of a Qwen-Omni model: of texts, pictures, videos and sounds.

    ``special`` words with their ids; ``named``: those that the processor knows by name.
    """
    kept = {"tokenizer_class": "PreTrainedTokenizerFast", "extra_special_tokens": named} | named
    heard = "{audio_bos_token}{audio_token}{audio_eos_token}".format_map(named)
    shown = "{vision_bos_token}{image_token}{vision_eos_token}".format_map(named)
    chat = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}"
        "{% if 'audio' in c['type'] %}"
        + heard
        + "{% elif 'image' in c['type'] %}"
        + shown
        + "{% else %}{{ c['text'] }}"
        "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    )
    whole_tokenizer(folder, QWEN_WORDS, QWEN_ROLES, special, kept, chat)
    patches = {"patch_size": patch, "temporal_patch_size": 2, "merge_size": 2}
    pixels = {"min_pixels": 1024, "max_pixels": SIZE**2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    sound = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": 128,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "sampling_rate": _RATE,
        "padding_side": "left",
        "return_attention_mask": True,
    }
    kinds = {"processor_class": processor, "image_processor_type": "Qwen2VLImageProcessor"}
    write_json(folder / "preprocessor_config.json", kinds | sound | patches | pixels)
    video = {"video_processor_type": "Qwen2VLVideoProcessor"}
    write_json(folder / "video_preprocessor_config.json", video | patches | pixels)


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


def offered(architecture: str, deploy: str, needed: str = "") -> Path | None:
    """The release's own file ``deploy``.

    Raises :class:`Absent` without it, without the architecture, or without the code at ``needed``.
    """
    (package,) = importlib.util.find_spec("vllm_omni").submodule_search_locations
    quoted = f'"{architecture}"'.encode()
    if not any(quoted in path.read_bytes() for path in Path(package).rglob("*.py")):
        raise Absent(f"vllm-omni knows no model {architecture}")
    if not deploy:
        return None
    folders = ("deploy", "model_executor/stage_configs")
    path = next((one for folder in folders if (one := Path(package, folder, deploy)).is_file()), None)
    if path is None:
        raise Absent(f"vllm-omni has no deploy file {deploy}")
    if not Path(package, needed).exists():
        raise Absent(f"vllm-omni has no {needed}")
    return path


def reduce(deploy: dict, most: tuple[int, ...], share: tuple[float, ...]) -> None:
    """Put the stages on one device, make smaller what only sizes the profiling, and share the memory."""
    alike = {"devices": "0", "tensor_parallel_size": 1, "max_num_seqs": 2, "skip_mm_profiling": True}
    for stage in stages(deploy):
        number = stage["stage_id"]
        stage.update(alike, max_model_len=most[number], max_num_batched_tokens=most[number])
        stage["gpu_memory_utilization"] = share[number]


def stages(deploy: dict) -> list[dict]:
    """The engine arguments of a deploy file's stages, and what its section for NPUs has instead."""
    npu = deploy.get("platforms", {}).get("npu", {}).get("stages", [])
    return [one.get("engine_args", one) for one in [*(deploy.get("stages") or deploy["stage_args"]), *npu]]


def text(prompt: tuple[int, ...]) -> str:
    """A probe's prompt as text."""
    return "".join(map(chr, prompt))


def _key(probe: Probe, index: int, part: str) -> str:
    return json.dumps([probe.name, index]) + part


def content(text: str, seen: tuple[str, ...]) -> list[dict]:
    """What a user's message has: the kinds in ``seen``, then the text."""
    data = {"image": ("png", png), "audio": ("wav", wav)}
    found = []
    for kind in seen:
        form, written = data[kind]
        url = f"data:{kind}/{form};base64,{base64.b64encode(written()).decode()}"
        found.append({"type": f"{kind}_url", f"{kind}_url": {"url": url}})
    return [*found, {"type": "text", "text": text}]


def picture():
    """Stripes of all greys."""
    import numpy
    from PIL import Image

    rows, columns = numpy.indices((SIZE, SIZE))
    return Image.fromarray(((rows + 4 * columns) % 256).astype("uint8")).convert("RGB")


def png() -> bytes:
    """The picture as a file."""
    out = io.BytesIO()
    picture().save(out, "PNG")
    return out.getvalue()


def tone():
    """Half a second of a rising tone, from -1 to 1."""
    return _tone().astype("float32") / 32768


def _tone():
    import numpy

    at = numpy.arange(_RATE // 2) / _RATE
    return (9000 * numpy.sin(2 * math.pi * (283 + 4000 * at) * at)).astype("<i2")


def wav() -> bytes:
    """The tone as a file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(_tone().tobytes())
    return out.getvalue()


def spoken(choices: list[dict]) -> Output:
    """A chat's tokens, the log-probability of each, and its sound as samples in steps of 16 bits."""
    import torch

    said = next(one for one in choices if one["message"].get("audio"))["message"]["audio"]["data"]
    with wave.open(io.BytesIO(base64.b64decode(said))) as file:
        samples = torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16)
    steps = [step["logprob"] for step in choices[0]["logprobs"]["content"]]
    answer = {"answer": [samples.float()], "logprobs": [torch.tensor(steps)]}
    return Output(choices[0]["token_ids"], [], answer, finished=bool(samples.any()))


def speak(running, prompt: tuple[int, ...], asked: Mapping, more: Mapping) -> Output:
    """What is said of a text, as samples from -1 to 1; a streamed answer is raw, the other a WAV file.

    ``asked`` is what the body has besides; ``more`` what the probe has, ``stream`` among it.
    """
    import torch

    streamed = {"stream_format": "audio", "response_format": "pcm"} if more.get("stream") else {}
    body = {"input": text(prompt), "response_format": "wav"} | asked | streamed | more
    found = server.content(running, "/v1/audio/speech", body)
    if not streamed:
        with wave.open(io.BytesIO(found)) as file:
            found = file.readframes(file.getnframes())
    samples = torch.frombuffer(bytearray(found), dtype=torch.int16).float() / 32768
    return Output([], [], {"answer": [samples]}, finished=bool(samples.any()))


def messages(text: str, seen: tuple[str, ...]) -> list[dict]:
    """A chat of a system's and a user's message, as the Qwen-Omni models want it."""
    system = {"role": "system", "content": [{"type": "text", "text": "Qwen"}]}
    return [system, {"role": "user", "content": content(text, seen)}]


def ask_aloud(
    running, prompt: tuple[int, ...], more: dict, tokens: int, talker: dict, **asked: str
) -> Output:
    """The answer's ``tokens``, the log-probability of each, and its sound as samples in steps of 16 bits.

    ``talker``: sampling parameters of the second of three stages; ``asked``: what the body has besides.
    """
    alike = {"temperature": 0.0, "ignore_eos": True}
    body = {
        "messages": messages(text(prompt), more.get("seen", ())),
        "modalities": ["text", "audio"],
        "return_token_ids": True,
        "logprobs": True,
        "top_logprobs": 1,
        "sampling_params_list": [
            alike | {"max_tokens": tokens, "logprobs": 1},
            alike | talker,
            {"temperature": 0.0, "max_tokens": 65536},
        ],
    }
    return spoken(server.post(running, "/v1/chat/completions", body | asked)["choices"])
