"""MOSS-TTS Local v1.5: a talker makes frames of codes, a codec with a state makes sound of them meanwhile.

The sound is held against what the release's own codec makes of the whole answer at once, on the CPU and in
float32. Its codes are those that transformers' Qwen3 and a frame's layer of our own choose there in bfloat16.
The talker always samples, so its weights leave sixteen codes, of which each time one has all the probability,
and never end an answer. What a hub has beside the weights is ours and minimal: the processor, and the codes
that it gives the reference voice.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import wave
from collections.abc import Mapping
from pathlib import Path

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.catalogue import scenario
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

ARCHITECTURE = "MossTTSLocalModel"
OPTIONS = ()
DEPLOY = "moss_tts_local.yaml"
NEEDED = "platforms/npu/models/moss_tts_streaming_decode_wrapper.py"
WORKERS = ("ar", "generation")
WITHOUT_NPU = False  # vllm-omni's classes need its platform
_NAME = "moss-tts"
_FRAMES = (18, 20)  # of the requests in turn: the deploy file sends one, fifteen and the rest
_AT_A_TIME = 4  # of two, each is decoded alone: the second's codes come when the first are being decoded
_HIDDEN, _GROUPS, _CODES, _BASE, _LAYERS = 64, 12, 1024, 1000000, 2
_HEADS, _INNER, _VOCABULARY = 2, 128, 151680
_CHOICES, _CERTAIN, _ENDLESS = 16, 1e5, 0.1
_HEARD, _QUIET, _NEXT, _NEXT_FRAME = 4.0, 0.4, 10.0, 50.0  # of what was before, and of what follows a code
_SURE, _SEEDS = 0.3, 200
_RATE, _VOICE_RATE, _FRAME = 48000, 24000, 1920  # of the sound, of the reference voice, and of its codes
_LOUD = 0.8
_SPECIAL = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,  # vllm-omni's code holds it, so that the vocabulary has its size
    "<|audio_user_slot|>": 151654,
    "<|audio_assistant_slot|>": 151656,
    "<|audio_start|>": 151669,
    "<|audio_end|>": 151670,
}
# the codes that can be chosen, others in each group
_IDS = [[(60 * choice + 37 * group) % _CODES for choice in range(_CHOICES)] for group in range(_GROUPS)]
_SLOT = _SPECIAL["<|audio_assistant_slot|>"]
_PROCESSOR = '''"""A minimal processor: a reference voice by codes that tell how loud it is, and a text."""
import json
import pathlib
import types

import torch
import transformers


class MossTTSProcessor:
    @classmethod
    def register_for_auto_class(cls, auto_class="AutoProcessor"):
        pass

    @classmethod
    def from_pretrained(cls, folder, **more):
        return cls(folder)

    def __init__(self, folder):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        config = json.loads(pathlib.Path(folder, "config.json").read_text())
        self.model_config = types.SimpleNamespace(**config)

    def encode_audios_from_wav(self, wavs, sampling_rate, n_vq):
        found = []
        for wav in wavs:
            steps = (wav[0, : wav.shape[-1] // {frame} * {frame}] * 32768).round().long().abs()
            loud = steps.view(-1, {frame}).sum(-1, keepdim=True)
            found.append(loud * (2 * torch.arange(n_vq) + 1) % self.model_config.audio_vocab_size)
        return found

    def build_user_message(self, text, reference=(), language=None):
        return {"text": text, "reference": reference}

    def __call__(self, conversations, mode):
        ((message,),) = conversations
        rows = self._words("<|im_start|>user\\n")
        for codes in message["reference"]:
            slot = self.model_config.audio_user_slot_token_id
            heard = torch.cat([torch.full((len(codes), 1), slot), codes.long()], 1)
            rows += [*self._words("<|audio_start|>"), heard, *self._words("<|audio_end|>")]
        rows += self._words(message["text"] + "<|im_end|>\\n<|im_start|>assistant\\n<|audio_start|>")
        return {"input_ids": torch.cat(rows)[None]}

    def _words(self, text):
        ids = torch.tensor(self.tokenizer.encode(text, add_special_tokens=False))
        row = torch.full((len(ids), 1 + self.model_config.n_vq), self.model_config.audio_pad_token_id)
        row[:, 0] = ids
        return [row]
'''


def reduce(deploy: dict) -> None:
    """Make smaller what only sizes the profiling, and have the talker's graph in pieces.

    That is how the release has it of Qwen3-TTS's. Whole, it fails as Fish Speech's does, and hides the codec.
    """
    parts.reduce(deploy, (512, 2048), (0.5, 0.4))
    for stage in parts.stages(deploy):
        stage["max_num_seqs"] = _AT_A_TIME
    parts.stages(deploy)[0]["compilation_config"] = {"cudagraph_mode": "PIECEWISE"}


def make(folder: Path) -> None:
    """Write the checkpoint and the sound of each answer."""
    import torch
    from safetensors.torch import save_file

    kept, chat = {"tokenizer_class": "PreTrainedTokenizerFast"}, "{{ messages[0]['content'] }}"
    parts.whole_tokenizer(folder, _VOCABULARY, parts.QWEN_ROLES, _SPECIAL, kept, chat)
    write_json(folder / "config.json", _config(folder))
    classes = {"AutoProcessor": "processing_moss_tts.MossTTSProcessor"}
    write_json(folder / "processor_config.json", {"processor_class": "MossTTSProcessor", "auto_map": classes})
    processor = _PROCESSOR.replace("{frame}", str(_FRAME))
    (folder / "processing_moss_tts.py").write_text(processor, encoding="utf-8")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many small steps
    talker, said = _chosen(folder)
    torch.set_num_threads(threads)
    save_file(talker.weights(), folder / "model.safetensors", metadata={"format": "pt"})
    sounds = _codec(folder / "codec", said)
    parts.expect(folder, _NAME, lambda text, *_: {"answer": sounds[text].clone()})


def _config(folder: Path) -> dict:
    """The configuration in the model's own words."""
    # a maker writes beside the place that it was given, and the codec is named by its whole path
    place = Path(sys.argv[2]).absolute() if folder.name.startswith(".") else folder
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "moss_tts_local",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "qwen3_config": _layers() | {"model_type": "qwen3", "dtype": "bfloat16"},
        "gpt2_config": {
            "model_type": "gpt2",
            "n_embd": _HIDDEN,
            "n_head": _HEADS,
            "n_inner": _INNER,
            "n_layer": 1,
            "n_positions": _GROUPS,
            "layer_norm_epsilon": 1e-5,
            "rope_base": _BASE,
        },
        "n_vq": _GROUPS,
        "audio_vocab_size": _CODES,
        "audio_pad_token_id": _CODES,
        "sampling_rate": _RATE,
        "audio_tokenizer_name_or_path": str(place / "codec"),
        "local_text_head_mode": "binary",
        "eos_token_id": _SPECIAL["<|im_end|>"],
        "pad_token_id": _SPECIAL["<|endoftext|>"],
        "im_start_token_id": _SPECIAL["<|im_start|>"],
        "im_end_token_id": _SPECIAL["<|im_end|>"],
        "audio_start_token_id": _SPECIAL["<|audio_start|>"],
        "audio_end_token_id": _SPECIAL["<|audio_end|>"],
        "audio_user_slot_token_id": _SPECIAL["<|audio_user_slot|>"],
        "audio_assistant_slot_token_id": _SLOT,
    }


