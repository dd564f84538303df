"""Put a reference, or the kernel that says what is missing, behind every operator of torch_npu."""

from __future__ import annotations

import os

import torch

from npu_emulator import kernels, record
from npu_emulator.operators.registry import REFERENCES, kernel, load_all

_libraries: list[torch.library.Library] = []  # a library's kernels live as long as the object


def install_kernels() -> None:
    """Replace the kernels of the running torch_npu; called once in each process, after its import."""
    kernels.native.listen_to_captures()
    kernels.native.on_missing(lambda name: record.note("missing", name=name, caller=record.caller()))
    kernels.native.use_default_generators(lambda device: torch.npu.default_generators[device])
    kernels.native.install_on_cpu("aten")
    kernels.native.install_on_cpu("c10d")
    load_all()
    _load_atb()
    for space in ("npu", "atb"):
        implement(space)
        kernels.native.install_no_reference(space, _names(space))


def implement(space: str) -> None:
    """Give each operator of ``space`` that exists and has a reference its kernel."""
    library = torch.library.Library(space, "IMPL")
    _libraries.append(library)
    for name in _names(space):
        if exists(space, name):
            library.impl(
                name,
                kernel(f"{space}::{name}", REFERENCES[f"{space}::{name}"]),
                "PrivateUse1",
                allow_override=True,
            )


def exists(space: str, name: str) -> bool:
    """Whether this version of the operator library has the operator."""
    return torch._C._dispatch_has_kernel(f"{space}::{name}") or _has_schema(f"{space}::{name}")


def _has_schema(name: str) -> bool:
    try:
        torch._C._dispatch_find_schema_or_throw(*(name.rsplit(".", 1) if "." in name else (name, "")))
    except RuntimeError:
        return False
    return True


def _names(space: str) -> set[str]:
    return {name.partition("::")[2] for name in REFERENCES if name.startswith(space + "::")}


def _load_atb() -> None:
    """Load torch_npu's own schemas of the ATB operators, which it otherwise loads on first use."""
    import torch_npu

    path = os.path.join(os.path.dirname(torch_npu.__file__), "lib", "libop_plugin_atb.so")
    if os.path.exists(path):
        torch.ops.load_library(path)
