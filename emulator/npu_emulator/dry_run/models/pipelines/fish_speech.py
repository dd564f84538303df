"""Fish Speech S2: a talker makes frames of codes, a codec turns them into sound while it talks.

The sound is held against what the release's own codec makes on the CPU of the codes that transformers has:
Qwen3 for the talker, Llama for the predictor of a frame's further codes. The predictor always samples, so its
weights leave two codes, of which each time one has all the probability. The codec's sizes are the release's:
its weights are overlapping views of little data, and its file is small.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Mapping
from pathlib import Path

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

ARCHITECTURE = "FishSpeechSlowARForConditionalGeneration"
OPTIONS = ()
DEPLOY = "fish_qwen3_omni.yaml"
NEEDED = "model_executor/models/fish_speech/dac_modules"  # before, the codec was another package's
WORKERS = ("ar", "generation")
WITHOUT_NPU = True  # transformers would take its kernels
_TOKENS = 8  # of an answer; the last one's further codes are never asked for
_VOCABULARY, _HIDDEN, _CODES, _GROUPS, _BASE = 155776, 64, 4096, 10, 1000000
_CODE, _CERTAIN, _AWAY = 100, 1e5, 0.5
_NEAR = 20.0  # a code's margin in units of a token's
_SPECIAL = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|voice|>": 151673,
    "<|audio_start|>": 151675,
    "<|audio_end|>": 151676,
    "<|audio_pad|>": 151677,
}
_FIRST = 151678  # the token of code 0
_WORDS = slice(_FIRST + 1000, _FIRST + 1016)
_SHIFT, _LONGEST = (5, 17, 1), 100_000  # a view's strides, and how many weights are no view


def reduce(deploy: dict) -> None:
    """Make a deploy file greedy, and smaller where its limits only size the profiling."""
    parts.reduce(deploy, (512, 2048), (0.5, 0.4))
    for stage in parts.stages(deploy):
        if "default_sampling_params" in stage:
            stage["default_sampling_params"]["temperature"] = 0.0


def make(folder: Path) -> None:
    """Write the checkpoint and the sound of each answer."""
    import torch
    from safetensors.torch import save_file

    _let_import_alone()
    kept, chat = {"tokenizer_class": "PreTrainedTokenizerFast"}, "{{ messages[0]['content'] }}"
    parts.whole_tokenizer(folder, _VOCABULARY, parts.QWEN_ROLES, _SPECIAL, kept, chat)
    codec = _codec(folder / "codec.pth")
    talker = _Talker()
    spoken: dict[tuple, dict] = {}

    def answer(text: str, _: int, __: Mapping) -> dict:
        drawn = text, float(talker.head.weight[_WORDS].sum())  # requests of one text are alike
        if drawn not in spoken:
            spoken[drawn] = talker.say(folder, text)
        spoken[text,] = spoken[drawn]
        return {name: one.clone() for name, one in spoken[drawn].items() if name != "codes"}

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many small steps
    parts.choose_words(folder, "fish-speech", talker.head, answer, words=_WORDS)
    torch.set_num_threads(threads)
    save_file(talker.weights(), folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", _config())

    def sound(text: str, _: int, __: Mapping) -> dict:
        codes = spoken[text,]["codes"].T[None].contiguous()
        with torch.no_grad():
            samples, _ = codec.decode(codes, torch.tensor([codes.shape[-1]]))
        return {"answer": samples.flatten()}

    parts.expect(folder, "fish-speech", sound)


def _let_import_alone() -> None:
    """Let the codec's modules be imported without vllm-omni's own start, which looks for its platform."""
    (place,) = importlib.util.find_spec("vllm_omni").submodule_search_locations
    for name in ("vllm_omni", "vllm_omni.model_executor", "vllm_omni.model_executor.models"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(place, *name.split(".")[1:]))]
        sys.modules.setdefault(name, package)


def _layers() -> dict:
    return {
        "hidden_size": _HIDDEN,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": _BASE},
    }


def _config() -> dict:
    """The configuration in the model's own words."""
    layers = _layers()
    sizes = {
        "dim": _HIDDEN,
        "n_head": layers["num_attention_heads"],
        "n_local_heads": layers["num_key_value_heads"],
        "head_dim": layers["head_dim"],
        "n_layer": layers["num_hidden_layers"],
        "intermediate_size": layers["intermediate_size"],
        "rope_base": _BASE,
        "num_codebooks": _GROUPS,
    }
    talker = {"vocab_size": _VOCABULARY, "codebook_size": _CODES, "tie_word_embeddings": False}
    predictor = {"vocab_size": _CODES, "text_dim": _HIDDEN, "max_seq_len": _GROUPS + 1}
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "fish_qwen3_omni",
        "dtype": "bfloat16",
        "text_config": sizes | talker | {"model_type": "fish_qwen3", "max_seq_len": 32768},
        "audio_decoder_config": sizes | predictor | {"model_type": "fish_qwen3_audio_decoder"},
        "semantic_start_token_id": _FIRST,
        "semantic_end_token_id": _FIRST + _CODES - 1,
        "audio_pad_token_id": _SPECIAL["<|audio_pad|>"],
        "eos_token_id": _SPECIAL["<|im_end|>"],
    }


