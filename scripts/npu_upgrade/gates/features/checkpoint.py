"""What a checkpoint is, as far as features depend on it; each answer with the key or the weight that says so.

Reads config.json and the headers of the weights only. No code of the checkpoint is run.
"""

from __future__ import annotations

import functools
import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.errors import BadInput

_EXPERTS = re.compile(r"(?:moe_)?(?:num|n)_(?:\w+_)?experts")
_NOT_COUNTS = ("shared", "per_tok", "topk", "group")
_DRAFT_LAYERS = re.compile(r"(?:num_)?(?:\w*nextn\w*|mtp\w*|\w*_mtp)_?(?:layers|modules)")
_DRAFT_WEIGHT = re.compile(r"(?:^|\.)mtp(?:_\w+)?\.")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_MODALITIES = {"vision": "image", "visual": "image", "image": "image", "audio": "audio", "video": "video"}
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_QUANTIZATION = ("quantization_config", "compression_config")
ASCEND_DESCRIPTION = "quant_model_description.json"
_LONGEST_HEADER = 100 << 20  # bytes, the limit of safetensors itself


@dataclass(frozen=True)
class Fact:
    """``value`` and where it stands, such as ``config.json: num_experts = 8``."""

    value: Any
    evidence: str


@dataclass(frozen=True)
class Checkpoint:
    """A folder with config.json; weights may be absent where they are to be dummies."""

    folder: Path
    config: Mapping[str, Any]

    def experts(self) -> Fact:
        """The number of routed experts; 0 for a dense model."""
        for key, value in _integers(self.config):
            name = key.rpartition(".")[2]
            if value > 1 and _EXPERTS.fullmatch(name) and not any(word in name for word in _NOT_COUNTS):
                return Fact(value, f"config.json: {key} = {value}")
        return Fact(0, f"config.json ({self.architecture}): no number of experts above one")

    def draft_layers(self) -> Fact:
        """The number of MTP layers that the configuration names."""
        for key, value in _integers(self.config):
            if value > 0 and _DRAFT_LAYERS.fullmatch(key.rpartition(".")[2]):
                return Fact(value, f"config.json: {key} = {value}")
        return Fact(0, f"config.json ({self.architecture}): no number of MTP layers above zero")

    def draft_weights(self) -> Fact:
        """The first weight that belongs to an MTP layer; empty when there is none."""
        layers = self._integer("num_hidden_layers")
        for name in self.weights():
            numbers = [int(one) for one in _LAYER.findall(name)[:1]]
            if _DRAFT_WEIGHT.search(name) or (layers and numbers and numbers[0] >= layers):
                return Fact(name, f"weights: {name}")
        count = len(self.weights())
        return Fact("", f"weights: none of {count} names is of an MTP layer" if count else "no weights here")

    def modalities(self) -> Fact:
        """What it takes beside text, such as ``("image",)``."""
        parts = [key for key, value in _objects(self.config) if isinstance(value, Mapping)]
        found = {}
        for key in parts:
            word = key.rpartition(".")[2].removesuffix("_config").split("_")[0]
            if word in _MODALITIES:
                found.setdefault(_MODALITIES[word], key)
        if found:
            return Fact(tuple(found), f"config.json: {', '.join(found.values())}")
        return Fact((), f"config.json ({self.architecture}): no configuration of an encoder")

    def quantization(self) -> Fact:
        """The method of quantization the checkpoint was made with; empty for none."""
        if (self.folder / ASCEND_DESCRIPTION).is_file():
            return Fact("ascend", f"{ASCEND_DESCRIPTION} is there")
        for key, value in _objects(self.config):
            if key.rpartition(".")[2] in _QUANTIZATION and isinstance(value, Mapping):
                method = str(value.get("quant_method") or value.get("format") or "unnamed")
                return Fact(method, f"config.json: {key}.quant_method = {method}")
        return Fact("", "config.json: no quantization_config")

    def longest(self) -> int | None:
        """The longest context that the configuration promises, in tokens."""
        return self._integer("max_position_embeddings")

    @property
    def architecture(self) -> str:
        return ", ".join(self.config.get("architectures") or ["no architecture"])

    def weights(self) -> list[str]:
        """The names of the weights: of the index, else of the headers of the files."""
        return _weights(self.folder)

    def _integer(self, name: str) -> int | None:
        texts = [self.config, *(self.config.get(part) or {} for part in _TEXT_PARTS)]
        values = [one.get(name) for one in texts if isinstance(one, Mapping)]
        return next((value for value in values if isinstance(value, int)), None)


def read(folder: Path) -> Checkpoint:
    """The checkpoint in ``folder``; raises :class:`BadInput` when it has no readable config.json."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"cannot read {path}: {error}",
            expected="a folder with the files of a Hugging Face checkpoint",
            try_="download the model first, and name its folder",
        ) from error
    if not isinstance(config, dict):
        raise BadInput(f"{path} is no JSON object", expected="a configuration", try_="name another folder")
    return Checkpoint(folder, config)


def _integers(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for key, value in _objects(config, prefix):
        if isinstance(value, int) and not isinstance(value, bool):
            yield key, value


def _objects(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All keys with their values, those of objects inside included, as ``outer.inner``."""
    for key, value in config.items():
        yield f"{prefix}{key}", value
        if isinstance(value, Mapping):
            yield from _objects(value, f"{prefix}{key}.")


@functools.lru_cache(maxsize=16)
def _weights(folder: Path) -> list[str]:
    for index in sorted(folder.glob("*.safetensors.index.json")):
        try:
            return list(json.loads(index.read_text("utf-8"))["weight_map"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the loader says what is wrong with it; the headers say what is there
    return [name for path in sorted(folder.glob("*.safetensors")) for name in header(path)]


def header(path: Path) -> dict[str, dict[str, Any]]:
    """The tensors of a safetensors file by name; empty when the file has no readable header."""
    try:
        with open(path, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            found = json.loads(stream.read(length)) if length < _LONGEST_HEADER else {}
    except (OSError, ValueError, struct.error):
        return {}
    return {name: value for name, value in found.items() if name != "__metadata__"}
