"""How the GPU side's words are said on the NPU side.

Class names are derived from the layout of the runners; only what cannot be derived stands in
the tables. Text in strings and comments is left alone.
"""

from __future__ import annotations

import ast
import functools
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping

from npu_upgrade.code.portable import tokens
from npu_upgrade.lineage.layout import RUNNERS

NAMES = {
    "CUDAGraphWrapper": "ACLGraphWrapper",
    "set_forward_context": "set_ascend_forward_context",
}
"""Names of vLLM's that have another name in vllm-ascend."""

MEMBERS = {("torch", "cuda"): "npu"}
"""Attributes with another name, by what they are read from: ``torch.cuda`` is ``torch.npu``."""

KEYWORDS = {"set_forward_context": {"cudagraph_runtime_mode": "aclgraph_runtime_mode"}}
"""Keyword arguments with another name, by the function they are given to (its GPU name)."""

_DEVICE = re.compile(r"cuda(?!_?graph)|nvtx|cupy", re.IGNORECASE)

Edit = tuple[int, int, str, str]
"""Line (1-based), column, the word there, and the word to put there."""


def translate(source: str, upstream: Mapping[str, str] | None = None) -> str:
    """GPU source in the words of the NPU side; raises :class:`SyntaxError`.

    ``upstream`` are further names, such as vLLM's runner class and vllm-ascend's.
    """
    return _translate(source, tuple(sorted((upstream or {}).items())))


def is_device_bound(keys: Iterable[str]) -> bool:
    """Whether translated statements still speak of CUDA itself (of its graphs, vllm-ascend speaks too)."""
    return any(_DEVICE.search(key) for key in keys)


def class_names() -> dict[str, str]:
    """The GPU runner classes and the NPU classes that correspond to them."""
    return {runner.gpu_class: runner.class_name for runner in RUNNERS}


@functools.lru_cache(maxsize=64)
def _translate(source: str, upstream: tuple[tuple[str, str], ...]) -> str:
    names = NAMES | class_names() | dict(upstream)
    edits = [*_names(source, names), *_keywords(source)]
    lines = source.split("\n")
    for row, column, old, new in sorted(edits, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + new + line[column + len(old) :]
    return "\n".join(lines)


def _names(source: str, names: Mapping[str, str]) -> Iterator[Edit]:
    before = ("", "")
    for token in tokens(source):
        if token.type == tokenize.NAME:
            word = token.string
            other = MEMBERS.get((before[0], word)) if before[1] == "." else names.get(word)
            if other:
                yield (*token.start, word, other)
        before = (before[1] if token.string == "." else "", token.string)


def _keywords(source: str) -> Iterator[Edit]:
    lines = source.split("\n")
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        table = KEYWORDS.get(ast.unparse(call.func), {})
        for keyword in call.keywords:
            if keyword.arg and (other := table.get(keyword.arg)):
                line = lines[keyword.lineno - 1].encode()[: keyword.col_offset]
                yield keyword.lineno, len(line.decode()), keyword.arg, other
