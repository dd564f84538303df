"""What a checkpoint is, as far as features depend on it, and whether a feature can matter for it at all.

The analysis of the model adapter answers; no code of the checkpoint is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.analysis import Analysis, analyse
from npu_upgrade.checkpoint.config import Config
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.gates.features.capability import AUTOMATIC, Capability, Way
from npu_upgrade.gates.serving.launch import given, given_json
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
    for key, found in config.raw.items():
        if found == value and any(word in key for word in words.split()):
            return f"{config.path}{key}"
    return ""


NOT_APPLICABLE, MISSING, UNSUPPORTED = "not applicable", "checkpoint missing", "unsupported"
NOT_PROVEN, VERIFIED = "not proven", "verified"
_OF_EXPERTS = ("expert_parallel", "flashcomm1")
_PARALLEL = ("expert_parallel", "flashcomm1")


@dataclass(frozen=True)
class Ruling:
    """Why a feature is not even tried: its status, why, and the evidence."""

    status: str
    why: str
    evidence: str


def ruled_out(one: Capability, model: Checkpoint, dummy: bool, on_cpu: bool, ranks: int) -> Ruling | None:
    """Why not to try a feature; None when it is worth a start. ``ranks``: tensor times data parallel."""
    return (
        _of_the_model(one.feature, model, dummy)
        or _of_the_release(one, on_cpu)
        or (_of_the_method(one, model) if one.feature == "quantization" and one.names else None)
        or (_of_the_ranks(one) if one.feature in _PARALLEL and ranks < 2 else None)
    )


def _of_the_model(feature: str, model: Checkpoint, dummy: bool) -> Ruling | None:
    if feature in _OF_EXPERTS:
        fact = model.experts()
        return None if fact.value else Ruling(NOT_APPLICABLE, "the model has no experts", fact.evidence)
    if feature == "mtp":
        return _mtp(model, dummy)
    if feature == "multimodal":
        fact = model.modalities()
        return None if fact.value else Ruling(NOT_APPLICABLE, "the model takes text only", fact.evidence)
    if feature == "quantization":
        fact = model.quantization()
        return (
            None if fact.value else Ruling(NOT_APPLICABLE, "the checkpoint is not quantised", fact.evidence)
        )
    return None


def _mtp(model: Checkpoint, dummy: bool) -> Ruling | None:
    layers, weights = model.draft_layers(), model.draft_weights()
    if not layers.value:
        if weights.value:
            return Ruling(
                MISSING, "MTP weights are there, but the configuration names no layer", weights.evidence
            )
        return Ruling(NOT_APPLICABLE, "the model has no MTP layers", layers.evidence)
    if not weights.value and (model.weights() or not dummy):
        why = f"the configuration has MTP layers ({layers.evidence}), the weights have none"
        return Ruling(MISSING, why, weights.evidence)
    return None


def _of_the_release(one: Capability, on_cpu: bool) -> Ruling | None:
    if one.exists:
        return None
    if not one.known:
        return Ruling(NOT_PROVEN, one.why, "")
    if on_cpu and one.feature in ("graph", "flashcomm1"):
        return Ruling(NOT_APPLICABLE, one.why, "the device is a CPU")
    return Ruling(UNSUPPORTED, one.why, ", ".join(map(str, one.places)))


def _of_the_method(one: Capability, model: Checkpoint) -> Ruling | None:
    """A method that the platform does not name is refused by vLLM before anything is loaded."""
    fact = model.quantization()
    if fact.value in one.names:
        return None
    why = f"the checkpoint is {fact.value}, the release takes {', '.join(one.names)}"
    return Ruling(UNSUPPORTED, why, "; ".join([fact.evidence, *map(str, one.places)]))


def _of_the_ranks(one: Capability) -> Ruling:
    what = "has no effect with one rank: start with --tensor-parallel-size 2 or more"
    return Ruling(NOT_PROVEN, f"{one.feature} {what}", str(one.ways[0].place))


def best_way(one: Capability, model: Checkpoint, asked: Sequence[str] = ()) -> Way:
    """The first way, with the model's number of draft tokens and the user's mode of graphs."""
    way = one.ways[0]
    if one.feature == "graph":
        return replace(way, value=asked_mode(asked))
    if one.feature != "mtp":
        return way
    return replace(way, value=dict(way.value) | {"num_speculative_tokens": _draft_tokens(model)})


def _draft_tokens(model: Checkpoint) -> int:
    """One for each MTP layer, as the first layer may be used again but was trained for one step."""
    return max(1, int(model.draft_layers().value))


def asked_mode(asked: Sequence[str]) -> str | None:
    """The cudagraph_mode among the arguments of vllm serve; None when they leave it to vLLM."""
    whole = given_json(asked, "-cc", "--compilation-config").get("cudagraph_mode")
    named = [*given(asked, "-cc.cudagraph_mode", "--compilation-config.cudagraph_mode"), whole]
    return str(named[0]).upper() if named[0] else None


def needs_request(way: Way) -> bool:
    """Whether something has to be added to the command line or the environment."""
    return way.kind not in (AUTOMATIC, "default")
