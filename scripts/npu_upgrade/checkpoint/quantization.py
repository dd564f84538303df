"""How the weights are quantized: the method vLLM would take, and whether the tensors bear it out."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from npu_upgrade.checkpoint.config import Config
from npu_upgrade.checkpoint.reading import Finding, error, listed, note, unsure
from npu_upgrade.checkpoint.weights import BITS, Tensor
from npu_upgrade.ground.tables import first_of, shortened

_FP8 = {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}
_MODELOPT_FP8 = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO"}
# suffixes of tensors that only describe another one
SCALES = (
    *("weight_scale_inv", "weight_scale", "weight_scale_2", "input_scale"),
    *("scales", "weight_offset", "scale"),
)
# what a configuration says of the method, as far as an analysis shows it
_DETAILS = (
    *("bits", "group_size", "weight_block_size", "activation_scheme", "fmt", "format", "desc_act"),
    *("zero_point", "version", "sym", "ignore", "modules_to_not_convert", "quant_algo"),
    *("kv_cache_scheme", "scale_fmt"),
)
_DESCRIPTION = "quant_model_description.json"
_SCALE_OF = re.compile(r"_scale(?:_inv)?$")
_KV_SCALE = re.compile(r"\.(?:k|v|q|kv|prob)_(?:scale|zero_point|proj\.output_scale|cache_scale)$")


class Quantization(msgspec.Struct):
    """``method`` as vLLM names it (``ascend`` for ModelSlim), empty for none; ``scheme`` is more exact."""

    method: str = ""
    scheme: str = ""
    source: str = ""
    details: dict[str, Any] = {}


def read_quantization(
    config: Config, hf_quant: dict[str, Any] | None, ascend: dict[str, Any] | None
) -> tuple[Quantization, list[Finding]]:
    """The method of a configuration, a ``hf_quant_config.json`` or a ``quant_model_description.json``."""
    given, source = _given(config, hf_quant)
    if given is None:
        return (Quantization(), []) if ascend is None else _ascend(ascend)
    method, findings = _method(given), []
    known = {key: given[key] for key in _DETAILS if given.get(key) is not None}
    details = {key: first_of(value, 6) if isinstance(value, list) else value for key, value in known.items()}
    if not method:
        what = f"{source} names no quant_method: {shortened(sorted(map(str, given)), 6)}"
        findings.append(unsure("quantization-unknown", what, source))
    if ascend is not None:
        what = f"both a quantization_config and a {_DESCRIPTION}: vllm-ascend reads the latter"
        findings.append(note("quantization-twice", what, _DESCRIPTION))
    return Quantization(method, _scheme(method, given), source, details), findings


def _given(config: Config, hf_quant: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
    places = [(config, "quantization_config"), (config, "compression_config")]
    places += [
        (part, name) for part in (config.part("text_config"), config.text) if part for _, name in places[:2]
    ]
    for part, name in places:
        value = part.raw.get(name)
        if isinstance(value, dict) and value:
            return value, f"{part.path}{name}"
        if name == "quantization_config" and part is config and hf_quant:
            return hf_quant, "hf_quant_config.json"
    return None, ""


def _method(given: dict[str, Any]) -> str:
    inner = given.get("quantization")
    inner = inner if isinstance(inner, dict) else {}
    producer = given.get("producer")
    producer = producer.get("name") if isinstance(producer, dict) else ""
    algorithm = str(inner.get("quant_algo") or given.get("quant_algo") or "").upper()
    method = str(given.get("quant_method") or "").lower().replace("compressed_tensors", "compressed-tensors")
    if producer == "modelopt" or "modelopt" in method or (not method and algorithm):
        if algorithm in _MODELOPT_FP8:
            return "modelopt"
        others = {"NVFP4": "modelopt_fp4", "MXFP8": "modelopt_mxfp8", "MIXED_PRECISION": "modelopt_mixed"}
        return others.get(algorithm, method or "modelopt")
    return method


def _scheme(method: str, given: dict[str, Any]) -> str:
    match method:
        case "fp8":
            block = given.get("weight_block_size")
            return (
                f"fp8 blocks of {'x'.join(map(str, block))}" if isinstance(block, list) else "fp8 per tensor"
            )
        case "gptq" | "awq" | "awq_marlin" | "gptq_marlin":
            return f"{method} {given.get('bits', given.get('w_bit', '?'))} bit"
        case "compressed-tensors":
            return f"compressed-tensors {given.get('format') or ''}".strip()
        case "bitsandbytes":
            bits = "4" if given.get("load_in_4bit") or given.get("_load_in_4bit") else "8"
            return f"bitsandbytes {bits} bit"
    return method


def _ascend(value: dict[str, Any]) -> tuple[Quantization, list[Finding]]:
    """ModelSlim's description: tensor name -> kind (``FLOAT``, ``W8A8``, ``W8A8_DYNAMIC`` and so on)."""
    kinds = Counter(kind for key, kind in value.items() if key.endswith(".weight") and isinstance(kind, str))
    scheme = str(value.get("model_quant_type") or "")
    scheme = scheme or next((kind for kind, _ in kinds.most_common() if kind != "FLOAT"), "")
    details = {"kinds": dict(kinds.most_common(8)), "group_size": value.get("group_size")}
    what = f"{_DESCRIPTION} describes no weight"
    findings = [] if kinds else [error("quantization-description", what, _DESCRIPTION)]
    return Quantization("ascend", scheme, _DESCRIPTION, details), findings


