"""HunyuanImage3's AR stage: it thinks, words a picture's description anew and chooses the picture's shape.

The model samples for itself: after </think>, </recaption>, a size and a shape it forces what comes next, and
a question's answer may have no words of pictures. A release that is not told by a request what is asked
answers all as this stage is deployed, for a picture. Tokens and log-probabilities are held against
transformers' HunYuanMoEV1 with these rules, on the CPU in bfloat16. What sees pictures is there, and nothing
asks it. The class of the configuration is ours, as remote code.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from npu_emulator.dry_run import engine, server
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

ARCHITECTURE = "HunyuanImage3ForCausalMM"
OPTIONS = ("--trust-remote-code",)
DEPLOY = "hunyuan_image3_ar.yaml"
WORKERS = ("ar",)
WITHOUT_NPU = False  # vllm-omni's classes need its platform
_MODE = "ar_task_mode"  # of a request, in releases that read it
_TOKENS, _WORDS = 16, 5  # of an answer, at most: for a picture, to a question
_VOCABULARY, _SIZE, _HEAD, _LAYERS, _EXPERTS = 130112, 64, 128, 2, 4
_HEADS, _GROUPS, _INNER, _SIGHT = 4, 2, 64, 32
_HEARD, _KNOWN, _FOLLOWS = 2.0, 16.0, 3.0
# ids that the code of vllm-omni holds; those of <timestep> and <joint_img_sep> are ours
_SPECIAL = {
    "<|endoftext|>": 127957,
    "<|startoftext|>": 127958,
    "<boi>": 128000,
    "<eoi>": 128001,
    "<img>": 128006,
    "<cfg>": 128010,
    "<timestep>": 128017,
    "<recaption>": 128018,
    "</recaption>": 128019,
    "<think>": 128023,
    "</think>": 128024,
    "<answer>": 128025,
    "</answer>": 128026,
    "<joint_img_sep>": 128028,
    "<img_size_1024>": 128037,
}
_SHAPES = {f"<img_ratio_{at}>": (128044 if at < 33 else 130103 - 33) + at for at in range(37)}
_NUMBER = _SPECIAL | _SHAPES
_CHAT = "<|startoftext|>{% for m in messages %}User: {{ m['content'] }}\n\n{% endfor %}Assistant: <think>"
_FORCED = (  # in an answer that becomes a picture
    ("</think>", "<recaption>"),
    ("</recaption>", "<answer>", "<boi>", "<img_size_1024>"),
)
_OF_PICTURES = ("<boi>", "<eoi>", "<img_size_1024>", "<cfg>", "<img>", "<timestep>", "<joint_img_sep>")
_OTHERS = {"embed_tokens.weight": "wte.weight", "norm.weight": "ln_f.weight"}  # names in the checkpoint
_REMOTE = '''"""Minimal remote code: the fields are those of the language model, the rest is kept as it is."""
from transformers import HunYuanMoEV1Config


class HunyuanImage3Config(HunYuanMoEV1Config):
    model_type = "hunyuan_image_3_moe"
'''


def reduce(deploy: dict) -> None:
    """Put the stage on one device, and make smaller what only sizes the profiling."""
    parts.reduce(deploy, (512,), (0.75,))


def make(folder: Path) -> None:
    """Write the checkpoint, its language model transformers', and the answers."""
    import torch
    from safetensors.torch import save_file

    kept = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|startoftext|>",
        "eos_token": "<|endoftext|>",
    }
    parts.whole_tokenizer(folder, _VOCABULARY, {}, _NUMBER, kept, _CHAT)
    (folder / "remote.py").write_text(_REMOTE, encoding="utf-8")
    config = _config()
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"eos_token_id": _SPECIAL["<|endoftext|>"]})
    model = _language_model(config)
    _choose_words(folder, model)
    weights = {name: value.to(torch.bfloat16) for name, value in _sight(config).items()} | _renamed(model)
    save_file(
        {name: value.detach().contiguous() for name, value in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def _config() -> dict:
    return {
        "architectures": [ARCHITECTURE],
        "auto_map": {"AutoConfig": "remote.HunyuanImage3Config"},
        "model_type": "hunyuan_image_3_moe",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "vocab_size": _VOCABULARY,
        "hidden_size": _SIZE,
        "intermediate_size": _INNER,
        "moe_intermediate_size": _INNER,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _GROUPS,
        "head_dim": _HEAD,
        "attention_head_dim": _HEAD,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 22800,
        "tie_word_embeddings": False,
        "use_qk_norm": True,
        "use_cla": False,
        "num_experts": _EXPERTS,
        "moe_topk": [2] * _LAYERS,
        "use_mixed_mlp_moe": True,
        "num_shared_expert": [1] * _LAYERS,
        "bos_token_id": _SPECIAL["<|startoftext|>"],
        "eos_token_id": _SPECIAL["<|endoftext|>"],
        "pad_token_id": _SPECIAL["<|endoftext|>"],
        "image_base_size": 1024,
        "patch_size": 1,
        "patch_embed_hidden_dim": 32,
        "vae_downsample_factor": [16, 16],
        "vae": {
            "in_channels": 3,
            "out_channels": 3,
            "latent_channels": 16,
            "block_out_channels": [32] * 5,
            "layers_per_block": 1,
            "ffactor_spatial": 16,
            "ffactor_temporal": 4,
            "sample_size": 384,
            "sample_tsize": 96,
            "scaling_factor": 0.562679178327931,
        },
        "vit": {
            "hidden_size": _SIGHT,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_channels": 3,
            "num_patches": 256,
            "patch_size": 16,
            "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": 1e-6,
        },
        "vit_aligner": {"projector_type": "mlp_gelu", "input_dim": _SIGHT, "n_embed": _SIZE, "depth": 2},
        "vit_processor": {"patch_size": 16, "max_num_patches": 256},
    }


def _language_model(config: dict):
    import torch
    import transformers

    model = parts.seeded(transformers.HunYuanMoEV1ForCausalLM(transformers.HunYuanMoEV1Config(**config)), 0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("o_proj.weight"):
                value.mul_(_HEARD)
            elif "embed_tokens" in name:
                value.mul_(_KNOWN)
    model = model.to(torch.bfloat16).eval()
    for layer in model.model.layers:
        layer.mlp.gate.float()  # as in the release
    return model


def _choose_words(folder: Path, model) -> None:
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    shapes, end = list(_SHAPES.values()), [_NUMBER["<|endoftext|>"]]
    pictures = torch.tensor([*(_NUMBER[word] for word in _OF_PICTURES), *shapes])
    forced = [[_NUMBER[word] for word in words] for words in _FORCED]

    def only(words, scores):
        row = torch.full_like(scores, -torch.inf)
        row[:, words] = scores[:, words]
        return row

    def answer(text: str, *_) -> dict:
        prompt = tokenizer(_CHAT.split("{%")[0] + f"User: {text}\n\nAssistant: <think>", return_tensors="pt")
        start = prompt["input_ids"].shape[1]

        def ruled(ids, scores):
            if _asks(text):
                return scores.index_fill(1, pictures, -torch.inf)
            before = ids[0, start:].tolist()
            for words in forced:
                for at in range(1, len(words)):
                    if before[-at:] == words[:at]:
                        return only(words[at : at + 1], scores)
            if before and before[-1] == _NUMBER["<img_size_1024>"]:
                return only(shapes, scores)
            return only(end, scores) if before and before[-1] in shapes else scores

        found = model.generate(
            **prompt,
            max_new_tokens=_WORDS if _asks(text) else _TOKENS,
            do_sample=False,
            eos_token_id=None if _asks(text) else end[0],
            logits_processor=[ruled],
            output_logits=True,
            output_scores=True,
            return_dict_in_generate=True,
        )
        said = found.sequences[0, start:]
        scores, raw = torch.cat(found.scores).float(), torch.cat(found.logits).argmax(-1)
        likely = scores.log_softmax(-1).gather(1, said[:, None])[:, 0]
        likely[torch.isin(said, torch.tensor(shapes))] = 0.0  # the model leaves one shape
        if _asks(text):
            shown = torch.isin(raw, pictures).any() and len(said.unique()) > 2
        else:
            shown = said[-1] == end[0] and _NUMBER["</think>"] in said
        if not shown:  # another draw then: this one has no margin
            scores = torch.zeros(1, 2)
        return {"tokens": said, "logits": scores, "logprobs": likely}

    parts.choose_words(folder, "hunyuan-image3", model.lm_head, answer, _steered(model))


def _steered(model) -> dict:
    """Weights of what else is said: </think> and </recaption> after some words, and <cfg> if it may."""
    import torch

    def after(words):
        known = model.model.embed_tokens.weight[list(words)].float()
        return _FOLLOWS * torch.nn.functional.normalize(known, dim=-1).sum(0)

    some = range(parts.WORDS.start, parts.WORDS.stop)
    random = torch.Generator().manual_seed(0)
    found = {_NUMBER[word]: 0.3 * torch.randn(_SIZE, generator=random) for word in _SHAPES}
    found[_NUMBER["<cfg>"]] = 1.5 * after([_NUMBER["</think>"]])
    found[_NUMBER["</think>"]] = after(some[::2])
    found[_NUMBER["</recaption>"]] = after([*some[1::2], _NUMBER["<recaption>"]])
    return found


def _asks(text: str) -> bool:
    """Whether the text is answered as a question, not as a description of a picture."""
    return text.endswith("?") and _told_by_requests()


@cache
def _told_by_requests() -> bool:
    """Whether the release's model reads from a request what is asked."""
    (package,) = importlib.util.find_spec("vllm_omni").submodule_search_locations
    code = Path(package, "model_executor/models/hunyuan_image3/hunyuan_image3.py")
    return _MODE in code.read_text(encoding="utf-8")


def _renamed(model) -> dict:
    """The language model's weights as the release reads them: joined, and each expert's by themselves."""
    import torch

    found = {"lm_head.weight": model.lm_head.weight}
    for name, value in model.model.state_dict().items():
        name = "model." + _OTHERS.get(name, name)
        if name.endswith("q_proj.weight"):
            layer = model.get_submodule(name.removesuffix(".q_proj.weight"))
            rows = [
                one.weight.reshape(_GROUPS, -1, _SIZE) for one in (layer.q_proj, layer.k_proj, layer.v_proj)
            ]
            found[name.replace("q_proj", "qkv_proj")] = torch.cat(rows, 1).reshape(-1, _SIZE)
        elif name.endswith(".gate_proj.weight"):
            up = model.get_parameter(name.replace("gate_proj", "up_proj"))
            found[name.replace("gate_proj", "gate_and_up_proj")] = torch.cat([up, value])
        elif name.endswith("experts.gate_up_proj"):
            for at, one in enumerate(value):
                place = name.replace("gate_up_proj", f"{at}.gate_and_up_proj.weight")
                found[place] = torch.cat(one.chunk(2)[::-1])
        elif name.endswith("experts.down_proj"):
            found |= {
                name.replace("down_proj", f"{at}.down_proj.weight"): one for at, one in enumerate(value)
            }
        elif not name.endswith((".k_proj.weight", ".v_proj.weight", ".up_proj.weight")):
            found[name] = value
    return found


def _sight(config: dict) -> dict:
    """What sees pictures."""
    import torch
    import transformers
    from vllm_omni.model_executor.models.hunyuan_image3 import autoencoder_kl_3d, hunyuan_image3, siglip2

    def times():
        made = torch.nn.Module()
        made.mlp = torch.nn.Sequential(
            torch.nn.Linear(256, _SIZE), torch.nn.GELU(), torch.nn.Linear(_SIZE, _SIZE)
        )
        return made

    made = torch.nn.Module()
    made.vae = autoencoder_kl_3d.AutoencoderKLConv3D.from_config(config["vae"])
    made.patch_embed = hunyuan_image3.UNetDown(
        patch_size=config["patch_size"],
        in_channels=config["vae"]["latent_channels"],
        emb_channels=_SIZE,
        hidden_channels=config["patch_embed_hidden_dim"],
        out_channels=_SIZE,
    )
    made.time_embed, made.timestep_emb = times(), times()
    made.vision_model = transformers.Siglip2VisionModel(transformers.Siglip2VisionConfig(**config["vit"]))
    made.vision_aligner = siglip2.LightProjector(config["vit_aligner"])
    found = parts.seeded(made, 1).state_dict()
    return {name.replace("vision_model.vision_model.", "vision_model."): one for name, one in found.items()}


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """The answer's tokens, and the log-probability of each."""
    import torch

    text = parts.text(prompt)
    wanted = {"temperature": 0.0, "logprobs": 1}
    if _asks(text):  # the server marks what asks for no picture
        wanted |= {"max_tokens": _WORDS, "ignore_eos": True}
    else:
        wanted |= {"max_tokens": _TOKENS, "extra_args": {_MODE: "generation"}}
    body = {
        "messages": [{"role": "user", "content": text}],
        "return_token_ids": True,
        "logprobs": True,
        "top_logprobs": 1,
        "sampling_params_list": [wanted],
    }
    (choice,) = server.post(running, "/v1/chat/completions", body)["choices"]
    steps = torch.tensor([step["logprob"] for step in choice["logprobs"]["content"]])
    return engine.Output(choice["token_ids"], [], {"logprobs": [steps]}, choice["finish_reason"] is not None)
