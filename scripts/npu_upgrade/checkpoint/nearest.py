"""Which model vLLM has whose modules take most of a checkpoint's tensors: where an adapter may start from."""

from __future__ import annotations

from typing import Any

from npu_upgrade.checkpoint.analysis import Analysis
from npu_upgrade.checkpoint.model_classes import ClassReader
from npu_upgrade.checkpoint.module_tree import ModuleTree
from npu_upgrade.checkpoint.parts import by_pattern
from npu_upgrade.checkpoint.registry import read_registry
from npu_upgrade.sources.tree import SourceTree

# one model of each way to name modules; what a checkpoint is most like is found among them
_TEXT = (
    *(
        "LlamaForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "MixtralForCausalLM",
    ),
    *(
        "DeepseekV2ForCausalLM",
        "Glm4MoeForCausalLM",
        "Gemma3ForCausalLM",
        "Phi3ForCausalLM",
        "GPT2LMHeadModel",
    ),
    *(
        "GPTNeoXForCausalLM",
        "Qwen3NextForCausalLM",
        "MambaForCausalLM",
        "JambaForCausalLM",
        "Olmo2ForCausalLM",
    ),
)
_OTHERS = (
    *(
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "LlavaForConditionalGeneration",
    ),
    *("InternVLForConditionalGeneration", "Qwen2AudioForConditionalGeneration", "BertModel"),
)


def nearest(found: Analysis, tree: SourceTree | None) -> dict[str, Any]:
    """``architecture``, ``module``, ``patterns`` of how many it has, and ``places``: pattern -> name.

    Empty without a vLLM source or without tensor names.
    """
    if tree is None or not found.weights.names:
        return {}
    registry, reader = read_registry(tree), ClassReader(tree)
    examples = {key: names[0] for key, names in by_pattern(found.weights.names).items()}
    best: dict[str, Any] = {}
    for name in (*_TEXT, *(_OTHERS if found.facts["modalities"] else ())):
        module, cls = registry.models.get(name, ("", ""))
        root = reader.find(module, cls) if module else None
        if root is None:
            continue
        modules = ModuleTree(reader, root)
        placed = {pattern: modules.place(example) for pattern, example in examples.items()}
        names = {pattern: place.name for pattern, place in placed.items() if place.state == "found"}
        places = {pattern: next(iter(by_pattern([name]))) for pattern, name in names.items()}
        if len(places) > best.get("patterns", 0):
            path = module.replace(".", "/") + ".py"
            best = {"architecture": name, "module": path, "patterns": len(places), "places": places}
    return best | {"of": len(examples)} if best else {}