def check_quantization(
    found: Quantization, tensors: dict[str, Tensor], description: dict[str, Any] | None
) -> list[Finding]:
    """Hold the tensors against the method."""
    if not tensors:
        return []
    findings = _check_scales(found, tensors)
    findings += _check_description(tensors, description) if found.method == "ascend" and description else []
    return findings + _packed(found, tensors)


def _check_scales(found: Quantization, tensors: dict[str, Tensor]) -> list[Finding]:
    """Every fp8 weight has its scale and every scale its weight; block scales fit their weights."""
    weights = {name for name, one in tensors.items() if one.dtype in _FP8 and not name.endswith(SCALES)}
    block = found.details.get("weight_block_size")
    needs = found.method in ("fp8", "modelopt", "compressed-tensors", "deepseek_v4_fp8", "fbgemm_fp8", "")
    lacking = [name for name in weights if not _scales_of(name, tensors)] if needs else []
    lonely = [
        name
        for name in tensors
        if name.endswith((".weight_scale_inv", ".weight_scale"))
        and not _KV_SCALE.search(name)
        and not any(_SCALE_OF.sub(end, name) in tensors for end in ("", "_packed", "_quantized"))
    ]
    wrong = [name for name in weights if isinstance(block, list) and not _fits(name, tensors, block)]
    result = listed("scale-missing", f"{len(lacking)} of {len(weights)} fp8 weights have no scale", lacking)
    result += listed("scale-unpaired", f"{len(lonely)} scales belong to no weight", lonely)
    said = f"{len(wrong)} scales do not have the shape of blocks of {block}"
    result += listed("scale-shape", said, wrong)
    if weights and not found.method:
        what = f"{len(weights)} weights are fp8 and no configuration says how they are quantized"
        result.append(error("quantization-undeclared", what, min(weights)))
    if found.method == "fp8" and not weights:
        what = "the configuration says fp8 and no tensor is"
        result.append(error("quantization-absent", what))
    return result


def _scales_of(name: str, tensors: dict[str, Tensor]) -> list[str]:
    stem = name.removesuffix(".weight")
    ends = ("scale", "weight_scale", "scales")
    options = (f"{name}_scale_inv", f"{name}_scale", *(f"{stem}.{end}" for end in ends))
    return [one for one in options if one in tensors and one != name]


def _fits(name: str, tensors: dict[str, Tensor], block: list[Any]) -> bool:
    scale, weight = tensors.get(f"{name}_scale_inv"), tensors[name]
    plain = len(block) == 2 and all(type(size) is int and size > 0 for size in block)
    if scale is None or not plain or len(weight.shape) < 2 or len(scale.shape) != len(weight.shape):
        return True
    rows, columns = weight.shape[-2:]
    return scale.shape[-2:] == (-(-rows // block[0]), -(-columns // block[1]))


def _check_description(tensors: dict[str, Tensor], description: dict[str, Any]) -> list[Finding]:
    described = {key for key, kind in description.items() if isinstance(kind, str) and key in tensors}
    weights = {name for name in tensors if name.endswith(".weight")}
    unknown = weights - described
    named = {key for key, kind in description.items() if isinstance(kind, str)} - tensors.keys()
    absent = [key for key in named if key.endswith((".weight", "_scale", "_offset", ".deq_scale"))]
    quantized = (key for key in described & weights if description[key] != "FLOAT")
    plain = [key for key in quantized if BITS[tensors[key].dtype] > 8]
    kind = tensors[min(plain)].dtype if plain else ""
    return [
        *listed("description-lacks", f"{len(unknown)} weights are not in {_DESCRIPTION}", unknown),
        *listed("description-extra", f"{_DESCRIPTION} names tensors no shard has", absent),
        *listed("description-dtype", f"{len(plain)} weights described as quantized are {kind}", plain),
    ]


def _packed(found: Quantization, tensors: dict[str, Tensor]) -> list[Finding]:
    """Packed integer weights have their scales and zero points."""
    method = found.method.removeprefix("auto_").removesuffix("_marlin")
    if method not in ("gptq", "awq"):
        if any(name.endswith(".qweight") for name in tensors) and not found.method:
            return [error("quantization-undeclared", "packed weights (qweight) and no quantization_config")]
        return []
    stems = [name.removesuffix("qweight") for name in tensors if name.endswith(".qweight")]
    if not stems:
        what = f"the configuration says {found.method} and no tensor is packed"
        return [error("quantization-absent", what)]
    wanted = {f"{stem}{other}" for stem in stems for other in ("qzeros", "scales")}
    lacking = wanted - tensors.keys()
    return listed("scale-missing", f"packed weights without {len(lacking)} of their tensors", lacking)