class _Talker:
    """The talker and its predictor, in transformers' classes and in bfloat16 as the stage computes."""

    def __init__(self) -> None:
        import torch
        import transformers

        alike = _layers() | {"max_position_embeddings": 32768, "attention_bias": False}
        qwen = transformers.Qwen3Config(vocab_size=_VOCABULARY, tie_word_embeddings=False, **alike)
        llama = transformers.LlamaConfig(vocab_size=_CODES, tie_word_embeddings=False, **alike)
        talker = parts.seeded(transformers.Qwen3ForCausalLM(qwen), 0)
        predictor = parts.seeded(transformers.LlamaForCausalLM(llama), 1)
        with torch.no_grad():
            chosen = predictor.lm_head.weight[_CODE].clone()
            predictor.lm_head.weight.zero_()
            predictor.lm_head.weight[_CODE] = chosen * _CERTAIN
            predictor.lm_head.weight[2 * _CODE] = -chosen * _CERTAIN
            words = predictor.get_input_embeddings().weight  # each code leads to the other: both are heard
            words[_CODE] -= _AWAY * chosen
            words[2 * _CODE] += _AWAY * chosen
        self.talker = talker.to(torch.bfloat16).eval()
        self.predictor = predictor.to(torch.bfloat16).eval()
        random = torch.Generator().manual_seed(2)
        codes = torch.randn((_GROUPS * _CODES, _HIDDEN), generator=random) * _HIDDEN**-0.5
        self.codes = codes.to(torch.bfloat16)
        self.head = self.talker.lm_head

    def say(self, folder: Path, text: str) -> dict:
        """The tokens and their logits, how sure each further code is, and the codes of each frame."""
        import torch
        import transformers
        from vllm_omni.model_executor.models.fish_speech.prompt_utils import build_fish_text_only_prompt_ids

        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        prompt, _ = build_fish_text_only_prompt_ids(tokenizer, text)
        embed = self.talker.get_input_embeddings()
        groups = torch.arange(_GROUPS) * _CODES
        tokens, logits, frames, sure = [], [], [], []
        with torch.no_grad():
            given = embed(torch.tensor(prompt))
            while len(tokens) < _TOKENS:
                hidden = self.talker.model(inputs_embeds=given[None]).last_hidden_state[0, -1]
                near = self.head.weight[_WORDS] @ hidden
                logits.append(torch.cat([near, near.new_zeros(1)]))  # all other words
                tokens.append(_WORDS.start + int(near.argmax()))
                frame, margins = self._frame(hidden, tokens[-1] - _FIRST)
                frames.append(frame)
                sure += margins
                seen = embed(torch.tensor(tokens[-1])) + self.codes[frame + groups].sum(0)
                given = torch.cat([given, seen[None] / (_GROUPS + 1) ** 0.5])
        last = _GROUPS - 1  # of the last token
        return {
            "tokens": torch.tensor(tokens),
            "logits": torch.stack(logits),
            "margins": torch.tensor(sure[:-last]),
            "codes": torch.stack(frames[:-1]),
        }

    def _frame(self, hidden, code: int):
        """The codes of a frame that begins with ``code``, and how sure each further one is."""
        import torch

        embed = self.predictor.get_input_embeddings()
        given, frame, margins = torch.stack([hidden, embed(torch.tensor(code))]), [code], []
        while len(frame) < _GROUPS:
            hidden = self.predictor.model(inputs_embeds=given[None]).last_hidden_state[0, -1]
            near = float(self.predictor.lm_head.weight[_CODE] @ hidden) / _CERTAIN
            frame.append(_CODE if near > 0 else 2 * _CODE)
            margins.append(abs(near) * _NEAR)
            given = torch.cat([given, embed(torch.tensor(frame[-1:]))])
        return torch.tensor(frame), margins

    def weights(self) -> dict:
        """All weights by the names of the model's own files."""
        found = {
            **_renamed(self.talker.model, "text_model.model."),
            **_renamed(self.predictor.model, "audio_decoder."),
            "lm_head.weight": self.head.weight,
            "audio_decoder.output.weight": self.predictor.lm_head.weight,
            "audio_decoder.codebook_embeddings.weight": self.codes,
        }
        return {name: value.detach().clone().contiguous() for name, value in found.items()}


