"""Run by an interpreter that has Transformers: what a checkpoint answers, and how much its dtype blurs that.

Reads one JSON object on stdin (``folder``, ``prompts``, ``tokens``, ``top``, ``half``, ``trust``, ``family``)
and prints one on the stream that stdout was. Nothing of this project is imported here, and nothing needs a
device.
"""

import base64
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import sys

OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the libraries print is not for the reader of the answers
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
os.environ.update(TORCH_DEVICE_BACKEND_AUTOLOAD="0")  # torch_npu would start a driver
_PICTURES = ("image_token_id", "image_token_index", "video_token_id")
SCALES = ("_scale_inv", "_scale")
NUMBER = r"(?<=\.)\d+(?=\.|$)"
_STEP = 0.02  # how much larger a scale is made to see what it changes


def main():
    """Greedy tokens and log-probabilities in float32, then what scales and the half dtype change of them."""
    asked = json.load(sys.stdin)
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    options = {"local_files_only": True, "trust_remote_code": asked["trust"]}
    if family := asked["family"]:
        config, architecture = in_family(transformers, asked["folder"], family), family["family"]
    else:
        config = transformers.AutoConfig.from_pretrained(asked["folder"], **options)
        architecture = (config.architectures or [""])[0]
    kind, code = getattr(transformers, architecture, None), "Transformers"
    if kind is None and asked["trust"]:
        kind, code = transformers.AutoModelForCausalLM, "the checkpoint's own code"
    if kind is None:
        raise SystemExit(f"version {transformers.__version__} has no {architecture or 'architecture'}")

    def load(dtype):
        given = options | {"dtype": getattr(torch, dtype), "output_loading_info": True}
        if family:
            state = dict(translated(torch, asked["folder"], family))
            model, told = kind.from_pretrained(None, config=config, state_dict=state, **given)
        else:
            model, told = kind.from_pretrained(asked["folder"], **given)
        if told["missing_keys"]:
            raise SystemExit(f"the checkpoint lacks weights, for instance {sorted(told['missing_keys'])[0]}")
        return model.eval()

    silent = {getattr(config, name, None) for name in _PICTURES}  # nobody predicts them
    found = {"transformers": transformers.__version__, "architecture": architecture, "code": code}
    answered, prompts, without = [], [], {}
    with torch.inference_mode():
        model = load("float32")
        for prompt in asked["prompts"]:
            try:
                given = encode(transformers, asked["folder"], options, prompt)
                length = given["input_ids"].shape[1]
                for _ in range(asked["tokens"]):
                    given = longer(torch, given, int(likelihoods(model, given)[-1].argmax()))
                scores, ids = likelihoods(model, given)[:-1], given["input_ids"][0].tolist()
            except Exception as error:  # no processor, a prompt too long, a class that takes no text alone
                said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                without.setdefault(prompt["kind"], said)
                continue
            rows = [
                [] if target in silent else row(score, target, asked["top"])
                for score, target in zip(scores, ids[1:], strict=True)
            ]
            kept = {name: value for name, value in prompt.items() if name not in ("text", "image")}
            kept |= {"ids": ids[:length], "tokens": ids[length:], "rows": rows, "scaled": {}}
            for name, scale in MOVED.items():
                with contextlib.ExitStack() as undo:
                    scale(undo, model, given["input_ids"], silent)
                    kept["scaled"][name] = moved(likelihoods(model, given)[:-1], rows, _STEP)
            prompts.append(kept)
            found["vocabulary"] = scores.shape[-1]
            answered.append(given)
        del model
        model = load(asked["half"])
        for given, prompt in zip(answered, prompts, strict=True):
            prompt["half"] = moved(likelihoods(model, given)[:-1], prompt["rows"])
    print(json.dumps({**found, "prompts": prompts, "without": without}), file=OUT, flush=True)


def in_family(transformers, folder, family):
    """The configuration under the family's keys."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        given = json.load(stream)
    given.pop("quantization_config", None)
    for ours, theirs in family["keys"].items():
        *parts, last = ours.split(".")
        holder = part(given, parts)
        if last in holder:
            value = holder.pop(last)
            part(given, theirs.split(".")[:-1])[theirs.split(".")[-1]] = value
    for key, value in family["values"].items():
        part(given, key.split(".")[:-1])[key.split(".")[-1]] = value
    known = {key: value for key, value in given.items() if key not in ("model_type", "auto_map")}
    return transformers.AutoConfig.for_model(family["model_type"], **known)


def part(config, names):
    for name in names:
        config = config.setdefault(name, {})
    return config


def translated(torch, folder, family):
    """Every tensor under the family's names, with its scale applied."""
    opened = importlib.import_module("safetensors").safe_open
    files = sorted(one for one in os.listdir(folder) if one.endswith(".safetensors"))
    where = {}
    for file in files:
        with opened(os.path.join(folder, file), "pt") as stream:
            where |= dict.fromkeys(stream.keys(), os.path.join(folder, file))
    scales = {one: next((one + end for end in SCALES if one + end in where), "") for one in where}
    for name, file in where.items():
        numbers = re.findall(NUMBER, name)
        targets = family["weights"].get(re.sub(NUMBER, "*", name), ())
        if not targets:
            continue
        with opened(file, "pt") as stream:
            tensor = stream.get_tensor(name)
        if scales[name]:
            with opened(where[scales[name]], "pt") as stream:
                tensor = scaled(torch, tensor, stream.get_tensor(scales[name]), family["block"])
        pattern = re.sub(NUMBER, "*", name)
        if pattern in family.get("turned", ()):
            tensor = tensor.transpose(-1, -2).contiguous()
        rows = family["rows"].get(pattern)
        parts = tensor.split(rows, dim=max(0, tensor.dim() - 2)) if rows else (tensor,)
        for target, piece in zip(targets, parts, strict=True):
            if target.count("*") > len(numbers):
                each = enumerate(piece)
                yield from ((numbered(target, [*numbers, str(one)]), own.clone()) for one, own in each)
            else:
                yield numbered(target, numbers), piece