def _layers() -> dict:
    return {
        "vocab_size": _VOCABULARY,
        "hidden_size": _HIDDEN,
        "intermediate_size": _INNER,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": 1,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": _BASE},
        "max_position_embeddings": 40960,
        "attention_bias": False,
        "tie_word_embeddings": False,
    }


def _chosen(folder: Path) -> tuple[_Talker, dict]:
    """A talker whose answers begin differently and that no rounding turns; what it says."""
    import torch
    import transformers

    processor = transformers.AutoProcessor.from_pretrained(folder, trust_remote_code=True)
    with wave.open(io.BytesIO(base64.b64decode(_voice()))) as file:
        samples = torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16)
    voice = processor.encode_audios_from_wav([samples[None].float() / 32768], _VOICE_RATE, _GROUPS)
    prompts, frames = {}, {}
    for probe in scenario(_NAME).probes:
        for index, prompt in enumerate(probe.prompts):
            text = parts.text(prompt)
            message = processor.build_user_message(text, reference=voice)
            prompts[text] = processor([[message]], "generation")["input_ids"][0]
            frames[text] = _FRAMES[index % len(_FRAMES)]
    words = torch.randn((_VOCABULARY, _HIDDEN), generator=torch.Generator().manual_seed(0))
    words = (words * _HIDDEN**-0.5).to(torch.bfloat16)
    for seed in range(_SEEDS):
        talker = _Talker(words, seed)
        said = {text: talker.say(rows, frames[text]) for text, rows in prompts.items()}
        if None not in said.values() and len({int(codes[0, 0]) for codes in said.values()}) == len(said):
            return talker, said
    raise RuntimeError(f"in {_SEEDS} draws answers began alike, or a rounding could turn a choice")


