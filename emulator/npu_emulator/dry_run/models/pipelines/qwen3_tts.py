"""Qwen3-TTS: a talker makes codec frames, a decoder turns them into sound while it talks.

Nothing but vllm-omni has this talker, so the answers have no reference: they are repeated, asked together and
streamed, and have to be the same.
"""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

ARCHITECTURE = "Qwen3TTSForConditionalGeneration"
OPTIONS = ()
DEPLOY = "qwen3_tts.yaml"
WORKERS = ("ar", "generation")
WITHOUT_NPU = False  # vllm-omni's classes need its platform
_FRAMES = 12
_GROUPS, _CODES = 4, 2048
_TALKER = {"heads": 2, "kv_heads": 1, "head": 128, "hidden": 64, "inner": 128, "layers": 2}
_VOCABULARY, _TEXT_VOCABULARY, _TEXT = 3072, 512, 48
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")


def reduce(deploy: dict) -> None:
    """Make a deploy file greedy, and smaller where its limits only size the profiling."""
    talker, decoder = deploy.get("stages") or deploy["stage_args"]
    for stage, most in ((talker, 512), (decoder, 4096)):
        arguments = stage.get("engine_args", stage)
        arguments.update(max_model_len=most, max_num_batched_tokens=most, max_num_seqs=2)
        stage["default_sampling_params"] = stage["default_sampling_params"] | {"temperature": 0.0}
        if "subtalker_sampling_params" in arguments:
            arguments["subtalker_sampling_params"]["do_sample"] = False


def make(folder: Path) -> None:
    """Write the checkpoint: the decoder by the release's own classes, the talker by its names of weights."""
    _speech_tokenizer(folder / "speech_tokenizer")
    _talker(folder)
    parts.tokenizer(
        folder,
        _SPECIAL,
        eos_token="<|im_end|>",
        chat_template="{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}<|im_start|>assistant\n",
    )


