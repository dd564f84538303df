"""MiniCPM-o 4.5: a thinker answers text, picture and sound, a talker makes codes, a vocoder sound of them.

The thinker's tokens and log-probabilities are held against transformers' Qwen3 behind vllm-omni's own
encoders on the CPU, in bfloat16 as the stages compute. The sound has no reference: asked again it is the
same. What a hub has beside the weights is ours and minimal: the remote code (it names classes of vLLM and
vllm-omni), the network that knows a speaker, the reference sound, and the numbers of the speech tokenizer,
whose sizes its package holds.
"""

from __future__ import annotations

import wave
from pathlib import Path

from npu_emulator.dry_run import engine, server
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

ARCHITECTURE = "MiniCPMO"
OPTIONS = ("--trust-remote-code",)
DEPLOY = "minicpmo_4_5_turn.yaml"
WORKERS = ("ar", "generation")
WITHOUT_NPU = False  # vllm-omni's classes need its platform
_TOKENS, _FRAMES = 5, 30  # of an answer: of text, and of codes, which go on in chunks of 25
_SIZE, _TALKER, _SOUND, _SIGHT = 128, 64, 32, 32  # of hidden states; the resampler has a head for each 128
_CODES, _TEXTS, _VOCABULARY = 6562, 152064, 151748
_HEARD, _QUIET, _QUIETER = 4.0, 0.3, -3.0
_PICTURE, _QUERIES = 448, 64
_NAMES = 3**8  # codes of the speech tokenizer
# ids that the code of vllm-omni holds, and the words around them
_SPECIAL = {
    "<unk>": 128244,
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
} | {
    word: 151669 + at
    for at, word in enumerate(
        [
            "<image>",
            "</image>",
            "<ref>",
            "</ref>",
            "<box>",
            "</box>",
            "<quad>",
            "</quad>",
            "<point>",
            "</point>",
            "<slice>",
            "</slice>",
            "<image_id>",
            "</image_id>",
            "<unit>",
            "</unit>",
            "<answer>",
            "</answer>",
            "<|audio_bos|>",
            "<focus>",
            "</focus>",
            "<line>",
            "</line>",
            "<|text_eos|>",
            "<propose>",
            "</propose>",
            "<|audio_unused|>",
            "<|no_audio|>",
            "<|audio_start|>",
            "<|audio|>",
            "<|audio_end|>",
            "<|spk_bos|>",
            "<|spk|>",
            "<|spk_eos|>",
            "<|tts_bos|>",
            "<|tts_eos|>",
            "<|listen|>",
            "<|speak|>",
            "<|interrupt|>",
            "<|vad_start|>",
            "<|vad_end|>",
            "<|tts_pad|>",
            "<|chunk_eos|>",
            "<|chunk_tts_eos|>",
            "<|turn_eos|>",
        ]
    )
}
_NAMED = {  # as the processor asks the tokenizer for them
    "im_start": "<image>",
    "im_end": "</image>",
    "slice_start": "<slice>",
    "slice_end": "</slice>",
    "audio_start": "<|audio_start|>",
    "audio_end": "<|audio_end|>",
    "spk_start": "<|spk_bos|>",
    "spk_end": "<|spk_eos|>",
}
_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if use_tts_template %}<|tts_bos|>{% endif %}"
)
_REMOTE = '''"""Minimal remote code: the classes are those of vLLM and vllm-omni."""
from transformers import PretrainedConfig, PreTrainedTokenizerFast, Qwen3Config, WhisperConfig
from vllm.transformers_utils.processors.minicpmo import MiniCPMOProcessor as Processor

NAMED = {named}


class MiniCPMOConfig(Qwen3Config):
    model_type = "minicpmo"

    def __init__(self, vision_config=None, audio_config=None, tts_config=None, slice_config=None, **more):
        self.vision_config = PretrainedConfig(**(vision_config or dict()))
        self.audio_config = WhisperConfig(**(audio_config or dict()))
        self.tts_config = PretrainedConfig(**(tts_config or dict()))
        self.slice_config = PretrainedConfig(**(slice_config or dict()))
        super().__init__(**more)


class MiniCPMOTokenizerFast(PreTrainedTokenizerFast):
    pass


def number(word):
    return property(lambda self: self.convert_tokens_to_ids(word))


for name, word in NAMED.items():
    setattr(MiniCPMOTokenizerFast, name, word)
    setattr(MiniCPMOTokenizerFast, name + "_id", number(word))


class MiniCPMOProcessor(Processor):
    pass


def __getattr__(name):
    if name != "MiniCPMVImageProcessor":
        raise AttributeError(name)
    from vllm_omni.model_executor.models.minicpmo_4_5 import minicpmo_4_5_omni_llm

    return minicpmo_4_5_omni_llm.MiniCPMVImageProcessor
'''


