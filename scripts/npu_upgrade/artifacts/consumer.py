"""Which keys of an accuracy config the target tree's own test reads.

vllm-ascend moved its serve options into a section and renamed a key between releases, and drops what it
does not know without a word, so the reader is asked, not a version number.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

READER = "tests/e2e/models/test_lm_eval_correctness.py"
_OPTIONS = frozenset(
    {
        *("tensor_parallel_size", "dtype", "max_model_len", "gpu_memory_utilization", "trust_remote_code"),
        *("enforce_eager", "enable_expert_parallel", "quantization"),
    }
)


@dataclass(frozen=True)
class Consumer:
    """``section`` holds the serve options, None: the top level does; ``type_key`` names the model type."""

    section: str | None = "serve"
    type_key: str = "model_type"
    options: frozenset[str] = _OPTIONS


def consumer_of(tree: Path) -> Consumer:
    """What ``tree`` reads; the present form of vllm-ascend where the tree has no reader of its own."""
    try:
        module = ast.parse((tree / READER).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return Consumer()
    texts = {
        node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    builder = next(
        (n for n in ast.walk(module) if isinstance(n, ast.FunctionDef) and n.name == "build_model_args"),
        module,
    )
    forwarded = {
        n.value for n in ast.walk(builder) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    return Consumer(
        section="serve" if "serve" in texts else None,
        type_key="model_type" if "model_type" in texts else "model",
        options=frozenset(_OPTIONS & forwarded),
    )
