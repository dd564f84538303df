"""How one device's side of a project says what another side says: names, and the words of devices.

Class names are derived from the runners at hand; only what cannot be derived stands in the
tables. Text in strings and comments is left alone.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import all_imports
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import dotted, last_name, walk
from npu_upgrade.sources.tree import SourceTree

NAMES = {
    "CUDAGraphWrapper": "ACLGraphWrapper",
    "set_forward_context": "set_ascend_forward_context",
}
"""Names of vLLM's that have another name in vllm-ascend."""

MEMBERS = {("torch", "cuda"): "npu"}
"""Attributes with another name, by what they are read from: ``torch.cuda`` is ``torch.npu``."""

KEYWORDS = {"set_forward_context": {"cudagraph_runtime_mode": "aclgraph_runtime_mode"}}
"""Keyword arguments with another name, by the function they are given to (its GPU name)."""

MAIN_DEVICE = ("gpu", "cuda")
"""What the device of vLLM itself is called: the side that the others mirror."""

DEVICE = "npu"
"""What the device of this program's users is called, where a project does not name another."""

_CUDA = re.compile(r"cuda(?!_?graph)|nvtx|cupy|nccl|nvml|flashinfer|rocm|musa|xpu", re.IGNORECASE)

# Features that vllm-ascend has its own version of, under other names.
_REPLACED = re.compile(r"eplb|triton|deep_?gemm|ubatch")
_OWNER = re.compile(r"(\w*)\s*\.$")
_KERNELS = re.compile(r"triton|cuda(?!_?graph)", re.IGNORECASE)

Edit = tuple[int, int, str, str]
"""Line (1-based), column, the word there, and the word to put there."""


def translate(source: str, names: Mapping[str, str] | None = None) -> str:
    """GPU source in the words of the NPU side; raises :class:`SyntaxError`.

    ``names`` are further names: those of the runner classes, vLLM's runner class and vllm-ascend's.
    """
    return _translate(source, tuple(sorted((names or {}).items())))


def is_device_bound(text: str) -> bool:
    """Whether a name or an expression speaks of CUDA or its libraries, which another device lacks."""
    return bool(_CUDA.search(text))


def is_replaced(text: str) -> bool:
    """Whether it belongs to what vllm-ascend does in its own way."""
    return bool(_REPLACED.search(text))


def speaks_of_kernels(text: str) -> bool:
    """Whether a function, its docstring included, is about Triton or CUDA kernels."""
    return bool(_KERNELS.search(text))


def neutral(name: str, device: str = DEVICE) -> str:
    """A name without the words of devices: equal for an NPU class and the GPU class it mirrors."""
    return _device_words(device).sub("", name).strip("_")


def is_for_device(name: str, device: str = DEVICE) -> bool:
    """Whether one of the words of a name is that of the device."""
    return bool(_words_of(device).search(name))


@functools.lru_cache(maxsize=64)
def _words_of(device: str) -> re.Pattern[str]:
    title = f"(?<![A-Z]){device.upper()}|{device.capitalize()}(?![a-z])"
    return re.compile(rf"(?<![a-zA-Z]){device}(?![a-z])|{title}")


@functools.lru_cache(maxsize=64)
def _device_words(device: str) -> re.Pattern[str]:
    every = [word for word in (device, *MAIN_DEVICE) if word]
    camel = (form for word in every for form in (word.upper(), word.capitalize()))
    return re.compile("|".join([*camel, *(rf"(?<![a-zA-Z]){word}(?![a-z])" for word in every)]))


@functools.lru_cache(maxsize=64)
def _translate(source: str, names: tuple[tuple[str, str], ...]) -> str:
    nodes, lines = walk(ast.parse(source)), source.split("\n")
    strings = _strings(nodes)
    edits = [*_names(lines, NAMES | dict(names)), *_keywords(nodes, lines)]
    for row, column, old, new in sorted(edits, reverse=True):
        line = lines[row - 1]
        if _is_code(line, column, row, strings.get(row, [])):
            lines[row - 1] = line[:column] + new + line[column + len(old) :]
    return "\n".join(lines)