def reduce(deploy: dict) -> None:
    """Put the stages on one device, and make smaller what only sizes the profiling."""
    parts.reduce(deploy, (512, 512, 2048), (0.4, 0.2, 0.3))


def make(folder: Path) -> None:
    """Write the checkpoint: encoders by the release's own classes, the thinker's answers by transformers."""
    import torch
    from safetensors.torch import save_file

    _remote_code(folder)
    thinker = _thinker(folder)
    with torch.no_grad():
        for name, value in thinker.named_parameters():
            if name.endswith(("o_proj.weight", "linear2.weight", "out_proj.weight", "resampler.proj")):
                value.mul_(_HEARD)
    _choose_words(folder, thinker.to(torch.bfloat16))
    kept = thinker.state_dict() | _talker()
    save_file(
        {name: value.to(torch.bfloat16).contiguous() for name, value in kept.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    _vocoder(folder / "assets")


def _remote_code(folder: Path) -> None:
    (folder / "remote.py").write_text(_REMOTE.replace("{named}", repr(_NAMED)), encoding="utf-8")
    classes = {
        "AutoConfig": "remote.MiniCPMOConfig",
        "AutoProcessor": "remote.MiniCPMOProcessor",
        "AutoImageProcessor": "remote.MiniCPMVImageProcessor",
        "AutoTokenizer": ["remote.MiniCPMOTokenizerFast", "remote.MiniCPMOTokenizerFast"],
    }
    kept = {"tokenizer_class": "MiniCPMOTokenizerFast", "unk_token": "<unk>", "auto_map": classes}
    roles = {"user": 872, "system": 8948, "assistant": 77091}
    parts.whole_tokenizer(folder, _VOCABULARY, roles, _SPECIAL, kept, _CHAT)
    processor = {
        "processor_class": "MiniCPMOProcessor",
        "image_processor_type": "MiniCPMVImageProcessor",
        "auto_map": classes,
        "max_slice_nums": 1,
        "scale_resolution": _PICTURE,
        "patch_size": 14,
        "use_image_id": True,
        "image_feature_size": _QUERIES,
        "version": 4.5,
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": 80,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "sampling_rate": 16000,
        "return_attention_mask": True,
    }
    write_json(folder / "preprocessor_config.json", processor)
    config = {
        "architectures": [ARCHITECTURE],
        "auto_map": classes,
        "model_type": "minicpmo",
        "version": "4.5",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "attention_bias": False,
        "hidden_size": _SIZE,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 128,
        "rope_theta": 1000000,
        "max_position_embeddings": 40960,
        "vocab_size": _VOCABULARY,
        "tie_word_embeddings": False,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "query_num": _QUERIES,
        "image_size": _PICTURE,
        "patch_size": 14,
        "drop_vision_last_layer": False,
        "batch_vision_input": True,
        "vision_batch_size": 16,
        "use_image_id": True,
        "audio_pool_step": 5,
        "audio_chunk_length": 1.0,
        "init_vision": True,
        "init_audio": True,
        "init_tts": True,
        "slice_config": {
            "model_type": "minicpmv",
            "patch_size": 14,
            "max_slice_nums": 1,
            "scale_resolution": _PICTURE,
        },
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": _SIGHT,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_channels": 3,
            "image_size": 980,
            "patch_size": 14,
            "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": 1e-6,
            "attention_dropout": 0.0,
        },
        "audio_config": {
            "d_model": _SOUND,
            "encoder_ffn_dim": 4 * _SOUND,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "num_mel_bins": 80,
            "max_source_positions": 1500,
        },
        "tts_config": {
            "model_type": "minicpmtts",
            "llm_dim": _SIZE,
            "hidden_size": _TALKER,
            "intermediate_size": 128,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "num_hidden_layers": 2,
            "max_position_embeddings": 4096,
            "num_audio_tokens": _CODES,
            "num_text_tokens": _TEXTS,
            "num_vq": 1,
            "vocab_size": _CODES,
            "eos_token_id": _CODES - 1,
            "audio_bos_token_id": _SPECIAL["<|audio_bos|>"],
            "text_eos_token_id": _SPECIAL["<|text_eos|>"],
            "normalize_projected_hidden": True,
            "rms_norm_eps": 1e-6,
        },
    }
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"pad_token_id": 151643})


