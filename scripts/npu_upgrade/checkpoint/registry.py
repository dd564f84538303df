"""Which architectures a vLLM, a vllm-ascend or a plugin registers, read from the registering source."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.checkpoint.model_classes import ClassReader, ModelClass, statements
from npu_upgrade.sources.tree import SourceTree

MODELS = "vllm.model_executor.models"
REGISTRY = "vllm/model_executor/models/registry.py"
FLAGS = ("is_hybrid", "is_attention_free", "has_inner_state", "has_noops", "supports_multimodal")
MORE_FLAGS = ("supports_pp", "supports_lora", "supports_transcription", "is_pooling_model")


@dataclass
class Registry:
    """``models``: architecture -> (module, class); ``kinds``: architecture -> the group it is listed in;
    ``removed``: architecture -> last version that had it; ``moved``: architecture -> plugin to install."""

    models: dict[str, tuple[str, str]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)


def read_registry(tree: SourceTree) -> Registry:
    """The registry of a vLLM source; empty when the file is not there."""
    found = Registry()
    if not tree.exists(REGISTRY):
        return found
    for node in statements(ast.parse(tree.read(REGISTRY)).body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Dict):
            _take(found, target.id, value)
    return found


def _take(found: Registry, group: str, value: ast.Dict) -> None:
    for key, item in zip(value.keys, value.values, strict=True):
        try:
            name, entry = ast.literal_eval(key) if key else None, ast.literal_eval(item)
        except ValueError:
            continue
        if isinstance(name, str):
            if re.search(r"PREVIOUS", group):
                found.removed[name] = str(entry)
            elif re.search(r"OOT|OUT_OF_TREE", group):
                found.moved[name] = str(entry)
            elif group.endswith("_MODELS") and isinstance(entry, tuple) and len(entry) == 2:
                found.models[name] = (_absolute(entry[0]), entry[1])
                found.kinds[name] = group.strip("_").removesuffix("_MODELS").lower()


def _absolute(module: str) -> str:
    return module if module.startswith("vllm.") else f"{MODELS}.{module}"


def registered_by_calls(tree: SourceTree, package: str) -> dict[str, tuple[str, str]]:
    """``register_model("Arch", "module:Class")`` calls below ``package``; a class handed over is a name."""
    found: dict[str, tuple[str, str]] = {}
    for path in tree.list(package):
        if path.endswith(".py") and "register_model(" in (text := tree.read(path)):
            try:
                parsed = ast.parse(text)
            except SyntaxError:
                continue
            for node in ast.walk(parsed):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "register_model":
                    found |= _call(node, path)
    return found


def _call(node: ast.Call, path: str) -> dict[str, tuple[str, str]]:
    given: list[Any] = [*node.args, *(word.value for word in node.keywords)]
    if len(given) < 2 or not isinstance(given[0], ast.Constant):
        return {}
    if isinstance(given[1], ast.Constant):
        module, _, name = str(given[1].value).partition(":")
    else:
        module, name = path.removesuffix(".py").replace("/", "."), getattr(given[1], "id", "")
    return {str(given[0].value): (module, name)}


def traits(reader: ClassReader, one: ModelClass) -> dict[str, bool]:
    """What vLLM asks the class: hybrid, without attention, multimodal, pooling and so on."""
    return {name: bool(reader.attribute(one, name, False)) for name in FLAGS + MORE_FLAGS}
