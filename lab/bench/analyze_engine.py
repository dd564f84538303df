"""Run by an interpreter with vLLM: start an engine on a tiny checkpoint and say what its cache holds.

``analyze_engine.py FOLDER NAME``: writes the model of that name below FOLDER and prints one JSON line.
"""

import importlib
import json
import os
import sys
from pathlib import Path

CACHE_GIB = 1
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_CPU_KVCACHE_SPACE=str(CACHE_GIB),
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="ERROR",
)


def start(folder):
    """What an engine on this checkpoint reports: cache blocks, and tokens in one."""
    vllm = importlib.import_module("vllm")
    engine = vllm.LLM(model=str(folder), enforce_eager=True, max_model_len=256, max_num_seqs=2)
    cache = engine.llm_engine.vllm_config.cache_config
    return {
        "vllm": vllm.__version__,
        "blocks": cache.num_gpu_blocks,
        "block_size": cache.block_size,
        "cache_bytes": CACHE_GIB * 1024**3,
    }


def main():
    """One model; an engine that does not start is an answer too."""
    root, name = Path(sys.argv[1]), sys.argv[2]
    folder = root / name
    folder.mkdir(parents=True)
    try:
        importlib.import_module(f"npu_emulator.dry_run.models.{name}").make(folder)
        found = start(folder)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"[:500]}
    print(json.dumps({"model": name, **found}), file=OUT, flush=True)


if __name__ == "__main__":
    main()
