"""Triton's interpreter without work it repeats: it derives the same types and shapes for every operation.

What a kernel computes is not touched.
"""

from __future__ import annotations

import functools
import inspect

import triton.language.core as core
from triton.runtime import interpreter

_OF_TENSORS = "_npu_emulator_of_tensors"


def install() -> None:
    """Remember what follows from a type; each method's first call with a type is the interpreter's own."""
    core.block_type.__init__ = _block_type(core.block_type.__init__)
    core.tensor.__init__ = _tensor(core.tensor.__init__)
    core.tuple.__eq__ = _equal(core.tuple.__eq__)
    interpreter._patch_builtin = _patch_builtin
    # A check for debugging that compiled kernels do not have; it adds operations to each one on integers.
    options = getattr(interpreter.interpreter_builder, "options", None)
    if hasattr(options, "sanitize_overflow"):
        object.__setattr__(options, "sanitize_overflow", False)


def _block_type(real):
    seen: dict[tuple, dict] = {}  # the attributes of the first block type of each element type and shape

    def init(self, element_ty, shape):
        try:
            key = (type(element_ty), str(element_ty), *shape)
            found = seen.get(key)
        except TypeError:  # of which the interpreter itself makes an error, or unwraps it
            return real(self, element_ty, shape)
        if found is not None:
            self.__dict__.update(found)
            return None
        real(self, element_ty, shape)
        seen[key] = self.__dict__
        return None

    return init


def _tensor(real):
    def init(self, handle, type):
        found = type.__dict__.get(_OF_TENSORS)
        if found is None:
            real(self, handle, type)
            found = {name: value for name, value in self.__dict__.items() if name != "handle"}
            type.__dict__[_OF_TENSORS] = found
        self.__dict__.update(found)
        self.handle = handle

    return init


def _equal(real):
    def equal(self, other):
        return core.constexpr(True) if self is other else real(self, other)

    return equal


def _patch_builtin(package, builder, *scope):
    """As the interpreter does at each launch, without looking through the whole module again."""
    for name in _builtins(package):
        member = getattr(package, name)
        if core.is_builtin(member):  # else it is patched already
            interpreter._patch_attr(package, name, member, builder, *scope)


@functools.cache
def _builtins(package) -> tuple[str, ...]:
    return tuple(name for name, member in inspect.getmembers(package) if core.is_builtin(member))
