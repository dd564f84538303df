"""``python -m npu_upgrade.checkpoint.derive [--check]``: the facts that the skill ships, from two releases.

Written to ``facts.json`` beside this file: what configuration classes default to, and which architectures
vLLM registers with which abilities. They answer where no vLLM is at hand; with one, its own source does.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from npu_upgrade.environments.tools import ensure_tools

TRANSFORMERS = "pypi:transformers==5.23.0"
VLLM = "pypi:vllm==0.30.0"
FACTS = Path(__file__).with_name("facts.json")


def derive(transformers: str = TRANSFORMERS, vllm: str = VLLM) -> dict[str, Any]:
    """The facts of these two sources."""
    from npu_upgrade.checkpoint.architectures import architecture_facts
    from npu_upgrade.checkpoint.config_classes import read_classes
    from npu_upgrade.checkpoint.registry import read_registry
    from npu_upgrade.sources import open_source

    library, engine = open_source(transformers), open_source(vllm)
    own, common = read_classes(engine), read_classes(library)
    types = {one.model_type: name for name, one in common.items() if one.model_type}
    types |= {kind: name for kind, name in config_registry(engine.read(CONFIG)).items() if name in own}
    classes = common | {name: own[name] for name in own}
    return {
        "read_from": [transformers, vllm],
        "configs": {
            kind: config_facts(classes[types[kind]], classes)
            for kind in sorted(types)
            if types[kind] in classes
        },
        "base_models": auto_models(library.read(AUTO)),
        "transformers": sorted(wrapped_models(library) - read_registry(engine).models.keys()),
        "latent_types": latent_types(engine.read(CONVERTOR)),
    } | architecture_facts(engine)


CONVERTOR = "vllm/transformers_utils/model_arch_config_convertor.py"
CONFIG = "vllm/transformers_utils/config.py"
AUTO = "src/transformers/models/auto/modeling_auto.py"


def config_facts(one: Any, classes: dict[str, Any]) -> dict[str, Any]:
    """One configuration class as JSON: only what the analysis reads, only what says something."""
    from npu_upgrade.checkpoint.config_classes import KEYS

    wanted = KEYS | {one.aliases.get(key, key) for key in KEYS}
    parts = {key: classes[name].model_type for key, name in one.parts.items() if name in classes}
    facts = {
        "defaults": {key: value for key, value in one.defaults.items() if key in wanted},
        "aliases": {key: value for key, value in one.aliases.items() if {key, value} & KEYS},
        "parts": {key: kind for key, kind in parts.items() if kind},
        "copies": {key: value for key, value in one.copies.items() if key in KEYS},
        "text": one.text,
    }
    return {key: value for key, value in facts.items() if value}


def config_registry(source: str) -> dict[str, str]:
    """Model type -> class of vLLM's own configuration registry."""
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id="_CONFIG_REGISTRY"), value=ast.Call(keywords=keywords)):
                for word in keywords:
                    pairs = {word.arg: word.value} if word.arg else _pairs(word.value)
                    found |= {key: ast.literal_eval(value) for key, value in pairs.items()}
    return found


def _pairs(node: ast.expr) -> dict[str, ast.expr]:
    if not isinstance(node, ast.Dict):
        return {}
    return {ast.literal_eval(key): value for key, value in zip(node.keys, node.values, strict=True) if key}


def auto_models(source: str) -> dict[str, str]:
    """Model type -> base model class, what vLLM takes when a config.json names no architecture."""
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="MODEL_MAPPING_NAMES")], value=value):
                tuples = [one for one in ast.walk(value) if isinstance(one, ast.Tuple) and _plain(one)]
                return dict(sorted(ast.literal_eval(pair) for pair in tuples))
    return {}


def wrapped_models(tree: Any) -> set[str]:
    """Model classes of Transformers whose attention can be replaced, so that vLLM can run them itself."""
    found: set[str] = set()
    for path in tree.list("src/transformers/models/"):
        if path.rpartition("/")[2].startswith("modeling_"):
            text = tree.read(path)
            own_attention = re.search(r"^class \w*Attention\w*\(nn\.Module\):", text, re.MULTILINE)
            replaceable = not own_attention or "ALL_ATTENTION_FUNCTIONS.get_interface(" in text
            if replaceable or "_supports_attention_backend = True" in text:
                exported = re.search(r"^__all__ = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
                found |= set(re.findall(r"\w+", exported[1])) if exported else set()
    suffixes = (
        "ForCausalLM",
        "LMHeadModel",
        "ForConditionalGeneration",
        "Model",
        "ForSequenceClassification",
    )
    return {name for name in found if name.endswith(suffixes) and not name.endswith("PreTrainedModel")}


def latent_types(source: str) -> list[str]:
    """The model types vLLM runs with latent attention (MLA) when they have its ranks."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "is_deepseek_mla":
            lists = [item for item in ast.walk(node) if isinstance(item, ast.Tuple) and len(item.elts) > 4]
            return sorted({kind for item in lists for kind in ast.literal_eval(item)})
    return []


def _plain(pair: ast.Tuple) -> bool:
    return len(pair.elts) == 2 and all(
        isinstance(item, ast.Constant) and isinstance(item.value, str) for item in pair.elts
    )


def as_text(value: dict[str, Any]) -> str:
    """JSON with a line for each entry of each table, so that a change is a line."""
    parts = []
    for name, table in sorted(value.items()):
        if isinstance(table, dict):
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(table[key])}" for key in sorted(table))
            parts.append(f"{json.dumps(name)}: {{\n{lines}\n}}")
        else:
            lines = ",\n".join(json.dumps(item) for item in table)
            parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(argv: list[str]) -> int:
    text = as_text(derive())
    if "--check" in argv:
        fresh = FACTS.read_text(encoding="utf-8") == text
        print(f"{FACTS.name} is {'as derived' if fresh else 'stale: run this without --check'}")
        return 0 if fresh else 1
    from npu_upgrade.ground.files import write_atomic

    write_atomic(FACTS, text)
    print(f"{FACTS.name}: {len(text)} characters from {TRANSFORMERS} and {VLLM}")
    return 0


if __name__ == "__main__":
    ensure_tools()
    sys.exit(main(sys.argv[1:]))
