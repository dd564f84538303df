"""References by operator name, and what turns one into a kernel of the emulated NPU."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from npu_emulator import kernels, record
from npu_emulator.problems import EmulatorFault, MissingReference, OperatorLimit

REFERENCES: dict[str, Callable[..., Any]] = {}
SHAPES: dict[str, Callable[..., Any]] = {}
CALLS: Counter[str] = Counter()
_OUTSIDE = {"registry"}


def reference(
    *names: str, meta: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the reference of operators, each named ``namespace::operator[.overload]``.

    ``meta`` gives the results' shapes on meta tensors where the reference itself reads values; without it
    the reference is its own shape function.
    """

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            REFERENCES[name] = function
            SHAPES[name] = meta or function
        return function

    return keep


def load_all() -> None:
    """Import every module of references, so that :data:`REFERENCES` is complete."""
    package = importlib.import_module("npu_emulator.operators")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _OUTSIDE:
            importlib.import_module(f"npu_emulator.operators.{module.name}")


def kernel(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A PrivateUse1 kernel: NPU tensors in and out, ``function`` on CPU tensors over the same memory."""

    @functools.wraps(function)
    def run(*arguments, **options):
        CALLS[name] += 1
        twins: dict[int, torch.Tensor] = {}

        def enter(tensor):
            cpu = kernels.as_cpu(tensor)
            twins[id(cpu)] = tensor
            return cpu

        arguments = tuple(_each(enter, value) for value in arguments)
        options = {key: _each(enter, value) for key, value in options.items()}
        result = _called(name, function, arguments, options)
        left = _each(lambda tensor: twins.get(id(tensor), _ABSENT), result)
        outside = _each_pair(lambda cpu, npu: kernels.to_npu(cpu) if npu is _ABSENT else npu, result, left)
        if kernels.native.recording():
            _record(function, arguments, options, _targets(result, left, outside))
        return outside

    return run


_ABSENT = object()


def _called(name, function, arguments, options):
    try:
        with torch.no_grad():
            return function(*arguments, **options)
    except OperatorLimit as error:
        record.note("limit", name=name, text=str(error), caller=record.caller())
        raise
    except MissingReference as error:
        record.note("missing", name=name, text=str(error), caller=record.caller())
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        record.note("fault", name=name, text=text, caller=record.caller())
        raise EmulatorFault(f"the reference of {name} failed: {text}") from error


def _record(function, arguments, options, targets) -> None:
    """Make this call a step of the graph being captured: same memory in, same memory out."""

    def again():
        with torch.inference_mode():
            for result, target in zip(_flat(function(*arguments, **options)), targets, strict=True):
                if target is not None:
                    target.copy_(result)

    kernels.native.record(again)


def _targets(result, left, outside):
    """For each result tensor the CPU view of where it went; None where it was written in place."""
    pairs = zip(_flat(result), _flat(left), _flat(outside), strict=True)
    return [kernels.as_cpu(out) if twin is _ABSENT else None for _, twin, out in pairs]


def _flat(value) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _flat(item)]
    return [value] if isinstance(value, torch.Tensor) or value is _ABSENT else []


def _each(change, value):
    """``value`` with each tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_each(change, item) for item in value)
    return value


def _each_pair(change, first, second):
    """Two equal structures of tensors made into one."""
    if isinstance(first, (list, tuple)):
        return type(first)(_each_pair(change, one, two) for one, two in zip(first, second, strict=True))
    return change(first, second) if isinstance(first, torch.Tensor) else first
