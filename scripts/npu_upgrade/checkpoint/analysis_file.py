"""``analysis.json``: what an analysis writes down, and how it reads for people."""

from __future__ import annotations

from pathlib import Path

import msgspec

from npu_upgrade.checkpoint.memory import GIB, MIB, Plan
from npu_upgrade.checkpoint.oracle import Oracle
from npu_upgrade.checkpoint.parts import Mtp, Tied, Tower
from npu_upgrade.checkpoint.quantization import Quantization
from npu_upgrade.checkpoint.reading import Finding
from npu_upgrade.checkpoint.serving import Serving, Strategy
from npu_upgrade.checkpoint.shape import Shape
from npu_upgrade.checkpoint.side_files import Files
from npu_upgrade.ground.kept import written
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Verdict

SCHEMA = "npu-upgrade/model-analysis/1"
_MOST_SHOWN = 20
# of the memory plan: heading -> field
_COLUMNS = {
    **{"card": "card", "tp": "tp", "pp": "pp", "ep": "ep"},
    **{"weights GiB": "weights_gib", "cache GiB": "cache_gib", "bytes/token": "cache_bytes_per_token"},
    **{"longest": "max_len", "at length": "at_len", "sequences": "sequences", "16 of them": "baseline"},
}


class Properties(Shape):
    """What vLLM's own configuration answers too, by the oracle's names."""

    architecture: str
    model_type: str
    text_model_type: str | None
    hybrid: bool
    attention_free: bool
    multimodal: bool
    quantization: str


class Attention(msgspec.Struct, frozen=True):
    """``kind``: mha, gqa, mqa, mla, dsa, hybrid, state or none; ``heads``: that of the layers with a cache.

    ``layers``: how many are of which kind; ``window`` in tokens.
    """

    kind: str
    heads: str
    layers: dict[str, int]
    window: int


class WeightFiles(msgspec.Struct, frozen=True):
    """The weights in numbers; ``index``: whether there is one; ``other_formats`` were not looked into."""

    shards: int
    tensors: int
    bytes: int
    dtypes: dict[str, int]
    index: bool
    other_formats: list[str]