def _thinker(folder: Path):
    """The release's own thinker, its language model transformers'."""
    import torch
    import transformers
    from vllm_omni.model_executor.models.minicpmo_4_5 import minicpmo_4_5_omni_llm as omni

    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    sight = omni.SiglipVisionConfig(**config.vision_config.to_dict())
    sight._attn_implementation = "eager"
    made = omni.MiniCPMO45OmniLLMForConditionalGeneration.__new__(
        omni.MiniCPMO45OmniLLMForConditionalGeneration
    )
    torch.nn.Module.__init__(made)
    made.config = config
    made.llm = transformers.Qwen3ForCausalLM(transformers.Qwen3Config.from_dict(config.to_dict()))
    made.vpm = omni.SiglipVisionTransformer(sight)
    made.resampler = omni.Resampler(
        num_queries=_QUERIES, embed_dim=_SIZE, num_heads=_SIZE // 128, kv_dim=_SIGHT, adaptive=True
    )
    made.apm = omni.MiniCPMWhisperEncoder(config.audio_config)
    made.audio_projection_layer = omni.MultiModalProjector(in_dim=_SOUND, out_dim=_SIZE)
    made.audio_avg_pooler = torch.nn.AvgPool1d(config.audio_pool_step, stride=config.audio_pool_step)
    made.audio_encoder_layer = -1
    return parts.seeded(made, 0).eval()


def _choose_words(folder: Path, thinker) -> None:
    import torch
    import transformers

    processor = transformers.AutoProcessor.from_pretrained(folder, trust_remote_code=True)
    processor.pool_step = thinker.config.audio_pool_step  # as vllm-omni does

    def answer(text: str, _: int, more: dict) -> dict:
        seen = more.get("seen", ())
        inputs = processor(
            text=[_prompt(text, seen)],
            images=[[parts.picture()]] if "image" in seen else None,
            audios=[[parts.tone()]] if "audio" in seen else None,
        )
        hidden = thinker.llm.get_input_embeddings()(inputs["input_ids"].long())
        if "image" in seen:
            picture = {
                "pixel_values": inputs["pixel_values"][0],
                "tgt_sizes": torch.as_tensor(inputs["tgt_sizes"][0]),
            }
            _put(hidden, inputs["image_bound"][0], thinker.get_vision_hidden_states(_half(picture)))
        if "audio" in seen:
            sound = {
                "audio_features": inputs["audio_features"],
                "audio_feature_lens": inputs["audio_feature_lens"],
            }
            _put(hidden, inputs["audio_bounds"][0], thinker.get_audio_hidden_states(_half(sound)))
        found = thinker.llm.generate(
            inputs_embeds=hidden,
            max_new_tokens=_TOKENS,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        )
        return {"tokens": found.sequences[0], "logits": torch.cat(found.logits)}

    with torch.no_grad():
        parts.choose_words(folder, "minicpm-o", thinker.llm.lm_head, answer)


