"""What a vllm-ascend source has for a model: registrations, patches, and the quantizations it takes."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from npu_upgrade.checkpoint.registry import registered_by_calls
from npu_upgrade.sources.tree import SourceTree

_PLATFORM = "vllm_ascend/platform.py"
_CONSTANTS = "vllm_ascend/utils.py"


@dataclass
class Ascend:
    """``models``: architectures it registers; ``quantizations``: names its platform accepts."""

    tree: SourceTree
    models: dict[str, tuple[str, str]] = field(default_factory=dict)
    quantizations: list[str] = field(default_factory=list)

    @property
    def spec(self) -> str:
        return self.tree.spec

    def adaptations(self, module: str, cls: str) -> list[dict[str, str]]:
        """Patches whose text imports or names the vLLM module or class: file, line and the line's text."""
        leaf = module.rpartition(".")[2]
        if not leaf:
            return []
        wanted = re.compile(
            rf"models\.{re.escape(leaf)}\b|\b{re.escape(cls)}\b" if cls else rf"models\.{re.escape(leaf)}\b"
        )
        found = []
        for path in self.tree.list("vllm_ascend/patch"):
            if path.endswith(".py"):
                lines = self.tree.read(path).splitlines()
                hit = next((number for number, line in enumerate(lines, 1) if wanted.search(line)), 0)
                if hit and not lines[hit - 1].lstrip().startswith("#"):
                    found.append({"file": path, "line": str(hit), "text": lines[hit - 1].strip()[:120]})
        return found


def read_ascend(tree: SourceTree) -> Ascend:
    """The facts of a vllm-ascend source."""
    return Ascend(tree, registered_by_calls(tree, "vllm_ascend/models"), _quantizations(tree))


def _quantizations(tree: SourceTree) -> list[str]:
    if not tree.exists(_PLATFORM):
        return []
    constants = {}
    if tree.exists(_CONSTANTS):
        for node in ast.parse(tree.read(_CONSTANTS)).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                constants |= {
                    target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)
                }
    for node in ast.walk(ast.parse(tree.read(_PLATFORM))):
        target = getattr(node, "target", None) or next(iter(getattr(node, "targets", [])), None)
        listed = getattr(node, "value", None)
        if getattr(target, "id", "") == "supported_quantization" and isinstance(listed, ast.List):
            values = [
                constants.get(getattr(one, "id", ""), getattr(one, "value", None)) for one in listed.elts
            ]
            return sorted(value for value in values if isinstance(value, str))
    return []
