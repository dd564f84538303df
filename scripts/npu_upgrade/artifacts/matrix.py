"""The model's row in the support matrix, filled by the names of the table's own columns."""

from __future__ import annotations

import re
from collections.abc import Mapping

from npu_upgrade.artifacts.facts import Facts
from npu_upgrade.artifacts.features import Feature
from npu_upgrade.ground.errors import BadInput

YES, TRIED, NO, UNKNOWN, NONE = "✅", "🔵", "❌", "🟡", ""
_LINK = "../../tutorials/models/{name}.md"
# column -> feature of the matrix
_FEATURES = {
    "lora": "lora",
    "speculative decoding": "mtp",
    "expert parallel": "expert_parallel",
    "piecewise aclgraph": "graph",
    "fullgraph aclgraph": "graph",
}
# a replayed graph is of one mode or both; the mode stands in what the run resolved
_MODES = {"piecewise aclgraph": "PIECEWISE", "fullgraph aclgraph": "FULL"}


def with_row(text: str, facts: Facts, written: str | None = None) -> tuple[str, str]:
    """The page with the model's row, and the row.

    A row that is there and is not ``written`` (the one this command wrote) belongs to people and stays.
    """
    lines = text.splitlines(keepends=True)
    link = f"]({_LINK.format(name=facts.name)})"
    table = _table(lines, facts)
    row = _row(lines[table.start], facts)
    there = next((n for n in range(table.start + 2, table.stop) if link in lines[n]), None)
    if there is None:
        lines.insert(table.stop, row + "\n")
        return "".join(lines), row
    if written is not None and lines[there].rstrip("\n") == written:
        lines[there] = row + "\n"
        return "".join(lines), row
    return text, lines[there].rstrip("\n")


def _table(lines: list[str], facts: Facts) -> range:
    """The lines of the table that the model belongs to: its head to behind its last row."""
    wanted = "Multimodal Language Models" if facts.multimodal else "Text-Only Language Models"
    kind = "Pooling Models" if facts.pooling else "Generative Models"
    heads: dict[int, str] = {}
    best: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        heading = re.match(r"(#+)\s+(.+?)\s*$", line)
        tab = re.match(r'===\s+"(.+)"', line)
        if heading:
            heads = {depth: title for depth, title in heads.items() if depth < len(heading[1])} | {
                len(heading[1]): heading[2]
            }
            heads.pop(9, None)
        elif tab:
            heads[9] = tab[1]
        elif _is_head(lines, number) and wanted in heads.values() and kind in heads.values():
            best.append((_fit(heads, facts), number))
    if not best:
        raise BadInput(
            f"the support matrix has no table for {wanted}, {kind}",
            expected="supported_models.md with vllm-ascend's headings",
            try_="add the row by hand, then run the same command again with --keep and that file",
        )
    start = max(best, key=lambda one: (one[0], -one[1]))[1]
    end = next((n for n in range(start, len(lines)) if not lines[n].lstrip().startswith("|")), len(lines))
    return range(start, end)


def _fit(heads: Mapping[int, str], facts: Facts) -> int:
    tab = heads.get(9, "")
    right = "300I" in tab if "300I" in facts.hardware else tab == "A2/A3" or not tab
    return 2 * right + ("Core Supported Models" in heads.values())


def _is_head(lines: list[str], number: int) -> bool:
    following = lines[number + 1] if number + 1 < len(lines) else ""
    return lines[number].lstrip().startswith("|") and bool(re.match(r"\s*\|[\s:|-]+\|\s*$", following))


def _row(head: str, facts: Facts) -> str:
    indent = head[: len(head) - len(head.lstrip())]
    columns = [column.strip() for column in head.strip().strip("|").split("|")]
    return f"{indent}| {' | '.join(_value(column, facts) for column in columns)} |"


def _value(column: str, facts: Facts) -> str:
    key = column.lower()
    resolved = facts.resolved
    if key in _FEATURES:
        feature = next((f for f in facts.features if f.name == _FEATURES[key]), None)
        other_mode = (
            feature and feature.status == "verified" and _MODES.get(key, "") not in feature.resolved.upper()
        )
        return UNKNOWN if other_mode else _mark(facts, feature)
    fixed = {
        "model": facts.name,
        "support": TRIED if facts.on_npu else UNKNOWN,
        "note": NONE if facts.on_npu else f"{facts.label or 'no run'}; NPU validation pending",
        "supported hardware": facts.hardware.replace("Atlas ", "").replace(" Series", "")
        if facts.on_npu
        else NONE,
        "bf16": _when(facts, str(resolved.get("dtype", "")).endswith("bfloat16")),
        "tensor parallel": _when(facts, (resolved.get("tensor_parallel_size") or 1) > 1),
        "pipeline parallel": _when(facts, (resolved.get("pipeline_parallel_size") or 1) > 1),
        "max-model-len": str(facts.practical_length) if facts.on_npu and facts.practical_length else NONE,
        "doc": f"[{facts.name}]({_LINK.format(name=facts.name)})",
    }
    return fixed.get(key, UNKNOWN)


def _mark(facts: Facts, feature: Feature | None) -> str:
    if feature is None or not feature.status or feature.status == "not proven":
        return UNKNOWN
    if feature.status == "not applicable":
        return NONE
    on_npu = feature.label == "NPU real"
    return {"verified": YES, "unsupported": NO}.get(feature.status, UNKNOWN) if on_npu else UNKNOWN


def _when(facts: Facts, served: bool) -> str:
    return YES if facts.on_npu and served else UNKNOWN
