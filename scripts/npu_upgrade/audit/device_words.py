"""Which words speak of one device, so that their absence on another one means nothing."""

from __future__ import annotations

import functools
import re

from npu_upgrade.audit.world import ASCEND
from npu_upgrade.program.places import definitions
from npu_upgrade.program.program import File, Program

# Features that vllm-ascend has its own version of, under other names.
_REPLACED = re.compile(r"eplb|triton|deep_?gemm|ubatch")
_KERNELS = re.compile(r"triton|cuda(?!_?graph)", re.IGNORECASE)


def is_replaced(text: str) -> bool:
    """Whether it belongs to what vllm-ascend does in its own way."""
    return bool(_REPLACED.search(text))


def speaks_of_kernels(text: str) -> bool:
    """Whether a function, its docstring included, is about Triton or CUDA kernels."""
    return bool(_KERNELS.search(text))


_NPU_WORDS = ("ACL", "Acl", "NPU", "Ascend")
_MARKS = re.compile(r"ascend_|_ascend|_npu|npu_|Ascend|NPU")


@functools.lru_cache(maxsize=1024)
def counterpart(program: Program, name: str) -> str:
    """vllm-ascend's class in place of a CUDA or GPU class, as ``module.Class``; empty when there is none."""
    for word in _NPU_WORDS:
        wanted = re.sub(r"CUDA|Cuda|GPU", word, name)
        places = definitions(program, ASCEND, wanted) if wanted != name else []
        if places:
            return f"{places[0]}.{wanted}"
    return ""


def replaced_in(file: File) -> dict[str, str]:
    """The names of vLLM that a file of vllm-ascend takes vllm-ascend's own for: plain -> ``module.name``.

    ``set_ascend_forward_context`` stands for ``set_forward_context``. A name that the file
    takes from vLLM as well is not replaced.
    """
    items = [item for many in file.imports.values() for item in many if item.name]
    taken = {item.name for item in items if item.module.partition(".")[0] == "vllm"}
    found = {}
    for item in items:
        plain = plain_name(item.name or "")
        if item.module.startswith(f"{ASCEND}.") and plain != item.name and plain not in taken:
            found[plain] = f"{item.module}.{item.name}"
    return found


def plain_name(name: str) -> str:
    """A name without what marks it as vllm-ascend's; a graph wrapper with vLLM's mark instead."""
    return _MARKS.sub("", name.replace("ACLGraph", "CUDAGraph"))