def _half(inputs: dict) -> dict:
    def of(value):
        if isinstance(value, list):
            return [of(one) for one in value]
        return value.bfloat16() if value.is_floating_point() else value

    return {name: of(value) for name, value in inputs.items()}


def _put(hidden, bounds, made) -> None:
    """Put what was seen or heard at its places."""
    for (start, end), one in zip(bounds.tolist(), made, strict=True):
        hidden[0, start:end] = one.reshape(end - start, -1)


def _prompt(text: str, seen: tuple[str, ...]) -> str:
    content = "\n".join([*(f"(<{kind}>./</{kind}>)" for kind in seen), text])
    return f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n<|tts_bos|>"


def _talker() -> dict:
    """The talker's weights by the names that the release reads."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=_TALKER,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
    )
    made = torch.nn.Module()
    made.model = transformers.LlamaModel(config)
    made.emb_text = torch.nn.Embedding(_TEXTS, _TALKER)
    made.emb_code = torch.nn.ModuleList([torch.nn.Embedding(_CODES, _TALKER)])
    made.projector_semantic = torch.nn.Module()
    made.projector_semantic.linear1 = torch.nn.Linear(_SIZE, _TALKER)
    made.projector_semantic.linear2 = torch.nn.Linear(_TALKER, _TALKER)
    head = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(_TALKER, _CODES, bias=False), dim=0)
    made.head_code = torch.nn.ModuleList([head])
    parts.seeded(made, 1)
    return {f"tts.{name}": value for name, value in made.state_dict().items()}


def _vocoder(folder: Path) -> None:
    """Flow, vocoder and what listens to the reference sound."""
    import torch
    from hyperpyyaml import load_hyperpyyaml
    from vllm_omni.model_executor.models.step_audio2 import step_audio2_token2wav as omni

    place = folder / "token2wav"
    place.mkdir(parents=True)
    (place / "flow.yaml").write_text(_FLOW, encoding="utf-8")
    flow = parts.seeded(load_hyperpyyaml(_FLOW)["flow"], 2)
    torch.save(flow.state_dict(), place / "flow.pt")
    hift = parts.seeded(omni._build_hift(), 3)
    with torch.no_grad():
        hift.m_source.l_linear.weight.zero_()  # its sines have random phases and noise
        hift.conv_post.parametrizations.weight.original0.mul_(_QUIET)
        hift.conv_post.bias.fill_(_QUIETER)
    torch.save(hift.state_dict(), place / "hift.pt")
    _speaker(place / "campplus.onnx")
    _speech_tokenizer(place)
    with wave.open(str(folder / "HT_ref_audio.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((parts.tone() * 32767).astype("<i2").tobytes())


# a buffer of 2 GB is for a way through the decoder that vllm-omni does not take
_FLOW = """decoder: !new:cosyvoice2.flow.flow_matching.CausalConditionalCFM
  inference_cfg_rate: 0.7
  estimator: !new:cosyvoice2.flow.decoder_dit.DiT
    in_channels: 320
    out_channels: 80
    mlp_ratio: 2.0
    depth: 1
    num_heads: 2
    head_dim: 16
    hidden_size: 32
