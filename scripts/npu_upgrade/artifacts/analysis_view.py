"""The part of ``analysis.json`` (adapt.py analyze) that deliverables tell; what is not there is not told."""

from __future__ import annotations

from typing import Any

from npu_upgrade.evidence.runs import mapping


class AnalysisView:
    """``rows`` of the architecture, ``findings`` as sentences, the ``strategy`` as one."""

    def __init__(self, analysis: dict[str, Any]) -> None:
        told = {
            "Model type": _of(analysis, "properties", "model_type"),
            "Layers": _kinds(_of(analysis, "attention", "layers")),
            "Attention": _attention(analysis),
            "Experts": _experts(mapping(analysis.get("properties"))),
            "MTP": _of(analysis, "mtp", "state"),
            "Quantization": _of(analysis, "quantization", "scheme")
            or _of(analysis, "quantization", "method"),
            "Modalities": ", ".join(str(one) for one in analysis.get("modalities") or []),
            "Weights": _weights(mapping(analysis.get("weights"))),
            "Served by": _of(analysis, "serving", "by"),
            "Own code": ", ".join(str(one) for one in mapping(analysis.get("files")).get("code") or []),
            "Longest context by configuration": longest(analysis),
        }
        self.rows = [{"name": name, "value": value} for name, value in told.items() if value]
        found = [one for one in analysis.get("findings") or [] if isinstance(one, dict)]
        self.findings = [f"{one.get('severity')}: {one.get('kind')}: {one.get('what')}" for one in found]
        strategy = mapping(analysis.get("strategy"))
        self.strategy = "; ".join([*_list(strategy, "name"), *_list(strategy, "reasons")])
        self.risks = _list(strategy, "risks")


def longest(analysis: dict[str, Any]) -> int | None:
    """The longest context that the checkpoint's configuration allows."""
    value = _of(analysis, "properties", "max_len")
    return value if isinstance(value, int) and value > 0 else None


def _of(analysis: dict[str, Any], part: str, key: str) -> Any:
    return mapping(analysis.get(part)).get(key)


def _list(part: dict[str, Any], key: str) -> list[str]:
    value = part.get(key) or []
    return [str(one) for one in (value if isinstance(value, list) else [value])]


def _kinds(layers: Any) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in mapping(layers).items())


def _attention(analysis: dict[str, Any]) -> str:
    kind, has = _of(analysis, "attention", "kind"), mapping(analysis.get("properties"))
    heads = f", {has['heads']} heads, {has.get('kv_heads')} of keys and values" if has.get("heads") else ""
    return f"{kind}{heads}" if kind else ""


def _experts(has: dict[str, Any]) -> str:
    each = f", {has['experts_per_token']} per token" if has.get("experts_per_token") else ""
    return f"{has['experts']}{each}" if has.get("experts") else ""


def _weights(weights: dict[str, Any]) -> str:
    if not weights.get("tensors"):
        return ""
    size = (weights.get("bytes") or 0) / 1024**3
    return f"{weights['tensors']} tensors in {weights.get('shards')} files, {size:.2f} GiB"
