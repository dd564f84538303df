"""Qwen3-Omni: a thinker answers text, picture and sound, a talker and a decoder say it.

The thinker's tokens and their log-probabilities are held against transformers' own model on the CPU, in
bfloat16 as the stages compute. The sound has no reference, since there a rounding may choose another code:
asked again it is the same. The talker's code predictor always samples, so its weights leave two codes, of
which each time one has all the probability.
"""

from __future__ import annotations

import base64
import io
import math
import wave
from pathlib import Path

from npu_emulator.dry_run import engine, server
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

OPTIONS = ()
DEPLOY = "qwen3_omni_moe.yaml"
WORKERS = ("ar", "generation")  # the kinds
WITHOUT_NPU = True  # transformers would take its kernels
_TOKENS, _FRAMES = 5, 12  # of an answer: of text, and of sound
_SPEAKER = "chelsie"
_RATE, _SIZE = 16000, 128  # of the sound and the picture in a request
_VOCABULARY, _THINKER, _TALKER, _CODES, _GROUPS = 152064, 64, 64, 2048, 16
_CODE, _CERTAIN, _QUIET, _HEARD = 100, 1e5, 0.01, 4.0
_WORDS, _VARIED, _SURE, _SEEDS = slice(1000, 1016), 4, 0.4, 200  # logits have a deviation of 8
# ids that the code of vllm-omni holds
_ROLES = {"user": 872, "system": 8948, "assistant": 77091}
_SPECIAL = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|vision_pad|>": 151654,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
    "<|audio_start|>": 151669,
    "<|audio_end|>": 151670,
    "<tts_pad>": 151671,
    "<tts_text_bos>": 151672,
    "<tts_text_eod>": 151673,
    "<tts_text_bos_single>": 151674,
    "<|audio_pad|>": 151675,
}
_NAMED = {  # as the processor calls them
    "image_token": "<|image_pad|>",
    "audio_token": "<|audio_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}
_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}"
    "{% if 'audio' in c['type'] %}<|audio_start|><|audio_pad|><|audio_end|>"
    "{% elif 'image' in c['type'] %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def reduce(deploy: dict) -> None:
    """Put the stages on one device, and make smaller what only sizes the profiling."""
    most, share = (512, 512, 2048), (0.4, 0.3, 0.2)
    alike = {"devices": "0", "tensor_parallel_size": 1, "max_num_seqs": 2, "skip_mm_profiling": True}
    for stage in parts.stages(deploy):
        number = stage["stage_id"]
        stage.update(alike, max_model_len=most[number], max_num_batched_tokens=most[number])
        stage["gpu_memory_utilization"] = share[number]


