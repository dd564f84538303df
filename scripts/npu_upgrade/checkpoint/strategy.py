"""Which way a model is brought to vllm-ascend: reuse, an adapter of its own, or a patch of the backend."""

from __future__ import annotations

from typing import Any

from npu_upgrade.checkpoint.ascend import Ascend
from npu_upgrade.checkpoint.quantization import Quantization
from npu_upgrade.checkpoint.serving import Serving

# methods whose kernels are CUDA's: on Ascend the weights are converted first
_OTHER_WAYS = {
    "awq": "use an unquantized or a ModelSlim checkpoint, or dequantize while loading",
    "gptq": "use an unquantized or a ModelSlim checkpoint, or dequantize while loading",
    "fp8": "dequantize to bfloat16 while loading, with every weight paired with its scale",
    "mxfp4": "dequantize to bfloat16 while loading",
    "bitsandbytes": "use an unquantized checkpoint",
}


def choose(
    served: Serving,
    quantization: Quantization,
    ascend: Ascend | None,
    mapping: dict[str, Any],
    attention: str,
) -> dict[str, Any]:
    """``name`` (reuse, native adapter, backend patch), ``reasons`` and what to watch (``risks``)."""
    reasons, risks = [served.why], []
    name = "native adapter" if served.by in ("nobody", "removed", "moved") else "reuse"
    if served.by == "moved":
        reasons.append("install that plugin, or write an adapter as a plugin of your own")
    if mapping.get("missing"):
        name = "native adapter"
        reasons.append(
            f"{mapping['missing']} patterns of the checkpoint's tensors have no place in {served.cls}"
        )
    method = quantization.method
    if method and ascend and ascend.quantizations and method not in ascend.quantizations:
        way = _OTHER_WAYS.get(method.removesuffix("_marlin"), "use an unquantized or a ModelSlim checkpoint")
        reasons.append(f"{ascend.spec} takes {', '.join(ascend.quantizations)}, not {method}: {way}")
        name = "backend patch" if name == "reuse" else name
    elif method and ascend is None:
        risks.append(f"whether vllm-ascend takes {method} was not judged: --ascend SPEC")
    if ascend and served.by != "nobody":
        patches = ascend.adaptations(served.module, served.cls)
        reasons += [f"vllm-ascend adapts it in {one['file']}:{one['line']}" for one in patches[:4]]
    if served.by == "transformers":
        risks.append("Transformers' own model runs without vllm-ascend's fused operators")
    if attention in ("dsa", "hybrid", "state"):
        risks.append(f"{attention} attention needs kernels of its own on NPU: run the dummy gate first")
    return {"name": name, "reasons": [reason for reason in reasons if reason], "risks": risks}
