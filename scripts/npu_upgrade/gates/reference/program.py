"""Run by an interpreter that has Transformers: what a checkpoint answers, and how much its dtype blurs that.

Reads one JSON object on stdin (``folder``, ``prompts``, ``tokens``, ``top``, ``half``, ``trust``) and prints
one on the stream that stdout was. Nothing of this project is imported here, and nothing needs a device.
"""

import base64
import contextlib
import importlib
import io
import json
import os
import sys

OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the libraries print is not for the reader of the answers
os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    CUDA_VISIBLE_DEVICES="",
    TORCH_DEVICE_BACKEND_AUTOLOAD="0",  # torch_npu would start a driver
    TOKENIZERS_PARALLELISM="false",
)


def main():
    """Greedy tokens and log-probabilities in float32, then what the half dtype makes of the same tokens."""
    asked = json.load(sys.stdin)
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    options = {"local_files_only": True, "trust_remote_code": asked["trust"]}
    config = transformers.AutoConfig.from_pretrained(asked["folder"], **options)
    architecture = (config.architectures or [""])[0]
    kind, code = getattr(transformers, architecture, None), "Transformers"
    if kind is None and asked["trust"]:
        kind, code = transformers.AutoModelForCausalLM, "the checkpoint's own code"
    if kind is None:
        raise SystemExit(f"Transformers {transformers.__version__} has no {architecture or 'architecture'}")
    if not getattr(kind, "can_generate", bool)():
        raise SystemExit(f"{architecture} generates no tokens")
    inputs, without = encode(transformers, asked, options)
    found = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "architecture": architecture,
        "code": code,
        "half": asked["half"],
        "without": without,
        "prompts": [],
    }
    with torch.inference_mode():
        model = load(torch, kind, asked, "float32", options)
        skipped = pictures_of(config)
        for prompt, given in zip(asked["prompts"], inputs, strict=True):
            try:
                scores = given and answered(torch, model, given, asked["tokens"], prompt)
            except Exception as error:  # a prompt that is too long, or a class that takes no text alone
                scores = without.setdefault(prompt["kind"], explained(error)) and None
            if scores is None:
                continue
            targets = prompt["made"]["ids"][1:] + prompt["made"]["tokens"]
            prompt["made"]["rows"] = [
                [] if target in skipped else row(score, target, asked["top"])
                for score, target in zip(scores, targets, strict=True)
            ]
            found["prompts"].append(prompt["made"])
            found["vocabulary"] = scores.shape[-1]
        del model
        model = load(torch, kind, asked, asked["half"], options)
        for prompt in asked["prompts"]:
            if "made" in prompt:
                prompt["made"]["noise"] = noise(likelihoods(model, prompt["given"]), prompt["made"]["rows"])
    print(json.dumps(found), file=OUT, flush=True)


def answered(torch, model, given, count, prompt):
    """The log-probabilities along a prompt and its greedy continuation, which is left in ``prompt``."""
    ids = given["input_ids"][0].tolist()
    for _ in range(count):
        given = longer(torch, given, int(model(**given, use_cache=False).logits[0, -1].argmax()))
    tokens = given["input_ids"][0, len(ids) :].tolist()
    scores = likelihoods(model, given)
    kept = {key: prompt[key] for key in ("name", "kind", "seed") if key in prompt}
    prompt["made"] = kept | {"ids": ids, "tokens": tokens}
    prompt["given"] = given
    return scores


def explained(error):
    """An exception in a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def load(torch, kind, asked, dtype, options):
    """The model of a dtype, in evaluation mode."""
    given = options | {"dtype": getattr(torch, dtype)}
    model, told = kind.from_pretrained(asked["folder"], output_loading_info=True, **given)
    if missing := sorted(told["missing_keys"]):
        raise SystemExit(f"the checkpoint lacks {len(missing)} weights, for instance {missing[0]}")
    return model.eval()


def encode(transformers, asked, options):
    """For each prompt what the model takes, None where it cannot be made; and kind -> why it cannot."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked["folder"], **options)
    found, without, processor = [], {}, None
    for prompt in asked["prompts"]:
        given = None
        if prompt["kind"] == "text":
            given = {"input_ids": tokenizer(prompt["text"], return_tensors="pt")["input_ids"]}
        elif prompt["kind"] not in without:
            try:
                if processor is None:
                    processor = transformers.AutoProcessor.from_pretrained(asked["folder"], **options)
                given = picture(processor, prompt)
            except Exception as error:
                without[prompt["kind"]] = explained(error)
        found.append(given)
    return found, without


def picture(processor, prompt):
    """A picture and a question as a chat, in the way of the model's own processor and template."""
    image = importlib.import_module("PIL.Image").open(io.BytesIO(base64.b64decode(prompt["image"])))
    parts = [{"type": "image"}, {"type": "text", "text": prompt["text"]}]
    ways = ((processor, parts), (processor.tokenizer, parts), (processor.tokenizer, prompt["text"]))
    found = (rendered(templates, content, prompt["text"]) for templates, content in ways)
    text = next(filter(None, found), prompt["text"])
    options = {"return_tensors": "pt", "add_special_tokens": False}
    return dict(processor(images=[image.convert("RGB")], text=[text], **options))


def rendered(templates, content, question):
    """A chat by a template that takes such content; empty when there is none, or it does not take it."""
    with contextlib.suppress(Exception):
        said = [{"role": "user", "content": content}]
        text = templates.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
        return text if question in text and "'type'" not in text else ""
    return ""


def pictures_of(config):
    """The ids of tokens that stand for a picture: nobody predicts them."""
    names = ("image_token_id", "image_token_index", "video_token_id", "boi_token_id", "eoi_token_id")
    return {getattr(config, name) for name in names if isinstance(getattr(config, name, None), int)}


def longer(torch, given, token):
    """The same inputs with one token more: what belongs to each token grows with them."""
    length, found = given["input_ids"].shape[1], dict(given)
    for name, value in given.items():
        if getattr(value, "shape", None) == (1, length):
            more = {"input_ids": token, "attention_mask": 1}.get(name, 0)
            found[name] = torch.nn.functional.pad(value, (0, 1), value=more)
    return found


def likelihoods(model, given):
    """Log-probabilities of every token at each position after the first: (positions - 1, vocabulary)."""
    wide = model.dtype
    given = {name: value.to(wide) if value.is_floating_point() else value for name, value in given.items()}
    return model(**given, use_cache=False).logits[0, :-1].float().log_softmax(-1)


def row(scores, target, top):
    """The token that follows and the likeliest ones, each with its log-probability."""
    values, ids = scores.topk(top)
    found = {target: scores[target]} | dict(zip(ids.tolist(), values, strict=True))
    return [[one, round(float(value), 5)] for one, value in found.items()]


def noise(scores, rows):
    """The largest difference of each row from the same row of ``scores``; 0 for an empty one."""
    return [
        round(max((abs(float(score[one]) - value) for one, value in row), default=0.0), 5)
        for score, row in zip(scores, rows, strict=True)
    ]


if __name__ == "__main__":
    main()
