"""Whether a feature can matter for a model at all, and with which words the checkpoint says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from npu_upgrade.gates.features.capability import AUTOMATIC, Capability, Way
from npu_upgrade.gates.features.checkpoint import Checkpoint

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
    for at, word in enumerate(asked):
        name, equals, value = word.partition("=")
        if name in ("-cc.cudagraph_mode", "--compilation-config.cudagraph_mode"):
            return (value if equals else "".join(asked[at + 1 : at + 2])).upper()
        if name in ("-cc", "--compilation-config"):
            try:
                config = json.loads(value if equals else "".join(asked[at + 1 : at + 2]))
            except ValueError:
                return None
            mode = config.get("cudagraph_mode") if isinstance(config, dict) else None
            return str(mode).upper() if mode else None
    return None


def needs_request(way: Way) -> bool:
    """Whether something has to be added to the command line or the environment."""
    return way.kind not in (AUTOMATIC, "default")
