"""Functions that vllm-omni's NPU platform puts in the place of a model's own, compared with those.

Nothing but vllm-omni has some of its models, so their answers have no reference. But a replacement is to
compute what it replaces: it is called in its place, and what stood there is called beside it with the same
arguments, as its module's source has it. What changes its object or its arguments, takes other things than
tensors, modules and plain values, or is random is not compared. A difference is an event of the record.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from npu_emulator import kernels, record

PLATFORM = "vllm_omni.platforms.npu"
_MOST = 12  # calls of one function that are compared: a graph is captured first and replayed later
_PLAIN = (bool, int, float, str, type(None))
_CHANGING = {
    *("add", "append", "appendleft", "clear", "extend", "insert", "move_to_end", "pop", "popitem", "popleft"),
    *("remove", "setdefault", "update"),
}
_HALF, _FULL = 0.05, 0.01  # of the largest value
_LEAST = 0.5  # of a result's values that the original gives again


def register() -> None:
    """Compare in this process, from when a worker has its model and with it the platform's patches."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    real = WorkerWrapperBase.initialize_from_config

    @functools.wraps(real)
    def observed(self, *arguments, **options):
        result = real(self, *arguments, **options)
        observe()
        return result

    WorkerWrapperBase.initialize_from_config = observed


def observe(package: str = PLATFORM.partition(".")[0], platform: str = PLATFORM) -> None:
    """Compare every replacement that stands now."""
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if not name.startswith(f"{package}.") or name.startswith(platform):
            continue
        for owner in [module, *_classes(module)]:
            for attribute, value in list(vars(owner).items()):
                if not isinstance(value, types.FunctionType) or not _is_of(value, platform):
                    continue
                before = original(module, owner if isinstance(owner, type) else None, attribute)
                if before is not None:
                    where = f"{owner.__qualname__}.{attribute}" if isinstance(owner, type) else attribute
                    setattr(owner, attribute, _compared(value, before, f"{name}:{where}"))


def _is_of(function: types.FunctionType, platform: str) -> bool:
    return (function.__module__ or "").startswith(platform)


def _classes(module: types.ModuleType) -> list[type]:
    own = [one for one in vars(module).values() if isinstance(one, type)]
    return [one for one in own if one.__module__ == module.__name__]


