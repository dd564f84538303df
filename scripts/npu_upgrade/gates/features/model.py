"""What a checkpoint is, as far as features depend on it, and whether a feature can matter for it at all.

The analysis of the model adapter answers; no code of the checkpoint is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.checkpoint.analysis import Analysis, analyse
from npu_upgrade.checkpoint.likeness import Likeness
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
        own = self.analysis.file.properties.model_type in ("", config.model_type)
        file = "config.json" if own else f"config.json, in the words of {config.model_type}"
        for part in (config.text, config):
            for key, found in part.raw.items():
                if found == value and any(word in key for word in words.split()):
                    return Fact(value, f"{file}: {part.path}{key} = {value}")
        return Fact(value, f"config.json ({config.model_type}): {value} is what its class fills in")


def read(folder: Path, like: Likeness | None = None) -> Checkpoint:
    """The checkpoint in ``folder``, as the family that a plan says it is.

    Raises :class:`BadInput` when it has no readable config.json.
    """
    found = analyse(folder, Sources(), like=like) if folder.is_dir() else None
    if found is None or not found.config.raw:
        wrong = f": {found.file.findings[0].what}" if found and found.file.findings else ""
        raise BadInput(
            f"there is no configuration to read in {folder}{wrong}",
            expected="a folder with the files of a Hugging Face checkpoint",
            try_="download the model first, and name its folder",
        )
    return Checkpoint(folder, found)


NOT_APPLICABLE, MISSING, UNSUPPORTED = "not applicable", "checkpoint missing", "unsupported"
NOT_PROVEN, VERIFIED = "not proven", "verified"
STATUSES = (VERIFIED, UNSUPPORTED, MISSING, NOT_APPLICABLE, NOT_PROVEN)
_PARALLEL = ("expert_parallel", "flashcomm1")


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of the matrix. ``evidence`` is ``file:line: text``, or the key that says it; ``cause`` a known
    root cause of a start that did not serve."""

    feature: str
    status: str
    requested: str = ""
    resolved: str = ""
    evidence: str = ""
    why: str = ""
    cause: str = ""


def ruled_out(one: Capability, model: Checkpoint, dummy: bool, on_cpu: bool, ranks: int) -> Row | None:
    """Why not to try a feature; None when it is worth a start. ``ranks``: tensor times data parallel."""
    found = _of_the_model(one.feature, model, dummy) or _of_the_release(one, model, on_cpu)
    if not found and one.feature in _PARALLEL and ranks < 2:
        why = f"{one.feature} has no effect with one rank: start with --tensor-parallel-size 2 or more"
        found = NOT_PROVEN, why, str(one.ways[0].place)
    return Row(one.feature, found[0], why=found[1], evidence=found[2]) if found else None


def _of_the_model(feature: str, model: Checkpoint, dummy: bool) -> tuple[str, str, str] | None:
    """The status, why, and the evidence, where the checkpoint decides."""
    if feature == "mtp":
        return _mtp(model, dummy)
    facts = {
        **dict.fromkeys(_PARALLEL, (model.experts, "the model has no experts")),
        "multimodal": (model.modalities, "the model takes text only"),
        "quantization": (model.quantization, "the checkpoint is not quantised"),
    }
    if feature not in facts:
        return None
    read, why = facts[feature]
    fact = read()
    return None if fact.value else (NOT_APPLICABLE, why, fact.evidence)


def _mtp(model: Checkpoint, dummy: bool) -> tuple[str, str, str] | None:
    layers, weights = model.draft_layers(), model.draft_weights()
    if not layers.value:
        if weights.value:
            why = "MTP weights are there, but the configuration names no layer"
            return MISSING, why, weights.evidence
        return NOT_APPLICABLE, "the model has no MTP layers", layers.evidence
    if not weights.value and (model.weights() or not dummy):
        why = f"the configuration has MTP layers ({layers.evidence}), the weights have none"
        return MISSING, why, weights.evidence
    return None


def _of_the_release(one: Capability, model: Checkpoint, on_cpu: bool) -> tuple[str, str, str] | None:
    places = [str(place) for place in one.places]
    if one.exists:
        method = model.quantization() if one.feature == "quantization" else None
        if method is None or not one.names or method.value in one.names:
            return None
        # vLLM refuses a method that the platform does not name before anything is loaded
        why = f"the checkpoint is {method.value}, the release takes {', '.join(one.names)}"
        return UNSUPPORTED, why, "; ".join([method.evidence, *places])
    if not one.known:
        return NOT_PROVEN, one.why, ""
    if on_cpu and one.feature in ("graph", "flashcomm1"):
        return NOT_APPLICABLE, one.why, "the device is a CPU"
    return UNSUPPORTED, one.why, ", ".join(places)


def best_way(one: Capability, model: Checkpoint, asked: Sequence[str] = ()) -> Way:
    """The first way, with the model's number of draft tokens and the user's mode of graphs."""
    way = one.ways[0]
    if one.feature == "graph":
        return replace(way, value=asked_mode(asked))
    if one.feature != "mtp":
        return way
    # one for each MTP layer, as the first layer may be used again but was trained for one step
    tokens = max(1, int(model.draft_layers().value))
    return replace(way, value=dict(way.value) | {"num_speculative_tokens": tokens})


def asked_mode(asked: Sequence[str]) -> str | None:
    """The cudagraph_mode among the arguments of vllm serve; None when they leave it to vLLM."""
    whole = given_json(asked, "-cc", "--compilation-config").get("cudagraph_mode")
    named = [*given(asked, "-cc.cudagraph_mode", "--compilation-config.cudagraph_mode"), whole]
    return str(named[0]).upper() if named[0] else None


def needs_request(way: Way) -> bool:
    """Whether something has to be added to the command line or the environment."""
    return way.kind not in (AUTOMATIC, "default")