def _speech_tokenizer(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz import (
        configuration_qwen3_tts_tokenizer_v2 as configuration,
    )
    from vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz import (
        modeling_qwen3_tts_tokenizer_v2 as modeling,
    )

    folder.mkdir()
    attention = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64}
    codes = {"codebook_size": _CODES, "num_quantizers": _GROUPS}
    config = {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_config": {
            "audio_channels": 1,
            "sampling_rate": 24000,
            "num_filters": 4,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "codebook_dim": 16,
            "vector_quantization_hidden_dimension": 16,
            "upsample_groups": 32,
            "num_semantic_quantizers": 1,
            "sliding_window": 250,
            "frame_rate": 12.5,
            **attention,
            **codes,
        },
        "decoder_config": {
            "codebook_dim": 32,
            "hidden_size": 32,
            "latent_dim": 32,
            "num_hidden_layers": 2,
            "upsample_rates": [8, 5, 4, 3],
            "upsampling_ratios": [2, 2],
            "decoder_dim": 64,
            "sliding_window": 72,
            "max_position_embeddings": 8000,
            "rope_theta": 10000,
            "rms_norm_eps": 1e-5,
            "layer_scale_initial_scale": 0.01,
            **attention,
            **codes,
        },
        "encoder_valid_num_quantizers": _GROUPS,
        "input_sample_rate": 24000,
        "output_sample_rate": 24000,
        "decode_upsample_rate": 1920,
        "encode_downsample_rate": 1920,
    }
    write_json(folder / "config.json", config)
    extractor = {
        "feature_extractor_type": "EncodecFeatureExtractor",
        "feature_size": 1,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
        "sampling_rate": 24000,
    }
    write_json(folder / "preprocessor_config.json", extractor)
    read = configuration.Qwen3TTSTokenizerV2Config.from_pretrained(folder)
    random, tensors = torch.Generator().manual_seed(0), {}
    made = {
        "decoder": modeling.Qwen3TTSTokenizerV2Decoder._from_config(read.decoder_config),
        "encoder": modeling.Qwen3TTSTokenizerV2Encoder._from_config(read.encoder_config),
    }
    for part, module in made.items():
        for name, value in sorted(module.state_dict().items()):
            kept = value.detach().clone().float()
            if kept.dim() > 1 and "cluster" not in name:
                kept = torch.randn(kept.shape, generator=random) * max(kept[0].numel(), 1) ** -0.5
            elif "cluster_usage" in name or not torch.isfinite(kept).all():
                kept = torch.ones_like(kept)
            tensors[f"{part}.{name}"] = kept.contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _talker(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    layers = {
        "hidden_size": _TALKER["hidden"],
        "intermediate_size": _TALKER["inner"],
        "num_hidden_layers": _TALKER["layers"],
        "num_attention_heads": _TALKER["heads"],
        "num_key_value_heads": _TALKER["kv_heads"],
        "head_dim": _TALKER["head"],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "attention_bias": False,
        "use_sliding_window": False,
        "num_code_groups": _GROUPS,
    }
    predictor = {"vocab_size": _CODES, "max_position_embeddings": 4096, "rope_scaling": None}
    talker = layers | {
        "model_type": "qwen3_tts_talker",
        "code_predictor_config": layers | predictor | {"model_type": "qwen3_tts_talker_code_predictor"},
        "vocab_size": _VOCABULARY,
        "max_position_embeddings": 32768,
        "rope_scaling": {
            "interleaved": True,
            "mrope_section": [24, 20, 20],
            "rope_type": "default",
            "type": "default",
        },
        "text_hidden_size": _TEXT,
        "text_vocab_size": _TEXT_VOCABULARY,
        # ids that vllm-omni's code holds, and its neighbours
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_think_id": 2154,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "codec_language_id": {"chinese": 2055, "english": 2050},
        "spk_id": {"vivian": 3065, "ryan": 3061},
        "spk_is_dialect": {"vivian": False, "ryan": False},
        "position_id_per_seconds": 13,
    }
    speaker = {
        "enc_dim": _TALKER["hidden"],
        "enc_channels": [16, 16, 16, 16, 48],
        "enc_attention_channels": 8,
        "enc_se_channels": 8,
        "enc_res2net_scale": 4,
        "sample_rate": 24000,
    }
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3_tts",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "talker_config": talker,
        "speaker_encoder_config": speaker,
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": "1b7",
        "tts_model_type": "custom_voice",
        "assistant_token_id": len(_SPECIAL) + 100,
        "im_start_token_id": 1,
        "im_end_token_id": 2,
        "tts_pad_token_id": 3,
        "tts_bos_token_id": 4,
        "tts_eos_token_id": 5,
    }
    write_json(folder / "config.json", config)
    sampling = {"do_sample": True, "temperature": 0.9, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.05}
    write_json(folder / "generation_config.json", sampling | {"max_new_tokens": 8192})
    random, tensors = torch.Generator().manual_seed(0), {}
    for name, shape in sorted(_shapes().items()):
        values = torch.randn(shape, generator=random)
        values = values * 0.15 if len(shape) > 1 else values * 0.1 + (not name.endswith("bias"))
        tensors[name] = values.to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _shapes() -> dict[str, tuple[int, ...]]:
    """The weights of the talker and of its code predictor."""
    hidden, inner, head = _TALKER["hidden"], _TALKER["inner"], _TALKER["head"]
    queries, keys = _TALKER["heads"] * head, _TALKER["kv_heads"] * head
    found: dict[str, tuple[int, ...]] = {
        "talker.model.codec_embedding.weight": (_VOCABULARY, hidden),
        "talker.model.text_embedding.weight": (_TEXT_VOCABULARY, _TEXT),
        "talker.codec_head.weight": (_VOCABULARY, hidden),
        "talker.text_projection.linear_fc1.weight": (_TEXT, _TEXT),
        "talker.text_projection.linear_fc1.bias": (_TEXT,),
        "talker.text_projection.linear_fc2.weight": (hidden, _TEXT),
        "talker.text_projection.linear_fc2.bias": (hidden,),
    }
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_norm": (head,),
        "self_attn.k_norm": (head,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for base in ("talker.model", "talker.code_predictor.model"):
        found[f"{base}.norm.weight"] = (hidden,)
        for number in range(_TALKER["layers"]):
            found |= {f"{base}.layers.{number}.{name}.weight": shape for name, shape in layer.items()}
    for group in range(_GROUPS - 1):
        found[f"talker.code_predictor.model.codec_embedding.{group}.weight"] = (_CODES, hidden)
        found[f"talker.code_predictor.lm_head.{group}.weight"] = (_CODES, hidden)
    return found


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """What is said of a text, as samples from -1 to 1; a streamed answer is raw, the other a WAV file."""
    asked = {"voice": "vivian", "language": "English", "max_new_tokens": _FRAMES}
    return parts.speak(running, prompt, asked, more)
