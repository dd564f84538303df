"""The architectures of a vLLM source, with what their classes can do."""

from __future__ import annotations

from typing import Any

from npu_upgrade.checkpoint.model_classes import ClassReader
from npu_upgrade.checkpoint.registry import Registry, read_registry, traits
from npu_upgrade.sources.tree import SourceTree


def architecture_facts(tree: SourceTree) -> dict[str, Any]:
    """All of the registry as JSON: architecture -> module, class, kind and the abilities it has."""
    registry, reader = read_registry(tree), ClassReader(tree)
    return {
        "architectures": {name: one_architecture(registry, reader, name) for name in sorted(registry.models)},
        "removed": registry.removed,
        "moved": registry.moved,
    }


def one_architecture(registry: Registry, reader: ClassReader, name: str) -> dict[str, Any]:
    """One entry; ``traits`` are the abilities the class has, None when the class was not found."""
    module, cls = registry.models[name]
    found = reader.find(module, cls)
    has = None if found is None else sorted(key for key, value in traits(reader, found).items() if value)
    return {"module": module, "class": cls, "kind": registry.kinds[name], "traits": has}