class _Talker:
    """Transformers' Qwen3 and the layer that makes a frame, in bfloat16 as the stage computes."""

    def __init__(self, words, seed: int) -> None:
        import torch
        import transformers

        without = transformers.Qwen3Config(**_layers() | {"vocab_size": 1})
        self.words = words
        self.backbone = parts.seeded(transformers.Qwen3Model(without), seed)
        self.frame = parts.seeded(_frame_layer(), seed + 1)
        random = torch.Generator().manual_seed(seed + 2)
        heads = torch.randn((_GROUPS, _CHOICES, _HIDDEN), generator=random)
        heads -= heads.mean(-1, keepdim=True)  # blind to what never ends an answer
        self.heads = heads / heads.norm(dim=-1, keepdim=True)
        codes = torch.randn((_GROUPS, _CODES, _HIDDEN), generator=random)
        for group, chosen in enumerate(_IDS[:-1]):
            codes[group, chosen] += _NEXT * self.heads[group + 1]
        following = [(5 * choice + 3) % _CHOICES for choice in range(_CHOICES)]  # sooner or later all
        codes[-1, _IDS[-1]] += _NEXT_FRAME * self.heads[0, following]
        codes *= _QUIET
        with torch.no_grad():
            for layer in self.backbone.layers:
                layer.self_attn.o_proj.weight.mul_(_HEARD)
            self.frame["attn_c_proj"].weight.mul_(_QUIET)
            self.frame["mlp_fc_out"].weight.mul_(_QUIET)
            self.frame["ln_f"].weight.fill_(1)
            self.frame["ln_f"].bias.fill_(_ENDLESS)
        self.codes = codes.to(torch.bfloat16)
        self.backbone = self.backbone.to(torch.bfloat16).eval()
        self.frame = self.frame.to(torch.bfloat16).eval()

    def say(self, prompt, frames: int):
        """The codes of an answer to rows of a word and its codes; None where a rounding could turn one."""
        import torch
        import transformers

        heard = self._embedded(prompt[:, 1:].clamp_max(_CODES - 1)) * (prompt[:, 1:2] != _CODES)
        given, cache, said = self.words[prompt[:, 0]] + heard, transformers.DynamicCache(), []
        with torch.no_grad():
            while len(said) < frames:
                found = self.backbone(inputs_embeds=given[None], past_key_values=cache, use_cache=True)
                codes = self._frame(found.last_hidden_state[0, -1])
                if codes is None:
                    return None
                said.append(codes)
                given = self.words[_SLOT] + self._embedded(codes[None])
        return torch.stack(said)

    def _embedded(self, codes):
        """What the talker takes of each row of codes."""
        import torch

        return self.codes[torch.arange(_GROUPS), codes].sum(-2)

    def _frame(self, hidden):
        import torch

        given, frame = hidden[None], []
        for group in range(_GROUPS):
            near = self.heads[group] @ _last(self.frame, given).float()
            first, second = near.topk(2).values
            if first - second < _SURE:
                return None
            frame.append(_IDS[group][int(near.argmax())])
            given = torch.cat([given, self.codes[group, frame[-1]][None]])
        return torch.tensor(frame)

    def weights(self) -> dict:
        """All weights by the names of the model's own files."""
        import torch

        found = {f"transformer.{name}": value for name, value in self.backbone.named_parameters()}
        found["transformer.embed_tokens.weight"] = self.words
        found["text_lm_head.weight"] = torch.zeros_like(self.words)  # nobody asks it
        goes_on = torch.ones(_HIDDEN) * _CERTAIN
        found["local_text_lm_head.weight"] = torch.stack([goes_on, -goes_on])
        for name, value in self.frame.named_parameters():
            place = name.replace("attn_", "attn.").replace("mlp_", "mlp.")
            found[f"local_transformer.{place if place.startswith('ln_f') else f'h.0.{place}'}"] = value
        for group, (head, codes) in enumerate(zip(self.heads, self.codes, strict=True)):
            chooses = torch.zeros((_CODES, _HIDDEN))
            chooses[_IDS[group]] = head * _CERTAIN
            found[f"audio_lm_heads.{group}.weight"] = chooses
            found[f"audio_embeddings.{group}.weight"] = codes
        return {name: value.detach().to(torch.bfloat16).contiguous() for name, value in found.items()}


def _frame_layer():
    """The one layer that chooses a frame's codes one after another."""
    from torch import nn

    return nn.ModuleDict(
        {
            "ln_1": nn.LayerNorm(_HIDDEN),
            "attn_c_attn": nn.Linear(_HIDDEN, 3 * _HIDDEN),
            "attn_c_proj": nn.Linear(_HIDDEN, _HIDDEN),
            "ln_2": nn.LayerNorm(_HIDDEN),
            "mlp_fc_in": nn.Linear(_HIDDEN, _INNER),
            "mlp_fc_out": nn.Linear(_INNER, _HIDDEN),
            "ln_f": nn.LayerNorm(_HIDDEN),
        }
    )


