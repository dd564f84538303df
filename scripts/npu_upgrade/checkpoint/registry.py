"""What sources register: the models of vLLM, vllm-ascend and plugins, and what their classes can do.

Everything is read from source: vLLM's registry, calls of ``register_model``, the attributes of model classes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.code.definitions import top_level
from npu_upgrade.program.program import ClassSymbol, File, Method, Program, ValueSymbol
from npu_upgrade.sources.tree import SourceTree, open_source

MODELS = "vllm.model_executor.models"
REGISTRY = "vllm/model_executor/models/registry.py"
_TRAITS = (
    *("is_hybrid", "is_attention_free", "has_inner_state", "has_noops", "supports_multimodal"),
    *("supports_pp", "supports_lora", "supports_transcription", "is_pooling_model"),
)
_PACKAGES = ("vllm", "vllm_ascend")


class ModelSources(Program):
    """The sources of vLLM and vllm-ascend with their model classes.

    ``models``: architecture -> (module, class) of a registry; ``text_architecture``: what the configuration
    at hand names for the text model inside of a multimodal one. Both may be left empty.
    """

    def __init__(self, *trees: SourceTree) -> None:
        packages = {name: tree for tree in reversed(trees) for name in _PACKAGES if tree.list(name)}
        super().__init__(packages)
        self.models: dict[str, tuple[str, str]] = {}
        self.text_architecture = ""

    def find(self, module: str, name: str) -> ClassSymbol | None:
        """The class ``name`` of ``module``, through imports."""
        file = self.module(module)
        # of branches for platforms, the last is for those that vLLM does not name, such as the NPU
        imports = reversed(file.imports.get(name, [])) if file else ()
        found = [*map(self.imported, imports), self.lookup(module, name)]
        return next((one for one in found if isinstance(one, ClassSymbol)), None)

    def registered(self, architecture: str) -> ClassSymbol | None:
        """The class that the registry has for an architecture."""
        module, name = self.models.get(architecture, ("", ""))
        return self.find(module, name) if module else None

    def traits(self, cls: ClassSymbol) -> list[str]:
        """What the class says it can do when vLLM asks: hybrid, multimodal, pooling and so on."""
        return sorted(name for name in _TRAITS if literal(next(values(cls, name), (cls, None))[1]))


def values(cls: ClassSymbol, name: str) -> Iterator[tuple[ClassSymbol, ast.expr]]:
    """The expressions that class bodies set an attribute to, each with its class; what holds comes first."""
    for owner in cls.mro:
        value = getattr(owner.fields.get(name), "value", None)
        if value is not None:
            yield owner, value


def methods(cls: ClassSymbol, name: str) -> Iterator[Method]:
    """The definitions of a method along the bases, the one that runs first."""
    return (owner.methods[name] for owner in cls.mro if name in owner.methods)


def literal(value: ast.expr | None) -> Any:
    """What an expression of constants stands for, None for others."""
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None


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
    for node in top_level(ast.parse(tree.read(REGISTRY)).body):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=group)], value=ast.Dict() as value)
                | ast.AnnAssign(target=ast.Name(id=group), value=ast.Dict() as value)
            ):
                _take(found, group, value)
    return found


def _take(found: Registry, group: str, value: ast.Dict) -> None:
    for key, item in zip(value.keys, value.values, strict=True):
        name, entry = literal(key), literal(item)
        if not isinstance(name, str) or entry is None:
            continue
        if "PREVIOUS" in group:
            found.removed[name] = str(entry)
        elif re.search(r"OOT|OUT_OF_TREE", group):
            found.moved[name] = str(entry)
        elif group.endswith("_MODELS") and isinstance(entry, tuple) and len(entry) == 2:
            module = entry[0] if entry[0].startswith("vllm.") else f"{MODELS}.{entry[0]}"
            found.models[name] = (module, entry[1])
            found.kinds[name] = group.strip("_").removesuffix("_MODELS").lower()


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


def plugin_models(folders: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Architecture -> (module, class) of plugins by their source; ``folders``: package -> its folder."""
    found: dict[str, tuple[str, str]] = {}
    for package, folder in folders.items():
        found |= registered_by_calls(open_source(f"dir:{Path(folder).parent}"), package)
    return found


@dataclass
class Ascend:
    """A vllm-ascend source: ``models`` that it registers, ``quantizations`` that its platform takes.

    ``needs_blocks``: the file that refuses fp8 weights without a scale for each block, empty for none.
    """

    tree: SourceTree
    models: dict[str, tuple[str, str]] = field(default_factory=dict)
    quantizations: list[str] = field(default_factory=list)
    needs_blocks: str = ""

    def adaptations(self, module: str, cls: str) -> list[str]:
        """Patches (``FILE:LINE``) whose text imports or names the vLLM module or class."""
        leaf = module.rpartition(".")[2]
        if not leaf:
            return []
        named = [rf"models\.{re.escape(leaf)}\b", *([rf"\b{re.escape(cls)}\b"] if cls else [])]
        wanted = re.compile("|".join(named))
        found = []
        for path in self.tree.list("vllm_ascend/patch"):
            if path.endswith(".py"):
                lines = self.tree.read(path).splitlines()
                hit = next((number for number, line in enumerate(lines, 1) if wanted.search(line)), 0)
                if hit and not lines[hit - 1].lstrip().startswith("#"):
                    found.append(f"{path}:{hit}")
        return found


def read_ascend(tree: SourceTree) -> Ascend:
    """The facts of a vllm-ascend source."""
    platform = ModelSources(tree).module("vllm_ascend.platform")
    quantizations = sorted(string_list(platform, "supported_quantization")[0])
    return Ascend(tree, registered_by_calls(tree, "vllm_ascend/models"), quantizations, _needs_blocks(tree))


def _needs_blocks(tree: SourceTree) -> str:
    """The file with ``if self.weight_block_size is None: raise``."""
    for path in tree.list("vllm_ascend/quantization"):
        if path.endswith(".py") and "weight_block_size is None" in (text := tree.read(path)):
            for node in ast.walk(ast.parse(text)):
                refuses = isinstance(node, ast.If) and any(isinstance(one, ast.Raise) for one in node.body)
                if refuses and "weight_block_size is None" in ast.unparse(node.test):
                    return path
    return ""


def string_list(file: File | None, name: str) -> tuple[list[str], int]:
    """The strings of the list or ``Literal`` that ``file`` calls ``name``, and its line."""
    for node in file.nodes if file else ():
        target = getattr(node, "target", None) or next(iter(getattr(node, "targets", [])), None)
        listed = getattr(node, "value", None)
        if file and listed and getattr(target, "id", "") == name:
            inner = listed.slice if isinstance(listed, ast.Subscript) else listed
            texts = (literal(_constant(file, one)) for one in getattr(inner, "elts", [inner]))
            if found := [text for text in texts if isinstance(text, str)]:
                return found, listed.lineno
    return [], 0


def _constant(file: File, value: ast.expr) -> ast.expr | None:
    """What a name of ``file`` is set to; any other expression as it is."""
    symbol = file.resolve(value)
    return getattr(symbol.node, "value", None) if isinstance(symbol, ValueSymbol) else value