def make(folder: Path) -> None:
    """Write the checkpoint with transformers' own classes, and the thinker's answers."""
    import torch
    import transformers

    _tokenizer(folder)
    _processor(folder)
    model = parts.seeded(transformers.Qwen3OmniMoeForConditionalGeneration(_config()), 0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "code_predictor.lm_head" in name:
                chosen = value[_CODE] * _CERTAIN
                value.zero_()
                value[_CODE], value[2 * _CODE] = chosen, -chosen
            elif "code2wav.decoder" in name and len(value) == 1:  # one channel: the sound
                value.mul_(_QUIET)
            elif "codec_head" in name:
                value.mul_(value.shape[-1] ** 0.5)
            elif name.endswith(("o_proj.weight", "proj2.weight", "mlp.2.weight")):
                value.mul_(_HEARD)
    _choose_words(folder, model.to(torch.bfloat16))
    model.save_pretrained(folder)
    write_json(folder / "generation_config.json", {"pad_token_id": _SPECIAL["<|endoftext|>"]})


def _choose_words(folder: Path, model) -> None:
    """Weights for a few words with which answers differ and no rounding turns a choice; keep the answers."""
    import torch
    import transformers

    processor = transformers.AutoProcessor.from_pretrained(folder)
    margins: list[float] = []
    said: dict[tuple, tuple] = {}

    def answer(text: str, _: int, more: dict) -> dict:
        seen = more.get("seen", ())
        inputs = processor(
            text=[processor.apply_chat_template(_messages(text, seen), tokenize=False)],
            images=[_picture()] if "image" in seen else None,
            audio=[_samples().astype("float32") / 32768] if "audio" in seen else None,
            return_tensors="pt",
        )
        found = model.thinker.generate(
            **{name: one.bfloat16() if one.is_floating_point() else one for name, one in inputs.items()},
            max_new_tokens=_TOKENS,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        )
        likely = torch.cat(found.logits).float().log_softmax(-1).topk(2).values
        margins.extend((likely[:, 0] - likely[:, 1]).tolist())
        tokens = found.sequences[0, inputs["input_ids"].shape[1] :]
        said[text, seen] = tuple(tokens.tolist())
        return {"tokens": tokens, "logprobs": likely[:, 0].contiguous()}

    model.eval()
    for seed in range(_SEEDS):
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            words = model.thinker.lm_head.weight.zero_()[_WORDS]
            words.copy_(torch.randn(words.shape, generator=random))
        margins.clear()
        parts.expect(folder, "qwen3-omni", answer)
        words = {word for answer in said.values() for word in answer}
        if min(margins) > _SURE and len(set(said.values())) == len(said) and len(words) >= _VARIED:
            return
    raise RuntimeError(f"in {_SEEDS} draws of words answers were alike, or a rounding could turn a choice")


def _processor(folder: Path) -> None:
    patches = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
    pixels = {"min_pixels": 1024, "max_pixels": _SIZE**2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
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
    kinds = {"processor_class": "Qwen3OmniMoeProcessor", "image_processor_type": "Qwen2VLImageProcessor"}
    write_json(folder / "preprocessor_config.json", kinds | sound | patches | pixels)
    video = {"video_processor_type": "Qwen2VLVideoProcessor"}
    write_json(folder / "video_preprocessor_config.json", video | patches | pixels)


def _config():
    import transformers

    layers = {
        "hidden_size": _THINKER,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 128,
    }
    rope = {
        "rope_type": "default",
        "rope_theta": 1000000,
        "mrope_section": [24, 20, 20],
        "mrope_interleaved": True,
        "interleaved": True,
    }
    experts = {
        "moe_intermediate_size": 64,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "rope_parameters": rope,
        "max_position_embeddings": 65536,
    }
    audio = {
        "num_mel_bins": 128,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "d_model": 32,
        "output_dim": _THINKER,
        "n_window": 50,
        "n_window_infer": 800,
        "conv_chunksize": 500,
        "downsample_hidden_size": 16,
        "max_source_positions": 1500,
        "activation_function": "gelu",
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": _THINKER,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 64,
        "image_size": 128,  # vLLM reads these two, transformers does not write them
        "apply_vit_abs_pos_embed": True,
        "deepstack_visual_indexes": [0, 1],
    }
    ids = {
        "audio_token_id": _SPECIAL["<|audio_pad|>"],
        "image_token_id": _SPECIAL["<|image_pad|>"],
        "video_token_id": _SPECIAL["<|video_pad|>"],
        "audio_start_token_id": _SPECIAL["<|audio_start|>"],
        "vision_start_token_id": _SPECIAL["<|vision_start|>"],
        "position_id_per_seconds": 13,
    }
    talker = {
        "code_predictor_config": layers
        | {
            "hidden_size": _TALKER,
            "vocab_size": _CODES,
            "num_code_groups": _GROUPS,
            "max_position_embeddings": 32768,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000},
        },
        "text_config": layers
        | experts
        | {"hidden_size": _TALKER, "vocab_size": 3072, "shared_expert_intermediate_size": 64},
        "num_code_groups": _GROUPS,
        "thinker_hidden_size": _THINKER,
        "accept_hidden_layer": 1,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_think_id": 2154,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "audio_end_token_id": _SPECIAL["<|audio_end|>"],
        "speaker_id": {_SPEAKER: 2301, "ethan": 2302, "aiden": 2303},
        "spatial_merge_size": 2,
        "seconds_per_chunk": 2,
    }
    decoder = {
        "codebook_size": _CODES,
        "num_quantizers": _GROUPS,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "decoder_dim": 128,
        "sliding_window": 72,
        "max_position_embeddings": 8000,
    }
    thinker = {
        "audio_config": audio,
        "vision_config": vision,
        "text_config": layers | experts | {"vocab_size": _VOCABULARY},
        "audio_end_token_id": _SPECIAL["<|audio_end|>"],
        "vision_end_token_id": _SPECIAL["<|vision_end|>"],
        "user_token_id": _ROLES["user"],
    }
    config = transformers.Qwen3OmniMoeConfig(
        thinker_config=thinker | ids,
        talker_config=talker | ids,
        code2wav_config=decoder,
        enable_audio_output=True,
        im_start_token_id=_SPECIAL["<|im_start|>"],
        im_end_token_id=_SPECIAL["<|im_end|>"],
        tts_pad_token_id=_SPECIAL["<tts_pad>"],
        tts_bos_token_id=_SPECIAL["<tts_text_bos>"],
        tts_eos_token_id=_SPECIAL["<tts_text_eod>"],
        **{f"{role}_token_id": number for role, number in _ROLES.items()},
    )
    config.architectures = ["Qwen3OmniMoeForConditionalGeneration"]
    return config


def _tokenizer(folder: Path) -> None:
    """A token for each byte, role and special word; the rest of the real vocabulary is unused words."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    words = {word: at for at, word in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    words |= _ROLES | _SPECIAL
    taken = set(words.values())
    # vLLM warns at every step of a vocabulary with holes
    words |= {f"<unused{number}>": number for number in range(_VOCABULARY) if number not in taken}
    made = Tokenizer(BPE(vocab=words, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(role, normalized=False) for role in _ROLES])
    made.add_special_tokens(list(_SPECIAL))
    made.save(str(folder / "tokenizer.json"))
    kept = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "model_max_length": 65536,
        "chat_template": _CHAT,
        "extra_special_tokens": _NAMED,
    }
    write_json(folder / "tokenizer_config.json", kept | _NAMED)
    (folder / "chat_template.jinja").write_text(_CHAT, encoding="utf-8")


def _messages(text: str, seen: tuple[str, ...]) -> list[dict]:
    data = {"image": ("png", _png), "audio": ("wav", _wav)}
    content = []
    for kind in seen:
        form, written = data[kind]
        url = f"data:{kind}/{form};base64,{base64.b64encode(written()).decode()}"
        content.append({"type": f"{kind}_url", f"{kind}_url": {"url": url}})
    system = {"role": "system", "content": [{"type": "text", "text": "Qwen"}]}
    return [system, {"role": "user", "content": [*content, {"type": "text", "text": text}]}]


def _picture():
    """Stripes of all greys."""
    import numpy
    from PIL import Image

    rows, columns = numpy.indices((_SIZE, _SIZE))
    return Image.fromarray(((rows + 4 * columns) % 256).astype("uint8")).convert("RGB")


def _png() -> bytes:
    out = io.BytesIO()
    _picture().save(out, "PNG")
    return out.getvalue()


def _samples():
    """Half a second of a tone, of 16 bits."""
    import numpy

    at = numpy.arange(_RATE // 2) / _RATE
    return (9000 * numpy.sin(2 * math.pi * 283 * at)).astype("<i2")


def _wav() -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(_samples().tobytes())
    return out.getvalue()


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """The answer's tokens, the log-probability of each, and its sound as samples in steps of 16 bits."""
    import torch

    alike = {"temperature": 0.0, "ignore_eos": True}
    body = {
        "messages": _messages(parts.text(prompt), more.get("seen", ())),
        "modalities": ["text", "audio"],
        "speaker": _SPEAKER,
        "return_token_ids": True,
        "logprobs": True,
        "top_logprobs": 1,
        "sampling_params_list": [
            alike | {"max_tokens": _TOKENS, "logprobs": 1},
            alike | {"max_tokens": _FRAMES, "repetition_penalty": 1.0},
            {"temperature": 0.0, "max_tokens": 65536},
        ],
    }
    choices = server.post(running, "/v1/chat/completions", body)["choices"]
    said = base64.b64decode(
        next(one for one in choices if one["message"].get("audio"))["message"]["audio"]["data"]
    )
    with wave.open(io.BytesIO(said)) as file:
        samples = torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16)
    steps = [step["logprob"] for step in choices[0]["logprobs"]["content"]]
    answer = {"answer": [samples.float()], "logprobs": [torch.tensor(steps)]}
    return engine.Output(choices[0]["token_ids"], [], answer, finished=bool(samples.any()))
