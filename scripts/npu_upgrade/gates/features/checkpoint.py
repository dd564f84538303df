"""What a checkpoint is, as far as features depend on it; each answer with the key or the weight that says so.

The analysis of the model adapter answers; no code of the checkpoint is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.analysis import Analysis, analyse
from npu_upgrade.checkpoint.config import Config
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.ground.errors import BadInput

_INPUTS = ("image", "video", "audio")


@dataclass(frozen=True)
class Fact:
    """``value`` and where it stands, such as ``config.json: num_experts = 8``."""

    value: Any
    evidence: str


@dataclass(frozen=True)
class Checkpoint:
    """A folder with config.json; weights may be absent where they are to be dummies."""

    folder: Path
    analysis: Analysis

    def experts(self) -> Fact:
        """The number of routed experts; 0 for a dense model."""
        value = self.analysis.shape.experts
        return self._said(value if value > 1 else 0, "experts", "number of experts above one")

    def draft_layers(self) -> Fact:
        """The number of MTP layers that the configuration names."""
        return self._said(self.analysis.file.mtp.layers, "mtp nextn", "number of MTP layers above zero")

    def draft_weights(self) -> Fact:
        """A weight that belongs to an MTP layer; empty when there is none."""
        if name := self.analysis.file.mtp.example:
            return Fact(name, f"weights: {name}")
        count = len(self.weights())
        return Fact("", f"weights: none of {count} names is of an MTP layer" if count else "no weights here")

    def modalities(self) -> Fact:
        """What it takes beside text, such as ``("image", "video")``."""
        towers = {kind: one for kind, one in self.analysis.file.modalities.items() if kind in _INPUTS}
        if not towers:
            return Fact((), f"config.json ({self.architecture}): no configuration of an encoder")
        keys = [key for one in towers.values() for key in one.config]
        own, of_files = [key for key in keys if ".json" not in key], [key for key in keys if ".json" in key]
        said = [f"config.json: {', '.join(own)}"] if own else []
        where = "; ".join([*said, *of_files]) or f"weights of {', '.join(towers)} towers"
        return Fact(tuple(kind for kind in _INPUTS if kind in towers), where)

    def inputs(self) -> tuple[str, ...]:
        """What its towers could take, also where only their code and not the configuration tells it."""
        found = self.modalities().value
        return tuple(kind for kind in _INPUTS if kind in found or (kind == "video" and "image" in found))

    def quantization(self) -> Fact:
        """The method of quantization the checkpoint was made with, as vLLM names it; empty for none."""
        found = self.analysis.file.quantization
        if not found.method and not found.source:
            return Fact("", "config.json: no quantization_config")
        place = found.source if found.source.endswith(".json") else f"config.json: {found.source}"
        return Fact(found.method or "unnamed", f"{place}: {found.method or 'no method'}")

    def longest(self) -> int | None:
        """The longest context that vLLM derives from the configuration, in tokens."""
        return self.analysis.shape.max_len or None

    @property
    def architecture(self) -> str:
        return self.analysis.file.serving.architecture or "no architecture"

    def weights(self) -> set[str]:
        """The names of the weights: of the files and of their index."""
        return self.analysis.weights.names

    def _said(self, value: int, words: str, what: str) -> Fact:
        """A number of the configuration, with the key that has it."""
        if not value:
            return Fact(0, f"config.json ({self.architecture}): no {what}")
        config = self.analysis.config
        for part in dict.fromkeys((_key(config.text, value, words), _key(config, value, words))):
            if part:
                return Fact(value, f"config.json: {part} = {value}")
        return Fact(value, f"config.json ({config.model_type}): {value} is what its class fills in")


def read(folder: Path) -> Checkpoint:
    """The checkpoint in ``folder``; raises :class:`BadInput` when it has no readable config.json."""
    found = analyse(folder, Sources()) if folder.is_dir() else None
    if found is None or not found.config.raw:
        wrong = f": {found.file.findings[0].what}" if found and found.file.findings else ""
        raise BadInput(
            f"there is no configuration to read in {folder}{wrong}",
            expected="a folder with the files of a Hugging Face checkpoint",
            try_="download the model first, and name its folder",
        )
    return Checkpoint(folder, found)


def _key(config: Config, value: int, words: str) -> str:
    for key, given in config.raw.items():
        if given == value and any(word in key for word in words.split()):
            return f"{config.path}{key}"
    return ""