smaller: !apply:builtins.delattr [!ref <decoder>, att_cache_buffer]
flow: !new:cosyvoice2.flow.flow.CausalMaskedDiffWithXvec
  input_size: 32
  output_size: 80
  spk_embed_dim: 192
  output_type: mel
  vocab_size: 6561
  decoder: !ref <decoder>
  encoder: !new:cosyvoice2.transformer.upsample_encoder_v2.UpsampleConformerEncoderV2
    input_size: 32
    output_size: 32
    input_layer: linear
    pre_lookahead_len: 3
    num_blocks: 1
    num_up_blocks: 1
    up_stride: 2
    up_scale_factor: 2
    attention_heads: 2
    pos_enc_layer_type: rel_pos_espnet
    selfattention_layer_type: rel_selfattn
    key_bias: true
    linear_units: 64
    dropout_rate: 0.1
    positional_dropout_rate: 0.1
    attention_dropout_rate: 0.1
    normalize_before: true
"""


def _speaker(path: Path) -> None:
    """A network for a speaker's mark: the most of each feature, mixed."""
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = numpy.random.default_rng(0)
    mix = numpy_helper.from_array((random.standard_normal((80, 192)) / 9).astype("float32"), "mix")
    axes = numpy_helper.from_array(numpy.array([1], "int64"), "axes")
    nodes = [
        helper.make_node("ReduceMax", ["input", "axes"], ["most"], keepdims=0),
        helper.make_node("MatMul", ["most", "mix"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "speaker",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, "frames", 80])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 192])],
        [mix, axes],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def _speech_tokenizer(folder: Path) -> None:
    """The speech tokenizer's file: its package holds the sizes, so all weights are one block of numbers."""
    import onnx
    import s3tokenizer
    import torch
    from onnx import TensorProto, helper

    path = folder / "speech_tokenizer_v2_25hz.onnx"
    wanted = s3tokenizer.S3TokenizerV2(path.name).state_dict()
    most = max(value.numel() for value in wanted.values())
    random = torch.Generator().manual_seed(4)
    numbers = (torch.randn(most, generator=random) * 0.02).half().numpy()
    (folder / "numbers.bin").write_bytes(numbers.tobytes())
    nodes, tensors = [], []
    for name, value in wanted.items():
        shape = tuple(value.shape) if value.dim() > 2 else tuple(value.shape)[::-1]
        inside, node = _onnx_name(name)
        tensor = TensorProto(name=inside, data_type=TensorProto.FLOAT16, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, said in {"location": "numbers.bin", "offset": "0", "length": str(2 * value.numel())}.items():
            tensor.external_data.add(key=key, value=said)
        tensors.append(tensor)
        nodes.append(helper.make_node("Identity", [inside], [f"{inside}.out"], name=node))
    graph = helper.make_graph(nodes, "speech", [], [], tensors)
    onnx.save(helper.make_model(graph), path)


def _onnx_name(name: str) -> tuple[str, str]:
    """How the file calls a weight: the tensor and the node that has it."""
    known = {
        "encoder.conv1": "encoders.conv1",
        "encoder.conv2": "encoders.conv2",
        "quantizer._codebook.project_down.bias": "quantizer.project_in.bias",
        "quantizer._codebook.project_down.weight": "onnx::MatMul_2536",
    }
    for ours, theirs in known.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours), name
    return name, "/" + name.removeprefix("encoder.")


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """The answer's tokens, the log-probability of each, and its sound as samples in steps of 16 bits."""
    alike = {"temperature": 0.0, "ignore_eos": True}
    body = {
        "messages": [{"role": "user", "content": parts.content(parts.text(prompt), more.get("seen", ()))}],
        "modalities": ["text", "audio"],
        "chat_template_kwargs": {"use_tts_template": True},
        "return_token_ids": True,
        "logprobs": True,
        "top_logprobs": 1,
        "sampling_params_list": [
            alike | {"max_tokens": _TOKENS, "logprobs": 1},
            alike | {"max_tokens": _FRAMES, "min_tokens": _FRAMES, "repetition_penalty": 1.0},
            {"temperature": 0.0, "max_tokens": 65536},
        ],
    }
    return parts.spoken(server.post(running, "/v1/chat/completions", body)["choices"])
