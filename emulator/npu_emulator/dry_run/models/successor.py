"""A Qwen3 whose weights are set by hand: it answers every token with its successor.

Attention and feed-forward layers add nothing, so that the hidden state is the last token's embedding, and
the row of a token in the output matrix is the embedding of the token before it. The answers are known, they
vary with the prompt, and random weights cannot give them.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from pathlib import Path

from npu_emulator.dry_run.models import dense, files

CONFIG = dense.CONFIG | {"hidden_size": 256}
RING = "".join(chr(code) for code in range(33, 127))  # characters that are tokens of their own name
CYCLES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)


def successors() -> dict[int, int]:
    """Token id -> the id that follows it: a permutation. Letters and digits go round; what is left, too."""
    words = files.vocabulary()
    special = words[: files.FIRST_MORE - 256]
    rest = [word for word in words if word not in special and word not in "".join(CYCLES)]
    found = {words.index(one): words.index(one) for one in special}
    for cycle in (*CYCLES, rest):
        found |= {
            words.index(one): words.index(other)
            for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        }
    return found | {one: one for one in range(len(words), files.VOCABULARY)}


def answer(prompt: str, count: int) -> str:
    """The ``count`` characters the model answers a prompt with that ends in a letter or a digit."""
    cycle = next(one for one in CYCLES if prompt[-1] in one)
    at = cycle.index(prompt[-1])
    return "".join(cycle[(at + step) % len(cycle)] for step in range(1, count + 1))


def make(folder: Path) -> None:
    """Write config, weights, tokenizer, and ``gate.yaml``: requests and the answers they have to get."""
    write(folder, successors())
    (folder / "gate.yaml").write_text(gate_file(), encoding="utf-8")


def write(folder: Path, follows: dict[int, int]) -> None:
    """A checkpoint that answers the token ``t`` with ``follows[t]``."""
    files.write(folder, CONFIG, {}, weights=weights(follows))


def weights(follows: dict[int, int]) -> dict:
    """The tensors of that checkpoint, by Hugging Face name."""
    import torch

    shapes = dense.shapes(CONFIG)
    found = {
        name: torch.zeros(shape) if len(shape) > 1 else torch.ones(shape) for name, shape in shapes.items()
    }
    random = torch.Generator().manual_seed(0)
    embeddings = torch.randn(shapes["model.embed_tokens.weight"], generator=random)
    embeddings /= embeddings.norm(dim=1, keepdim=True)  # any two of them are far from parallel
    found["model.embed_tokens.weight"] = embeddings
    for one, other in follows.items():
        found["lm_head.weight"][other] += embeddings[one]
    return found


def gate_file() -> str:
    """Requests with known answers, in the form of a gate file."""
    lines = ["# Every token is answered with its successor: only these weights can do that.", "requests:"]
    for name, prompt in (("letters", "The capital of France is"), ("digits", "20"), ("capitals", "ABC")):
        lines += [
            f"  - name: {name}",
            f"    completion: {prompt!r}",
            "    body: {max_tokens: 12}",
            "    expect:",
            f"      sequence: [{answer(prompt, 12)!r}]",
            f"      tokens: {_ids(answer(prompt, 12))}",
            "      finish_reason: length",
            "      twice: same",
        ]
    return "\n".join([*lines, "      differs_from: letters", ""])


def _ids(text: Iterable[str]) -> list[int]:
    return [files.vocabulary().index(one) for one in text]


def write_constant(folder: Path, word: str) -> None:
    """A checkpoint that answers everything with one word of the vocabulary, over and over."""
    import torch

    one = files.vocabulary().index(word)
    tensors = weights({})
    tensors["model.embed_tokens.weight"] = torch.ones_like(tensors["model.embed_tokens.weight"])
    tensors["lm_head.weight"][one] = 1.0
    files.write(folder, CONFIG, {}, weights=tensors)