def _last(layer, given):
    """What the layer makes of the last of the states ``given``, of which each sees those before it."""
    from torch.nn import functional

    states = layer["attn_c_attn"](layer["ln_1"](given)).view(len(given), 3, _HEADS, -1)
    query, key, value = states.unbind(1)
    seen = [one.transpose(0, 1)[None] for one in (_turned(query), _turned(key), value)]
    found = functional.scaled_dot_product_attention(*seen, is_causal=True)[0].transpose(0, 1)
    given = given + layer["attn_c_proj"](found.reshape(len(given), _HIDDEN))
    inner = functional.silu(layer["mlp_fc_in"](layer["ln_2"](given)))
    return layer["ln_f"](given + layer["mlp_fc_out"](inner))[-1]


def _turned(states):
    """Neighbours as complex numbers, turned by the place of each state: (states, heads, size)."""
    import torch

    pairs = torch.view_as_complex(states.float().unflatten(-1, (-1, 2)).contiguous())
    slow = _BASE ** (-torch.arange(pairs.shape[-1]) / pairs.shape[-1])
    angles = torch.outer(torch.arange(len(states)), slow)[:, None]
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles))
    return turned.flatten(-2).to(states.dtype)


_ONCE = {
    "module_type": "Transformer",
    "num_heads": 2,
    "num_layers": 1,
    "causal": True,
    "norm": "layer_norm",
    "positional_embedding": "rope",
    "max_period": 10000,
    "gating": "none",
    "layer_scale": 0.01,
    "conv_layout": True,
}
_SMALL = _ONCE | {"d_model": 32, "dim_feedforward": 64}
_CONTEXT = 4.0  # seconds that a layer of the codec looks back


def _codec(folder: Path, said: Mapping) -> dict:
    """The release's codec written to ``folder``, and the sound that it makes of each answer at once."""
    import torch
    from safetensors.torch import save_file
    from vllm_omni.model_executor.models.moss_tts import audio_tokenizer_v2 as omni

    def patched(size: int) -> dict:
        return {"module_type": "PatchedPretransform", "patch_size": size}

    config = omni.MossAudioTokenizerConfig(
        sampling_rate=_RATE,
        downsample_rate=3840,
        number_channels=2,
        causal_transformer_context_duration=_CONTEXT,
        encoder_kwargs=[patched(7680), _SMALL | {"input_dimension": 7680, "output_dimension": 32}],
        decoder_kwargs=[
            _ONCE | {"input_dimension": 32, "output_dimension": 64, "d_model": 64, "dim_feedforward": 128},
            patched(4),
            _SMALL | {"input_dimension": 16, "output_dimension": 64},
            patched(8),
            _SMALL | {"input_dimension": 8, "output_dimension": 240},
            patched(240),
        ],
        quantizer_kwargs={
            "input_dim": 32,
            "rvq_dim": 16,
            "output_dim": 32,
            "num_quantizers": _GROUPS,
            "codebook_size": _CODES,
            "codebook_dim": 8,
            "quantizer_type": "rlfq",
        },
    )
    codec = parts.seeded(omni.MossAudioTokenizerModel(config), 3).eval()
    with torch.no_grad():
        for name, value in codec.named_parameters():
            if ".layer_scale_" in name:
                value.fill_(1)  # so small a layer would hardly be heard
        sounds = {one: _whole(codec, codes) for one, codes in said.items()}
        louder = _LOUD / max(float(sound.abs().max()) for sound in sounds.values())
        codec.decoder[-2].output_proj.weight.mul_(louder)
        sounds = {one: _whole(codec, codes) for one, codes in said.items()}
    folder.mkdir()
    write_json(folder / "config.json", json.loads(config.to_json_string()))
    kept = {_written(name): value.detach().contiguous() for name, value in codec.named_parameters()}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return sounds


def _whole(codec, codes):
    """The sound of all codes of an answer (frames, groups): left and right of each sample in turn."""
    return codec.batch_decode([codes.T]).audio[0].T.flatten()


def _written(name: str) -> str:
    """How a codec's file calls a weight."""
    for ours, theirs in {
        ".self_attn.in_projs.0.": ".self_attn.in_proj.",
        ".self_attn.out_projs.0.": ".self_attn.out_proj.",
        ".linear1.": ".ffn.0.",
        ".linear2.": ".ffn.2.",
    }.items():
        name = name.replace(ours, theirs)
    return name


def _voice() -> str:
    """The reference voice, as a file in base64: longer than a second, as it has to be."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, _VOICE_RATE, 0, "NONE", ""))
        samples = (parts.tone() * 32768).astype("<i2").tobytes()
        file.writeframes(5 * samples)
    return base64.b64encode(out.getvalue()).decode()


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """What is said of a text, as samples from -1 to 1; a streamed answer is raw, the other a WAV file."""
    tokens = _FRAMES[index % len(_FRAMES)] + 1  # the first comes with the prompt and makes no frame
    asked = {"ref_audio": f"data:audio/wav;base64,{_voice()}", "max_new_tokens": tokens}
    return parts.speak(running, prompt, asked, more)
