"""An analysis for people: what it is, who serves it, what it needs, what is wrong."""

from __future__ import annotations

from typing import Any

from npu_upgrade.ground.tables import table


def text_of(value: dict[str, Any]) -> str:
    """The analysis (as JSON) as a few tables."""
    parts = [_head(value), _memory(value["memory"]), _mapping(value["mapping"]), _findings(value["findings"])]
    return "\n\n".join(part for part in parts if part)


def _head(value: dict[str, Any]) -> str:
    properties, served, attention = value["properties"], value["serving"], value["attention"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in attention["layers"].items())
    experts = (
        f"{properties['experts']}, {properties['experts_per_token']} per token"
        if properties["experts"]
        else "none"
    )
    weights = value["weights"]
    rows = [
        ("model", value["model"]),
        (
            "architecture",
            f"{properties['architecture'] or '-'} ({properties['model_type'] or 'no model_type'})",
        ),
        ("served by", f"{served['by']}: {served['why']} [{served['read_from']}]"),
        ("strategy", f"{value['strategy']['name']}: " + "; ".join(value["strategy"]["reasons"])),
        (
            "attention",
            f"{attention['kind']} ({kinds or 'no layers'}), {properties['heads']} heads, "
            f"{properties['kv_heads']} of keys and values, size {properties['head_size']}",
        ),
        ("experts", experts),
        ("length", str(properties["max_len"])),
        ("quantization", value["quantization"]["scheme"] or value["quantization"]["method"] or "none"),
        ("mtp", value["mtp"]["state"]),
        ("modalities", ", ".join(value["modalities"]) or "text"),
        (
            "weights",
            f"{weights['tensors']} tensors, {weights['shards']} files, {weights['bytes'] / 1024**3:.2f} GiB",
        ),
        ("own code", ", ".join(value["files"]["code"]) or "none"),
    ]
    return table(("", ""), rows).strip() + "".join(f"\nwatch: {risk}" for risk in value["strategy"]["risks"])


def _memory(rows: list[dict[str, Any]]) -> str:
    head = (
        "card",
        "tp",
        "pp",
        "ep",
        "weights GiB",
        "cache GiB",
        "bytes/token",
        "longest",
        "at length",
        "sequences",
        "16 of them",
    )
    lines = [
        (
            row["card"],
            str(row["tp"]),
            str(row["pp"]),
            "yes" if row["ep"] else "",
            f"{row['weights_gib']:.2f}",
            f"{row['cache_gib']:.2f}",
            str(row["cache_bytes_per_token"]),
            str(row["max_len"]),
            str(row["at_len"]),
            str(row["sequences"]),
            "yes" if row["baseline"] else "no",
        )
        for row in rows
    ]
    return table(head, lines) if lines else ""


def _mapping(mapping: dict[str, Any]) -> str:
    if not mapping["judged"]:
        return f"names of tensors not judged: {mapping['why']}" if mapping["patterns"] else ""
    wanted = [row for row in mapping["patterns"] if row["state"] in ("missing", "open")][:20]
    rows = [(row["checkpoint"], row["state"], row["model"]) for row in wanted]
    counts = ", ".join(f"{count} {state}" for state, count in sorted(mapping["states"].items()))
    return f"patterns of tensor names: {counts or 'none'}" + (
        f"\n{table(('checkpoint', 'state', 'model'), rows)}" if rows else ""
    )


def _findings(findings: list[dict[str, Any]]) -> str:
    return "\n".join(f"{one['severity']}: {one['kind']}: {one['what']}" for one in findings)
