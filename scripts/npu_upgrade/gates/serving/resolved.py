"""What the server made of its options: its own resolved configuration, and the cache sizes it logged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_PLACES = {
    "architecture": ("model_config", "architecture"),
    "architectures": ("model_config", "hf_config", "architectures"),
    "dtype": ("model_config", "dtype"),
    "max_model_len": ("model_config", "max_model_len"),
    "quantization": ("model_config", "quantization"),
    "enforce_eager": ("model_config", "enforce_eager"),
    "trust_remote_code": ("model_config", "trust_remote_code"),
    "runner_type": ("model_config", "runner_type"),
    "multimodal_config": ("model_config", "multimodal_config"),
    "tensor_parallel_size": ("parallel_config", "tensor_parallel_size"),
    "pipeline_parallel_size": ("parallel_config", "pipeline_parallel_size"),
    "data_parallel_size": ("parallel_config", "data_parallel_size"),
    "enable_expert_parallel": ("parallel_config", "enable_expert_parallel"),
    "distributed_executor_backend": ("parallel_config", "distributed_executor_backend"),
    "max_num_seqs": ("scheduler_config", "max_num_seqs"),
    "max_num_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
    "gpu_memory_utilization": ("cache_config", "gpu_memory_utilization"),
    "block_size": ("cache_config", "block_size"),
    "kv_cache_dtype": ("cache_config", "cache_dtype"),
    "load_format": ("load_config", "load_format"),
    "compilation_mode": ("compilation_config", "mode"),
    "cudagraph_mode": ("compilation_config", "cudagraph_mode"),
    "speculative_config": ("speculative_config",),
    "lora_config": ("lora_config",),
    "additional_config": ("additional_config",),
    "device": ("device_config", "device_type"),
}
_STARTS = "LLM engine"
_LOGGED = {
    "dtype": "dtype",
    "max_model_len": "max_seq_len",
    "load_format": "load_format",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "quantization": "quantization",
    "enforce_eager": "enforce_eager",
    "trust_remote_code": "trust_remote_code",
    "device": "device_config",
}
_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_MISSING = object()


def resolved(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that matter, from vLLM's whole configuration; what it does not have is left out."""
    found = {}
    for name, place in _PLACES.items():
        value = _at(config, place)
        if value is not _MISSING:
            found[name] = value
    if "multimodal_config" in found:
        found["is_multimodal"] = found.pop("multimodal_config") is not None
    if "architecture" not in found and found.get("architectures"):
        found["architecture"] = found["architectures"][0]
    if isinstance(found.get("dtype"), str):
        found["dtype"] = found["dtype"].removeprefix("torch.")
    return found


def logged(log: Path) -> dict[str, Any]:
    """The settings that the engine logs when it starts, for a server that does not tell them."""
    with open(log, encoding="utf-8", errors="replace") as stream:
        line = next((one for one in stream if _STARTS in one and "with config:" in one), "")
    found = {}
    for name, key in _LOGGED.items():
        said = re.search(rf"[ (]{key}=('[^']*'|[^,() ]+)", line)
        if said:
            found[name] = _value(said[1])
    if isinstance(found.get("dtype"), str):
        found["dtype"] = found["dtype"].removeprefix("torch.")
    return found


def _value(text: str) -> Any:
    plain = text.strip("'")
    if plain in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[plain]
    return int(plain) if plain.isdigit() else plain


def kv_cache(log: Path) -> dict[str, Any] | None:
    """Tokens that fit into the cache, and how many requests of full length at once, as vLLM logged them."""
    found: dict[str, Any] = {}
    with open(log, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if "KV cache size" in line and (size := _CACHE.search(line)):
                found["tokens"] = int(size[1].replace(",", ""))
            if "Maximum concurrency" in line and (most := _CONCURRENCY.search(line)):
                found |= {"per_request": int(most[1].replace(",", "")), "max_concurrency": float(most[2])}
    return found or None


def _at(config: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        if not isinstance(config, dict) or key not in config:
            return _MISSING
        config = config[key]
    return config