def _names(lines: Sequence[str], names: Mapping[str, str]) -> Iterator[Edit]:
    """The names with another one, those in strings and comments too."""
    words = re.compile(rf"\b(?:{'|'.join(map(re.escape, {*names, *(word for _, word in MEMBERS)}))})\b")
    for row, line in enumerate(lines, 1):
        for found in words.finditer(line):
            before = line[: found.start()].rstrip() or (lines[row - 2].rstrip() if row > 1 else "")
            word, owner = found[0], _OWNER.search(before)
            other = MEMBERS.get((owner[1], word)) if owner else names.get(word)
            if other:
                yield row, found.start(), word, other


def _keywords(nodes: Iterable[ast.AST], lines: Sequence[str]) -> Iterator[Edit]:
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        table = KEYWORDS.get(dotted(call.func), {})
        for keyword in call.keywords:
            if keyword.arg and (other := table.get(keyword.arg)):
                line = lines[keyword.lineno - 1].encode()[: keyword.col_offset]
                yield keyword.lineno, len(line.decode()), keyword.arg, other


def _strings(nodes: Iterable[ast.AST]) -> dict[int, list[ast.expr]]:
    """The strings that stand in each line."""
    found: dict[int, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            for row in range(node.lineno, (node.end_lineno or 0) + 1):
                found.setdefault(row, []).append(node)
    return found


def _is_code(line: str, column: int, row: int, strings: Sequence[ast.expr]) -> bool:
    """Whether a place of a line is in no string and no comment."""

    def in_string(at: int) -> bool:
        place = row, len(line[:at].encode())
        ends = (((s.lineno, s.col_offset), (s.end_lineno or 0, s.end_col_offset or 0)) for s in strings)
        return any(start <= place < end for start, end in ends)

    return not in_string(column) and all(in_string(at.start()) for at in re.finditer("#", line[:column]))


def idle_without_cuda(tree: SourceTree, paths: Iterable[str]) -> frozenset[str]:
    """Functions of the modules that these files import that return where torch.cuda is not available.

    An NPU is such a place: whoever calls one gets nothing, and no error.
    """
    imported = {item.module for path in paths for item in all_imports(tree.read(path))}
    modules = sorted(f"{module.replace('.', '/')}.py" for module in imported)
    texts = [tree.read(path) for path in modules if tree.exists(path)]
    nodes = (node for text in texts if "cuda.is_available" in text for node in walk(parse_module(text).tree))
    return frozenset(
        node.name
        for node in nodes
        if isinstance(node, Function) and any(map(_leaves_without_cuda, node.body))
    )


def written_for_cuda(tree: SourceTree, paths: Iterable[str]) -> frozenset[str]:
    """Functions of these files, outside of classes, that use torch.cuda or ask whether a tensor is on CUDA.

    With those that call them. Where they are imported nothing translates them.
    """
    found: dict[str, set[str]] = {}  # function -> what it calls
    bound = set[str]()
    for path in paths:
        for node in parse_module(tree.read(path)).tree.body:
            if isinstance(node, Function):
                inside = list(walk(node))
                found[node.name] = {last_name(one.func) for one in inside if isinstance(one, ast.Call)}
                bound |= {node.name} if any(map(_is_of_cuda, inside)) else set()
    while more := {name for name, called in found.items() if called & bound} - bound:
        bound |= more
    return frozenset(bound)


def _is_of_cuda(node: ast.AST) -> bool:
    """``torch.cuda.Stream``, ``tensor.is_cuda``, ``device.type == "cuda"``."""
    if isinstance(node, ast.Attribute):
        return node.attr == "is_cuda" or (dotted(node.value) == "torch.cuda" and node.attr != "is_available")
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    return any(isinstance(one, ast.Constant) and one.value == "cuda" for one in sides)


def _leaves_without_cuda(node: ast.stmt) -> bool:
    """Whether a statement ends its function where torch.cuda is not available."""
    if not isinstance(node, ast.If) or not any(isinstance(one, ast.Return) for one in node.body):
        return False
    test = node.test
    ways = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    return any(ast.unparse(way) == "not torch.cuda.is_available()" for way in ways)
