"""A general plugin of vLLM that breaks the server it is loaded in: as a module of the faulty server only.

``folder(place)`` writes what has to be on that server's PYTHONPATH. ``BENCH_FAULT`` says what happens.
Nothing of the bench may be imported here: this file is copied.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import sys
import threading
import time
from pathlib import Path

_MODULE = "gates_faulty_vllm"
_LINE = "the same line over and over, as a server writes it that cannot stop\n"


def folder(place: Path) -> Path:
    """This module and an entry point for it, as an installed package has them."""
    shutil.copy(__file__, place / f"{_MODULE}.py")
    info = place / f"{_MODULE}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_MODULE}\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{_MODULE} = {_MODULE}:register\n", encoding="utf-8"
    )
    return place


def register() -> None:
    """What vLLM calls in each of its processes."""
    fault = os.environ.get("BENCH_FAULT", "")
    own = {"second-request": _second_request, "flood": _flood, "dies-idle": _dies_idle, "stutter": _stutter}
    (own | _WRONG).get(fault, int)()


def _second_request() -> None:
    """The engine runs out of memory with its second request."""
    core = importlib.import_module("vllm.v1.engine.core").EngineCore
    add, seen = core.add_request, []

    def add_request(self, request, *more, **options):
        seen.append(request)
        if len(seen) == 2:
            importlib.import_module("torch").empty(1 << 46)
        return add(self, request, *more, **options)

    core.add_request = add_request


def _flood() -> None:
    """Every process writes without end."""

    def write() -> None:
        while True:
            sys.stderr.write(_LINE * 1000)

    if not any(thread.name == "flood" for thread in threading.enumerate()):
        threading.Thread(target=write, name="flood", daemon=True).start()


def _dies_idle() -> None:
    """The engine ends when nobody has asked it anything for two seconds."""
    core = importlib.import_module("vllm.v1.engine.core").EngineCore
    add, seen = core.add_request, []

    def end() -> None:
        while time.monotonic() - seen[-1] < 2:
            time.sleep(0.1)
        os._exit(1)

    def add_request(self, request, *more, **options):
        seen.append(time.monotonic())
        if len(seen) == 1:
            threading.Thread(target=end, daemon=True).start()
        return add(self, request, *more, **options)

    core.add_request = add_request


def _stutter() -> None:
    """One token is likelier than all others, whatever the weights make of it."""
    layer = importlib.import_module("vllm.model_executor.layers.logits_processor").LogitsProcessor
    forward = layer.forward

    def stuttered(self, *given, **options):
        logits = forward(self, *given, **options)
        if logits is not None:
            logits[..., 50] = 1000.0
        return logits

    layer.forward = stuttered


def _loading(change) -> None:
    """The loader reads tensors as ``change(name, tensor)`` gives them: what a wrong adapter would load."""
    loader = importlib.import_module("vllm.model_executor.model_loader.default_loader").DefaultModelLoader
    read = loader.get_all_weights

    def get_all_weights(self, *given, **options):
        for name, tensor in read(self, *given, **options):
            yield change(name, tensor)

    loader.get_all_weights = get_all_weights


def _swapped(name, tensor):
    other = {"gate_proj": "up_proj", "up_proj": "gate_proj"}
    return re.sub("gate_proj|up_proj", lambda found: other[found[0]], name), tensor


def _only(part, change):
    """A change of the tensors whose names end in ``part``."""
    return lambda name, tensor: (name, change(tensor) if name.endswith(part) else tensor)


def _building(module: str, kind: str, **wrong) -> None:
    """Every layer of a class is built with these arguments, functions of what the model asks for."""
    layer = getattr(importlib.import_module(f"vllm.model_executor.layers.{module}"), kind)
    build = layer.__init__
    signature = inspect.signature(build)

    def __init__(self, *given, **options):
        bound = signature.bind(self, *given, **options)
        bound.apply_defaults()
        bound.arguments |= {name: change(bound.arguments[name]) for name, change in wrong.items()}
        build(*bound.args, **bound.kwargs)

    layer.__init__ = __init__


def _interleaved() -> None:
    """Halves of a head are turned as if they were neighbours."""
    module = importlib.import_module("vllm.model_executor.layers.rotary_embedding")
    get = module.get_rope
    vars(module)["get_rope"] = lambda *given, **options: get(*given, **{**options, "is_neox_style": False})


_WRONG = {
    "swapped-gate-up": lambda: _loading(_swapped),
    "transposed-projection": lambda: _loading(
        _only("1.self_attn.o_proj.weight", lambda one: one.T.contiguous())
    ),
    "dropped-bias": lambda: _loading(_only("q_proj.bias", lambda one: one * 0)),
    "norm-plus-one": lambda: _loading(_only("post_attention_layernorm.weight", lambda one: one + 1)),
    "norm-missing": lambda: _loading(_only("q_norm.weight", lambda one: one * 0 + 1)),
    "norm-eps": lambda: _building("layernorm", "RMSNorm", eps=lambda eps: eps * 1000),
    "rope-interleaved": _interleaved,
    "embedding-scale": lambda: _loading(_only("embed_tokens.weight", lambda one: one * 1.1)),
    "attention-scale": lambda: _building("attention", "Attention", scale=lambda scale: scale * 1.2),
    "logit-scale": lambda: _building("logits_processor", "LogitsProcessor", scale=lambda scale: scale * 1.1),
    "picture-scale": lambda: _loading(_only("language_projection.weight", lambda one: one * 1.2)),
}