_NAMES = {
    "embed_tokens": "embeddings",
    "self_attn.o_proj": "attention.wo",
    "self_attn.q_norm": "attention.q_norm",
    "self_attn.k_norm": "attention.k_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


def _renamed(model, begin: str) -> dict:
    """The weights of a model of transformers in this one's form: its rotary pairs are neighbours."""
    import torch

    found, tensors = {}, dict(model.named_parameters())
    for name, value in tensors.items():
        place = name.removesuffix(".weight")
        if place.endswith("q_proj"):
            whole = [_neighbours(value), _neighbours(tensors[name.replace("q_proj", "k_proj")])]
            whole.append(tensors[name.replace("q_proj", "v_proj")])
            found[begin + place.replace("self_attn.q_proj", "attention.wqkv.weight")] = torch.cat(whole)
        elif not place.endswith(("k_proj", "v_proj")):
            value = _neighbours(value) if place.endswith(("q_norm", "k_norm")) else value
            for old, new in _NAMES.items():
                place = place.replace(old, new)
            found[f"{begin}{place}.weight"] = value
    return found


def _neighbours(value):
    """Rows of heads whose pairs are half a head apart, as rows whose pairs are neighbours."""
    head = _layers()["head_dim"]
    rows = value.reshape(-1, 2, head // 2, *value.shape[1:])
    return rows.transpose(1, 2).reshape(value.shape)


def _codec(path: Path):
    """The release's codec with weights that are views of little data, written to ``path``."""
    import torch
    from vllm_omni.model_executor.models.fish_speech.dac_utils import build_dac_codec

    random = torch.Generator().manual_seed(3)
    codec, drawn, tensors = build_dac_codec(), {}, {}
    for name, value in sorted(codec.named_parameters()):
        if value.dim() < 2 or (1 in value.shape[1:] and value.numel() < _LONGEST):
            tensors[name] = value.detach().clone()
        elif value.numel() < _LONGEST:
            tensors[name] = torch.randn(value.shape, generator=random)
        else:
            strides = _SHIFT[: value.dim()]
            size = 1 + sum((length - 1) * stride for length, stride in zip(value.shape, strides, strict=True))
            inputs = value[0].numel()
            if size > len(drawn.get(inputs, ())):
                drawn[inputs] = torch.randn(size, generator=random) * inputs**-0.5
            tensors[name] = drawn[inputs].as_strided(value.shape, strides)
    torch.save(tensors, path)
    codec.load_state_dict(tensors, strict=False)
    return codec.eval()


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """What is said of a text, as samples from -1 to 1; a streamed answer is raw, the other a WAV file."""
    return parts.speak(running, prompt, {"max_new_tokens": _TOKENS}, more)