def numbered(pattern, numbers):
    given = iter(numbers)
    return re.sub(r"\*", lambda _: next(given), pattern)


def scaled(torch, tensor, scale, block):
    """An fp8 tensor times its scale: of everything, of a row, or of a block of rows and columns."""
    full, scale = tensor.float(), scale.float()
    if scale.numel() == 1:
        return full * scale.reshape(())
    if scale.dim() < full.dim():
        return full * scale[..., None]
    places = []
    for size, there, wanted in zip(block, scale.shape[-2:], full.shape[-2:], strict=True):
        step = size if there < wanted else 1
        places.append((torch.arange(wanted) // step).clamp(max=there - 1))
    return full * scale[..., places[0], :][..., places[1]]


def encode(transformers, folder, options, prompt):
    """What the model takes of a prompt; a picture and a question as a chat, by the model's own processor."""
    if prompt["kind"] == "text":
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
        return {"input_ids": tokenizer(prompt["text"], return_tensors="pt")["input_ids"]}
    processor, text = transformers.AutoProcessor.from_pretrained(folder, **options), prompt["text"]
    image = importlib.import_module("PIL.Image").open(io.BytesIO(base64.b64decode(prompt["image"])))
    parts = [{"type": "image"}, {"type": "text", "text": text}]
    ways = ((processor, parts), (processor.tokenizer, parts), (processor.tokenizer, text))
    chats = filter(None, (rendered(templates, content, text) for templates, content in ways))
    options = {"return_tensors": "pt", "add_special_tokens": False}
    return dict(processor(images=[image.convert("RGB")], text=[next(chats, text)], **options))


def rendered(templates, content, question):
    """A chat by a template that takes such content; empty when there is none, or it does not take it."""
    with contextlib.suppress(Exception):
        said = [{"role": "user", "content": content}]
        text = templates.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
        return text if question in text and "'type'" not in text else ""
    return ""


def longer(torch, given, token):
    """The same inputs with one token more: what belongs to each token grows with them."""
    found, more = dict(given), {"input_ids": token, "attention_mask": 1}
    for name, value in given.items():
        if value.shape == given["input_ids"].shape:
            found[name] = torch.nn.functional.pad(value, (0, 1), value=more.get(name, 0))
    return found


def likelihoods(model, given):
    """The log-probability of every token after each of the inputs: (tokens, vocabulary)."""
    fit = {name: one.to(model.dtype) if one.is_floating_point() else one for name, one in given.items()}
    return speaking(model, fit)(**fit, use_cache=False).logits[0].float().log_softmax(-1)


def speaking(model, given):
    """What answers these inputs: text without a picture, where the model needs one, its language model."""
    asked = inspect.signature(model.forward).parameters.values()
    needed = {one.name for one in asked if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD}
    if needed <= {*given}:
        return model
    inner = (one for one in model.modules() if one is not model and hasattr(one, "get_output_embeddings"))
    return next((one for one in inner if one.get_output_embeddings() is not None), model)


def attention(undo, model, ids, silent):
    """Scores of attention before the softmax."""
    for one in model.modules():
        if isinstance(scale := getattr(one, "scaling", None), float):
            undo.callback(setattr, one, "scaling", scale)
            one.scaling = scale * (1 + _STEP)


def words(undo, model, ids, silent):
    """Embeddings of tokens."""
    embeds = model.get_input_embeddings()
    undo.enter_context(embeds.register_forward_hook(lambda module, got, made: made * (1 + _STEP)))


def pictures(undo, model, ids, silent):
    """What a picture is embedded as, where a module, the language model, first takes embeddings."""
    there, done = sum(ids == (-1 if one is None else one) for one in silent), []

    def larger(module, got, named):
        embedded = named.get("inputs_embeds")
        if not done and embedded is not None and embedded.shape[:2] == ids.shape:
            done.append(module)
            named = named | {"inputs_embeds": embedded * (1 + _STEP * there[..., None])}
        return got, named

    for one in model.modules():
        undo.enter_context(one.register_forward_pre_hook(larger, with_kwargs=True))


MOVED = {"attention": attention, "embeddings": words, "pictures": pictures}


def moved(scores, rows, step=1):
    """By how much each log-probability of ``rows`` is another one in ``scores``, per unit of a step."""
    pairs = zip(scores, rows, strict=True)
    return [[round((float(score[one]) - value) / step, 5) for one, value in row] for score, row in pairs]


def row(scores, target, top):
    """The token that follows and the likeliest ones, each with its log-probability."""
    values, ids = scores.topk(top)
    found = {target: scores[target]} | dict(zip(ids.tolist(), values, strict=True))
    return [[one, round(float(value), 5)] for one, value in found.items()]


if __name__ == "__main__":
    main()
