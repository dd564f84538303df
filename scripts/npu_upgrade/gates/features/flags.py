"""The options that a vLLM's command line takes, from its source."""

from __future__ import annotations

import ast
import functools

from npu_upgrade.code.walk import walk
from npu_upgrade.gates.features.package import Package, Place

_BELOW = ("engine/", "entrypoints/")
_FIELDS = "FrontendArgs"  # its fields are options without an add_argument of their own


def flags(vllm: Package) -> dict[str, Place]:
    """Option -> where it is defined."""
    return _flags(vllm)


@functools.lru_cache(maxsize=8)
def _flags(vllm: Package) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for below in _BELOW:
        for path, _text in vllm.holding("add_argument", _FIELDS, below=below):
            tree = vllm.parsed(path)
            for node in walk(tree) if tree else ():
                for name, line in _options(node):
                    found.setdefault(name, Place(path, line))
    return found


def _options(node: ast.AST) -> list[tuple[str, int]]:
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument"):
        texts = [one for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return [(str(one.value), one.lineno) for one in texts if str(one.value).startswith("--")]
    if isinstance(node, ast.ClassDef) and node.name.endswith(_FIELDS):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        return [
            ("--" + one.target.id.replace("_", "-"), one.lineno)
            for one in fields
            if isinstance(one.target, ast.Name)
        ]
    return []