def original(module: types.ModuleType, owner: type | None, name: str) -> Callable[..., Any] | None:
    """The function as the module's source has it; None where that has none, or one that changes things."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(module)))
    except (OSError, SyntaxError):
        return None
    body = tree.body
    if owner is not None:
        kept = [node for node in body if isinstance(node, ast.ClassDef) and node.name == owner.__name__]
        body = kept[-1].body if kept else []
    defined = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not defined or not _is_plain(defined[-1]):
        return None
    return _built(defined[-1], module, owner)


def _is_plain(node: ast.FunctionDef) -> bool:
    """Whether a function only computes: nothing but names of its own is set or changed."""
    if node.name.startswith("__") or node.decorator_list:
        return False
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and _changes(one.func, node):
            return False
        if isinstance(one, (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete)):
            return False
        if isinstance(one, (ast.Attribute, ast.Subscript)) and isinstance(one.ctx, ast.Store):
            return False
    return True


def _changes(called: ast.Attribute, node: ast.FunctionDef) -> bool:
    """Whether a method that is called changes what the function was not given and did not make."""
    if called.attr not in _CHANGING and not (called.attr.endswith("_") and called.attr[:-1].isalpha()):
        return False
    own = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    own |= {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg) and one.arg != "self"}
    return not (isinstance(called.value, ast.Name) and called.value.id in own)


def _built(node: ast.FunctionDef, module: types.ModuleType, owner: type | None) -> Callable[..., Any] | None:
    """The function anew, with the module's names as they are now; without annotations, which may name types
    that only a type checker imports.
    """
    node.returns = None
    arguments = node.args
    for one in [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]:
        if one is not None:
            one.annotation = None
    maker = ast.parse(f"def make(__class__):\n    return {node.name}").body[0]
    maker.body.insert(0, node)
    made: dict[str, Any] = {}
    try:
        code = compile(ast.fix_missing_locations(ast.Module([maker], [])), module.__file__ or "", "exec")
        exec(code, module.__dict__, made)  # the release's own function, which the server runs itself
        return made["make"](owner)
    except Exception:  # a default that cannot be made again
        return None


def _compared(new: Callable[..., Any], old: Callable[..., Any], name: str) -> Callable[..., Any]:
    left, bound = [_MOST], "." in name.partition(":")[2]

    @functools.wraps(new)
    def called(*arguments, **options):
        given = (arguments[1:] if bound else arguments, options)
        if _is_capturing() or left[0] <= 0:
            return new(*arguments, **options)
        if not _is_comparable(given):
            record.note("not compared", name=name, why="its arguments hold objects of the model's own")
            left[0] = 0
            return new(*arguments, **options)
        left[0] -= 1
        copied = _copy(given)
        result = new(*arguments, **options)
        with _unseen():
            self = arguments[:1] if bound else ()
            event, why = _difference(result, lambda: old(*self, *_copy(copied[0]), **_copy(copied[1])))
        record.note(event, name=name, by=f"{new.__module__}.{new.__qualname__}", why=why)
        if event != "replaced":
            left[0] = 0
        return result

    return called


def _difference(result: Any, old: Callable[[], Any]) -> tuple[str, str]:
    """The event of a comparison, and why the result is not that of ``old`` or cannot be held against it."""
    import torch

    ours, state = _copy(result), torch.get_rng_state()
    try:
        with torch.no_grad():
            theirs = old()
            why = _apart(ours, theirs)
            if why:  # places that the original leaves as memory was are no result
                stable = _alike(_tensors(theirs), _tensors(old()))
                if any(one.numel() and one.double().mean().item() < _LEAST for one in stable):
                    return "not compared", "what it replaces gives another result each time"
                why = _apart(ours, theirs, stable)
    except Exception as error:  # what the device cannot do is why it was replaced
        return "not compared", f"what it replaces fails: {type(error).__name__}: {error}"
    finally:
        torch.set_rng_state(state)
        for one, was in zip(_tensors(result), _tensors(ours), strict=True):
            if not torch.equal(one, was):
                one.copy_(was)  # the original wrote into a buffer that both use
    return ("replaced", why) if _tensors(theirs) else ("not compared", "it gives no tensor")


def _alike(first: list[Any], second: list[Any]) -> list[Any]:
    """Where two results of the same call are the same."""
    return [one == other for one, other in zip(first, second, strict=True)]


def _apart(ours: Any, theirs: Any, stable: list[Any] | None = None) -> str:
    found, wanted = _tensors(ours), _tensors(theirs)
    if [one.shape for one in found] != [one.shape for one in wanted]:
        return f"gives {[tuple(one.shape) for one in found]} for {[tuple(one.shape) for one in wanted]}"
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        half = min(one.element_size(), other.element_size()) < 4 and one.is_floating_point()
        mine, right = one.detach().double(), other.detach().double()
        if stable is not None:
            mine, right = mine[stable[number]], right[stable[number]]
        if not right.numel():
            continue
        far, most = (mine - right).abs().max().item(), right.abs().max().item()
        if not far <= (_HALF if half else _FULL) * max(most, 1e-6):
            return f"is {far:.4g} away from what it replaces, whose values go up to {most:.4g}"
    return ""


def _is_comparable(value: Any) -> bool:
    import torch

    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_comparable(one) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_comparable, value))
    return isinstance(value, (torch.Tensor, torch.nn.Module, torch.dtype, torch.device, *_PLAIN))


def _copy(value: Any) -> Any:
    """The same with tensors of its own."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(map(_copy, value))
    return value


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [one for part in parts for one in _tensors(part)]


def _is_capturing() -> bool:
    """Whether what runs now is recorded, as a graph or by a compiler."""
    import torch

    if torch.compiler.is_compiling():
        return True
    npu = getattr(torch, "npu", None)
    return npu is not None and bool(npu.is_current_stream_capturing())


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Let no wait count as one of the step that is being counted."""
    from npu_emulator.dry_run import costs

    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != costs.__file__:
        frame = frame.f_back
    kernels.native.stepping(False)
    try:
        yield
    finally:
        kernels.native.stepping(frame is not None)
