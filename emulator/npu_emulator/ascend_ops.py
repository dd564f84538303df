"""vllm-ascend's own operators (``torch.ops._C_ascend``): its real schemas, read from its C++ sources.

The compiled extension does not exist here. Its ``torch_binding.cpp`` defines each operator by a schema
string; those are defined anew, so that a call with a wrong argument fails as it does on the device.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from npu_emulator import kernels, record
from npu_emulator.operators.registry import REFERENCES, SHAPES, kernel

EXTENSION = "vllm_ascend.vllm_ascend_C"
SPACE = "_C_ascend"
CSRC = "NPU_EMULATOR_ASCEND_CSRC"
_DEFINITION = re.compile(r'\.\s*def\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
_IMPLEMENTATION = re.compile(r'\.\s*impl\(\s*"([^"]+)"')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_libraries: list[torch.library.Library] = []


def schemas(source: str) -> Iterator[str]:
    """The operator schemas of a C++ file with ``ops.def("name(...) -> ...")``, in order, each once."""
    seen = set()
    for definition in _DEFINITION.finditer(_without_comments(source)):
        schema = re.sub(r"\s+", " ", "".join(_STRING.findall(definition[1]))).strip().replace('\\"', '"')
        name = schema.partition("(")[0]
        if "(" in schema and "->" in schema and name not in seen:
            seen.add(name)
            yield schema


def _without_comments(source: str) -> str:
    source = source.replace("\\\n", "")
    source = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
    return re.sub(r"^\s*//[^\n]*$", "", source, flags=re.M)


def meta_names(source: str) -> set[str]:
    """The operators a C++ file gives a shape function by ``ops.impl("name", ...)``."""
    return set(_IMPLEMENTATION.findall(_without_comments(source)))


def register(sources: Path) -> None:
    """Define the operators of ``sources`` (the folder csrc) and give each its kernel.

    An operator can be traced by torch.compile when the real extension has a shape function for it.
    """
    library = torch.library.Library(SPACE, "FRAGMENT")
    _libraries.append(library)
    known = set()
    traceable = meta_names((sources / "torch_binding_meta.cpp").read_text(encoding="utf-8"))
    for schema in schemas((sources / "torch_binding.cpp").read_text(encoding="utf-8")):
        name = schema.partition("(")[0].strip()
        try:
            library.define(schema)
        except RuntimeError as error:
            record.note("fault", name=f"{SPACE}::{name}", text=f"schema not understood: {error}", caller="")
            continue
        function = REFERENCES.get(f"{SPACE}::{name}")
        if function is not None:
            known.add(name)
            library.impl(name, kernel(f"{SPACE}::{name}", function), "PrivateUse1")
            if name in traceable:
                library.impl(name, SHAPES[f"{SPACE}::{name}"], "Meta")
    kernels.native.install_no_reference(SPACE, known)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for the compiled extension: importing it registers the operators, as the real one does."""

    def find_spec(self, fullname, path=None, target=None):
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == EXTENSION else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        register(Path(os.environ[CSRC]))


def install() -> None:
    """Answer the import of vllm-ascend's compiled extension."""
    sys.meta_path.insert(0, _Finder())
