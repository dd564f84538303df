"""The status of one feature, from what one start showed: what was asked for against what was resolved."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from npu_upgrade.gates.features.capability import (
    ANSWER,
    AUTOMATIC,
    DEFAULT,
    LOG,
    METRIC,
    PROCESS,
    RESOLVED,
    Capability,
    Proof,
    Way,
)
from npu_upgrade.gates.features.model import NOT_PROVEN, UNSUPPORTED, VERIFIED, Row
from npu_upgrade.gates.serving.starts import READY, Started, setting

_REFUSED = ("not supported", "unsupported", "does not support", "not implemented", "unrecognized arguments")


def judge(one: Capability, way: Way, started: Started, dummy: bool) -> Row:
    """The row of a feature that was asked for in a start that served."""
    text = _Log(started, one)
    resolved = _resolved(one, started)
    row = Row(one.feature, NOT_PROVEN, way.shown, resolved)
    if text.taken:
        return replace(
            row, evidence=text.taken, why="it was asked for, and the log says that it was taken away"
        )
    wrong = _contradiction(one, way, started)
    if wrong:
        return replace(row, evidence=wrong, why="the resolved configuration is not what was asked for")
    evidence, lacking = [], []
    for group in one.proofs:
        if found := next((found for proof in group if (found := _proof(proof, started, text))), ""):
            evidence.append(found)
        else:
            lacking.append(_looked_for(group, started))
    row = replace(row, evidence="; ".join(evidence))
    if lacking or not one.proofs:
        why = one.why if not any(one.proofs) and one.why else f"not seen: {'; '.join(lacking) or 'any proof'}"
        if one.why and one.why not in why:
            why = f"{why} ({one.why})"
        if one.feature == "mtp" and dummy:
            why += "; with dummy weights no draft can be expected to be accepted"
        return replace(row, why=why)
    if one.feature == "mtp" and dummy:
        return replace(row, why="with dummy weights accepted drafts mean nothing")
    why = f"but it became less: {text.lowered}" if text.lowered else ""
    return replace(row, status=VERIFIED, why=why)


def not_started(one: Capability, way: Way, started: Started) -> Row:
    """The row of a feature whose start did not serve, though the model serves without it."""
    root = started.root or {}
    said = f"{root.get('text', '')} {root.get('cause', '')}".lower()
    status = UNSUPPORTED if any(word in said for word in _REFUSED) else NOT_PROVEN
    cause = f"{root['cause']} ({root['id']})" if root.get("id") and root.get("cause") else ""
    what = "" if way.kind in (AUTOMATIC, DEFAULT) else "with it "
    # a table may show the beginning only
    ended = started.summary.partition("; root cause")[0] if cause else started.summary
    why = f"{what}the server does not serve: {'; '.join(filter(None, (cause, ended[:200])))}"
    return Row(one.feature, status, way.shown, "", started.shown_root, why, cause)


class _Log:
    """The lines of a log that prove something, found in one reading: first line for each proof."""

    def __init__(self, started: Started, one: Capability) -> None:
        self.first: dict[Proof, str] = {}
        self.taken = ""
        self.lowered = ""
        self.ready = False
        wanted = [proof for group in one.proofs for proof in group if proof.kind in (LOG, PROCESS)]
        for line in started.lines():
            self.ready = self.ready or READY in line.text
            for proof in wanted:
                shown = line.who if proof.kind == PROCESS else line.text
                if proof not in self.first and (self.ready or not proof.after_ready) and proof.matches(shown):
                    self.first[proof] = started.shown(line)
            if not self.taken and any(proof.matches(line.text) for proof in one.against):
                self.taken = started.shown(line)
            if not self.lowered and any(proof.matches(line.text) for proof in one.lowered):
                self.lowered = started.shown(line)


def _looked_for(group: Sequence[Proof], started: Started) -> str:
    """What would have proven it, for people."""
    said = [f": {one[0]}, {one[1]}" if (one := started.checks.get(proof.text)) else "" for proof in group]
    what = " or ".join(
        f"{proof.shown!r} ({proof.place}){why}" for proof, why in zip(group[:3], said, strict=False)
    )
    return what + (" after the server was ready" if any(one.after_ready for one in group) else "")


def _proof(proof: Proof, started: Started, text: _Log) -> str:
    if proof.kind in (LOG, PROCESS):
        return text.first.get(proof, "")
    if proof.kind == METRIC:
        value = started.metrics.get(proof.text)
        return f"{started.shown_metrics}: {proof.text} = {value:g}" if value and value > 0 else ""
    if proof.kind == ANSWER:
        state, why = started.checks.get(proof.text, ("", ""))
        return (
            f"{started.shown_exchanges}: check {proof.text} passed{f' ({why})' if why else ''}"
            if state == "PASS"
            else ""
        )
    value = setting(started.resolved, proof.text)
    # the proof says name=False where that is the value a feature needs
    is_on = value is False if proof.shown.endswith("=False") else bool(value)
    return f"{started.shown_config}: {proof.text} = {value}" if is_on else ""


def mode_name(one: Capability, value: Any) -> str:
    """A cudagraph_mode by its name, whether the configuration has it as a name or as its value."""
    if value is None:
        return ""
    values = dict(name.partition("=")[::2] for name in one.names)
    text = str(value).rpartition(".")[2]
    return next((name for name, known in values.items() if known == json.dumps(value)), text)


def _resolved(one: Capability, started: Started) -> str:
    """The settings that belong to a feature, as the server resolved them."""
    names = [proof.text for group in one.proofs for proof in group if proof.kind == RESOLVED]
    names += {
        "graph": ["cudagraph_mode"],
        "flashcomm1": ["additional_config"],
        "mtp": ["speculative_config"],
        "multimodal": ["is_multimodal"],
        "lora": ["lora_config"],
    }.get(one.feature, [])
    values = {name: setting(started.resolved, name) for name in names}
    if "cudagraph_mode" in values:
        values["cudagraph_mode"] = mode_name(one, values["cudagraph_mode"]) or None
    return ", ".join(f"{name}={_short(value)}" for name, value in values.items() if value is not None)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        kept = {key: value[key] for key in ("method", "num_speculative_tokens", "max_loras") if key in value}
        value = kept or value
    return str(value)[:160]


def _contradiction(one: Capability, way: Way, started: Started) -> str:
    """What the resolved configuration says against the request; empty when it says nothing against it."""
    if one.feature == "graph":
        mode = mode_name(one, setting(started.resolved, "cudagraph_mode"))
        eager = setting(started.resolved, "enforce_eager")
        if eager is True or mode == "NONE" or (way.value and mode and mode != way.value):
            return f"{started.shown_config}: enforce_eager = {eager}, cudagraph_mode = {mode}"
    if way.kind == "additional_config":
        value = setting(started.resolved, "additional_config")
        if isinstance(value, Mapping) and value.get(way.name) != way.value:
            return f"{started.shown_config}: additional_config = {dict(value)}"
    if way.kind == DEFAULT or one.feature not in ("mtp", "lora"):
        return ""
    name = {"mtp": "speculative_config", "lora": "lora_config"}[one.feature]
    known = name in started.resolved
    return f"{started.shown_config}: {name} = None" if known and started.resolved[name] is None else ""