class Pattern(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pattern of tensor names (numbers as ``*``), its name in vLLM's model, and whether that exists."""

    checkpoint: str
    tensors: int
    state: str | None = None
    model: str | None = None


class Mapping(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the tensors go in the model that serves them; ``why`` says so where that was not judged.

    ``missing``: how many patterns have no place there; ``states``: how many patterns are in which state.
    """

    judged: bool
    patterns: list[Pattern]
    why: str | None = None
    missing: int | None = None
    states: dict[str, int] | None = None


class AnalysisFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``analysis.json``."""

    schema: str
    model: str
    name: str
    properties: Properties
    attention: Attention
    serving: Serving
    quantization: Quantization
    weights: WeightFiles
    files: Files
    mtp: Mtp
    modalities: dict[str, Tower]
    tied: Tied
    mapping: Mapping
    memory: list[Plan]
    strategy: Strategy
    findings: list[Finding]
    oracle: Oracle | None = None
    verdict: str = ""

    def judge(self, ignored: tuple[str, ...] = ()) -> Verdict:
        """By the worst finding (but those ``ignored``), and by what vLLM itself says where it was asked."""
        severities = {one.severity for one in self.findings if one.kind not in ignored}
        if "error" in severities:
            return Verdict.FAIL
        differs = self.oracle and self.oracle.differences
        return Verdict.INCONCLUSIVE if "unsure" in severities or differs else Verdict.PASS


BY_AN_ADAPTER = ("name-unmapped",)
"""The kinds of errors that an adapter, and not another checkpoint, corrects."""


def load_analysis(path: Path) -> AnalysisFile | None:
    """The analysis that ``adapt.py analyze`` wrote, None when there is none.

    Raises :class:`BadInput` for a file that is damaged or of another version.
    """
    return written(path, AnalysisFile, try_="move it away and analyse the model again")


def longest_of(one: AnalysisFile | None) -> int:
    """How many tokens the context holds by the configuration, 0 where nobody has analysed it."""
    return one.properties.max_len if one else 0


def described(one: AnalysisFile) -> dict[str, str]:
    """What the checkpoint is and who serves it, by titles; what it does not have is left out."""
    has, weights = one.properties, one.weights
    layers = ", ".join(f"{count} {kind}" for kind, count in one.attention.layers.items())
    heads = (
        f", {has.heads} heads, {has.kv_heads} of keys and values of size {has.head_size}" if has.heads else ""
    )
    each = f", {has.experts_per_token} per token" if has.experts_per_token else ""
    amount = (
        f"{weights.bytes / GIB:.2f} GiB" if weights.bytes > GIB / 10 else f"{weights.bytes / MIB:.1f} MiB"
    )
    size = f"{weights.tensors} tensors in {weights.shards} file{'s' * (weights.shards != 1)}, {amount}"
    rows = {
        "Model type": has.model_type,
        "Layers": layers,
        "Attention": f"{one.attention.kind}{heads}",
        "Experts": f"{has.experts}{each}" if has.experts else "",
        "MTP": one.mtp.state,
        "Quantization": one.quantization.scheme or one.quantization.method,
        "Modalities": ", ".join(one.modalities),
        "Weights": size if weights.tensors else "",
        "Served by": one.serving.by,
        "Own code": ", ".join(one.files.code),
        "Longest context by configuration": str(has.max_len) if has.max_len > 0 else "",
    }
    return {title: text for title, text in rows.items() if text}


def text_of(one: AnalysisFile) -> str:
    """The analysis as a few tables."""
    served = f"{one.serving.by}: {one.serving.why} [{one.serving.read_from}]"
    strategy = f"{one.strategy.name}: " + "; ".join(one.strategy.reasons)
    rows = (
        {"Model": one.model, "Architecture": one.properties.architecture or "-"}
        | described(one)
        | {"Served by": served, "Strategy": strategy}
    )
    head = table(("", ""), list(rows.items())).strip()
    risks = "\n".join(f"watch: {risk}" for risk in one.strategy.risks)
    findings = "\n".join(f"{each.severity}: {each.kind}: {each.what}" for each in one.findings)
    plans = [tuple(_shown(getattr(plan, name)) for name in _COLUMNS.values()) for plan in one.memory]
    memory = table(tuple(_COLUMNS), plans) if plans else ""
    parts = ["\n".join(filter(None, (head, risks))), memory, _mapping(one.mapping), findings]
    return "\n\n".join(part for part in parts if part) + _oracle(one.oracle)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _mapping(mapping: Mapping) -> str:
    if not mapping.judged:
        return f"names of tensors not judged: {mapping.why}" if mapping.patterns else ""
    wanted = [one for one in mapping.patterns if one.state in ("missing", "open")][:_MOST_SHOWN]
    rows = [(one.checkpoint, one.state or "", one.model or "") for one in wanted]
    counts = ", ".join(f"{count} {state}" for state, count in sorted((mapping.states or {}).items()))
    shown = f"\n{table(('checkpoint', 'state', 'model'), rows)}" if rows else ""
    return f"patterns of tensor names: {counts or 'none'}{shown}"


def _oracle(oracle: Oracle | None) -> str:
    if oracle is None:
        return ""
    vllm = f"\n\nvLLM {oracle.answer['vllm']} itself"
    if "error" in oracle.answer:
        return f"{vllm} cannot load the configuration: {oracle.answer['error'][:400]}"
    lines = [f"\n  {one.property}: here {one.analysis}, vLLM {one.vllm}" for one in oracle.differences]
    return f"{vllm} disagrees:{''.join(lines)}" if lines else f"{vllm} agrees"
