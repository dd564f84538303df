"""What a process of a server shows of itself, told from inside. vLLM loads this as a general plugin.

It is copied beside its settings into a private folder and runs under the interpreter that serves: standard
library only, Python 3.10 or newer. It looks and counts; an error of its own is written down, never raised.
"""

from __future__ import annotations

import atexit
import ctypes
import enum
import functools
import gc
import hashlib
import importlib.machinery
import json
import os
import re
import sys
import threading
import time
import types
import weakref
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_POLL = 0.5  # seconds
_STEPS = {"scheduler": "schedule", "model": "__call__", "pipeline": "forward", "attention backend": "build"}
_EXECUTE = ("execute_model", "execute_model_batch", "execute_stepwise")  # of workers and runners
_CONFIG = {
    "model_config": "architecture dtype max_model_len quantization enforce_eager trust_remote_code"
    " runner_type",
    "model_config.hf_config": "architectures",
    "model_config.multimodal_config": "limit_per_prompt language_model_only",
    "parallel_config": "tensor_parallel_size pipeline_parallel_size data_parallel_size enable_expert_parallel"
    " distributed_executor_backend",
    "scheduler_config": "max_num_seqs max_num_batched_tokens",
    "cache_config": "gpu_memory_utilization block_size cache_dtype",
    "load_config": "load_format",
    "compilation_config": "mode cudagraph_mode cudagraph_capture_sizes",
    "device_config": "device_type",
    "": "speculative_config lora_config additional_config",
}
_CALLED = {"limit_per_prompt": "limit_mm_per_prompt", "mode": "compilation_mode", "device_type": "device"}
_FOREIGN = ("builtins", "abc", "typing", "collections", "torch")
_CALLED_NOT = -8  # what CPython 3.11 counts up from, once for each call, until it specializes a function
_WARMUP_AT = (
    52  # where in a code object of CPython 3.11 it counts: after the header, three pointers, the flags
)


class _Seen:
    """An object that was built, held so that it may go."""

    def __init__(self, role, thing, kind):
        self.role, self.kind, self.born, self.thing = role, kind, type(thing), weakref.ref(thing)
        self.steps, self.inside, self.classes = 0, None, []


_lock = threading.Lock()
_objects = {}  # id -> _Seen
_built = []
_roles = []  # classes whose objects are noticed
_files = {}  # file -> [path in evidence, sha256, whether its package is under evidence]
_called = {}  # file -> names of functions
_waiting = {}  # file -> [(name, word that counts, code)], of Python 3.11
_device, _problems, _written = {}, [], {}
_ours = set()  # functions that were put in the place of others
_settings: dict[str, Any] = {"packages": [], "variables": "$", "began": 0.0}
_how = ""  # by what calls are noticed
_once = None  # what tells sys.monitoring that one call of a function is enough


def observe():
    """Begin in this process, and in the forks of it; called by vLLM, once or more."""
    global _settings
    if _written:
        return
    _written["begun"] = True
    try:
        with open(os.path.join(_HERE, "settings.json"), encoding="utf-8") as stream:
            _settings = json.load(stream)
        _watch_calls()
        _hook_imports()
        early = _early()
        for name, module in list(sys.modules.items()):
            _loaded(name, module, early)
        os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forked)
        atexit.register(_tell)
        _start()
    except Exception as error:
        _problem(error)
    _tell()


def _forked():
    _lock.release()
    _objects.clear()
    _device.clear()
    del _built[:]
    try:
        _start()
    except Exception as error:
        _problem(error)


def _start():
    threading.Thread(target=_run, name="npu-upgrade-observer", daemon=True).start()


def _run():
    while True:
        time.sleep(_POLL)
        _tell()


def _problem(error):
    text = f"{type(error).__name__}: {error}"
    if text not in _problems and len(_problems) < 20:
        _problems.append(text)


def _quietly(function):
    @functools.wraps(function)
    def quiet(*arguments):
        try:
            return function(*arguments)
        except Exception as error:
            _problem(error)
            return None

    return quiet


# -- which classes are built, and what they execute


def _role(cls):
    def has(*names):  # what the class itself may do when asked is not wanted
        return all(any(name in vars(one) for one in cls.__mro__) for name in names)

    if has("execute_model", "load_model") and not has("init_worker"):
        return "worker" if has("init_device") else "runner"
    return "scheduler" if has("schedule", "update_from_output") else None


def _notice(cls):
    """Have every object of a class, from now on, noticed when it is made."""
    real = vars(cls).get("__init__")
    if not isinstance(real, types.FunctionType) or real in _ours:
        return

    @functools.wraps(real)
    def __init__(self, *arguments, **options):
        real(self, *arguments, **options)
        _register(_role(type(self)), self)

    _ours.add(__init__)
    cls.__init__ = __init__


@_quietly
def _register(role, thing, kind=None):
    if role is None:
        return
    seen = _objects.get(id(thing))
    if seen is None or seen.thing() is not thing:
        seen = _objects[id(thing)] = _Seen("model" if role == "pipeline" else role, thing, kind)
        _built.append(seen)
    for name in (_STEPS[role],) if role in _STEPS else _EXECUTE:
        _count(type(thing), name, role in ("model", "pipeline"))


def _count(cls, name, here):
    """Count the calls of a method: where it is defined, or ``here``, for one that every module shares."""
    owner = cls if here else next((one for one in cls.__mro__ if name in vars(one)), None)
    real = getattr(owner, name, None)
    if not isinstance(real, types.FunctionType) or real in _ours:
        return
    compiling = getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", bool)

    @functools.wraps(real)
    def counted(self, *arguments, **options):
        seen = None if compiling() else _objects.get(id(self))
        if seen is None or seen.inside == threading.get_ident():  # a base's method, called by super()
            return real(self, *arguments, **options)
        seen.steps, seen.inside = seen.steps + 1, threading.get_ident()
        try:
            return real(self, *arguments, **options)
        finally:
            seen.inside = None

    _ours.add(counted)
    setattr(owner, name, counted)


@_quietly
def _look_into(runner):
    """The model and the attention backends of a runner, once it has them."""
    model = getattr(runner, "model", None)
    if model is not None and hasattr(runner, "get_model"):
        model = runner.get_model()  # without what records graphs around it
    pipeline = getattr(runner, "pipeline", None)  # that of a diffusion runner
    if hasattr(model, "parameters"):
        _register("model", model)
    elif hasattr(pipeline, "parameters"):
        _register("pipeline", pipeline)
    for group in [one for groups in getattr(runner, "attn_groups", None) or () for one in groups]:
        builders = getattr(group, "metadata_builders", None) or [getattr(group, "metadata_builder", None)]
        for builder in filter(None, builders):
            _register("attention backend", builder, group.backend)


@_quietly
def _where(model):
    """Measure on which device the parameters of a model are."""
    found = {}
    for one in model.parameters():
        found[one.device.type] = found.get(one.device.type, 0) + one.numel() * one.element_size()
    if found:
        kind = max(found, key=lambda kind: found[kind])
        emulated = kind == "npu" and _emulated()
        name = "npu emulated" if emulated else {"cuda": "gpu"}.get(kind, kind)
        _device.update(kind=name, bytes=found[kind])


def _emulated():
    """Whether the runtime below torch_npu is the emulated one: it exports a function that CANN has not."""
    if "npu_emulator" in sys.modules:
        return True
    with open("/proc/self/maps", encoding="utf-8") as stream:
        libraries = {line.split()[-1] for line in stream if "libascendcl" in line}
    return any(hasattr(ctypes.CDLL(one), "npu_emulator_listen") for one in libraries)


# -- which files were loaded, and which functions in them were called


def _hook_imports():
    loader = importlib.machinery.SourceFileLoader
    real = loader.exec_module

    def exec_module(self, module):
        code = _before(self, module)
        real(self, module)
        _loaded(module.__name__, module, {module.__file__: [code]} if code else {})

    # as a part of importlib it stays out of the tracebacks of failed imports
    place = "<frozen importlib._bootstrap_external>"
    exec_module.__code__ = exec_module.__code__.replace(co_filename=place)
    loader.exec_module = exec_module


@_quietly
def _before(loader, module):
    """The code that is about to run, and the hash of its file as it is read."""
    if module.__name__.partition(".")[0] not in _settings["packages"]:
        return None
    _place(module.__name__, module, before=True)
    if _how != "warmup":
        return None
    code = loader.get_code(module.__name__)
    loader.get_code = lambda name: vars(loader).pop("get_code") and code
    return code


@_quietly
def _loaded(name, module, codes):
    if not issubclass(type(module), types.ModuleType) or type(module).__module__ == "importlib.util":
        return
    if name.partition(".")[0] in _settings["packages"] and _place(name, module) and _how == "warmup":
        _wait_for(module, codes.get(module.__file__, ()))
    for cls in list(_space(module).values()):
        if issubclass(type(cls), type) and vars(cls).get("__module__") == name and _role(cls):
            _roles.append(cls)
            _notice(cls)


def _space(module):
    """The names of a module; one that loads itself at the first look at it stays unloaded."""
    return object.__getattribute__(module, "__dict__")


def _place(name, module, before=False):
    """What is known of a module's file; ``before`` it is loaded, or after."""
    file = _space(module).get("__file__") or ""
    if not file.endswith(".py"):
        return None
    if file not in _files:
        depth = name.count(".") + (os.path.basename(file) == "__init__.py")
        path = "/".join(file.split(os.sep)[-1 - depth :])
        with open(file, "rb") as stream:
            digest = hashlib.sha256(stream.read()).hexdigest()
        if not before and os.stat(file).st_mtime >= _settings["began"]:
            digest = ""  # it changed since the start, and may not be what was loaded
        _files[file] = [path, digest, name.partition(".")[0] in _settings["packages"]]
    return _files[file]


def _watch_calls():
    global _how, _once
    if hasattr(sys, "monitoring"):
        events = sys.monitoring
        for tool in (4, 3):
            if events.get_tool(tool) is None:
                events.use_tool_id(tool, "npu-upgrade")
                events.register_callback(tool, events.events.PY_START, _started)
                events.set_events(tool, events.events.PY_START)
                _how, _once = "monitoring", events.DISABLE
                return
    elif sys.version_info[:2] == (3, 11) and sys.implementation.name == "cpython" and _warmup_works():
        _how = "warmup"


def _started(code, _):
    """Called once for each function, at its first call."""
    try:
        about = any(f"{os.sep}{name}" in code.co_filename for name in _settings["packages"])
        if about and _is_function(code):
            _called.setdefault(code.co_filename, set()).add(code.co_qualname)
    except Exception as error:
        _problem(error)
    return _once


def _is_function(code):
    return code.co_flags & 1 and "<lambda>" not in code.co_qualname  # the body of a class is not optimized


def _word(code):
    return ctypes.c_short.from_address(id(code) + _WARMUP_AT)


def _warmup_works():
    space = {}
    exec("def called(): pass\ndef other(): pass\ncalled(); called()", space)
    words = [_word(space[name].__code__).value for name in ("called", "other")]
    return words == [_CALLED_NOT + 2, _CALLED_NOT]


def _early():
    """The code of the functions that are there already, by file."""
    found = {}
    for one in gc.get_objects() if _how == "warmup" else ():
        if type(one) is types.FunctionType:
            found.setdefault(one.__code__.co_filename, []).append(one.__code__)
    return found


def _wait_for(module, codes):
    """Note the functions of a module, which are in the code that made it, or that it has."""
    if module.__file__ in _waiting:
        return
    pending, known = list(codes), set()
    found = _waiting[module.__file__] = []
    while pending:
        one = pending.pop()
        if id(one) not in known:
            known.add(id(one))
            pending += [inner for inner in one.co_consts if isinstance(inner, types.CodeType)]
            if _is_function(one):
                found.append((one.co_qualname, _word(one), one))


def _count_calls():
    for file, waiting in list(_waiting.items()):
        left = []
        for one in waiting:
            if one[1].value == _CALLED_NOT:
                left.append(one)
            else:
                _called.setdefault(file, set()).add(one[0])
        waiting[:] = left


# -- what it tells


@_quietly
def _tell():
    with _lock:
        for cls in _roles:
            _notice(cls)  # a patch may have replaced what was
        for seen in list(_built):
            thing = seen.thing()
            if thing is not None and seen.role == "worker":
                runner = getattr(thing, "model_runner", None)
                _register(_role(type(runner)), runner)
            elif thing is not None and seen.role == "runner":
                _look_into(thing)
            elif thing is not None and seen.role == "model" and _device.get("steps", -1) < min(seen.steps, 1):
                _where(thing)  # when it is there, and when it works
                _device["steps"] = seen.steps
        _count_calls()
        changed = (os.getpid(), len(_files), sum(map(len, list(_called.values()))))
        if _written.get("changed") != changed:
            _write("files", _told_files())
            _written["changed"] = changed
        _write("process", _process())


def _told_files():
    files = [(file, path, digest) for file, (path, digest, about) in list(_files.items()) if about]
    return {
        path: {"sha256": digest, "functions": sorted(_called.get(file, ()))} for file, path, digest in files
    }


def _process():
    configs = [_config_of(seen.thing()) for seen in _built if seen.role in ("worker", "runner", "scheduler")]
    config, stage = next((one for one in configs if one[0]), ({}, None))
    wanted = re.compile(_settings["variables"])
    workers = [seen.thing() for seen in _built if seen.role == "worker"]
    return {
        "stage": int(str(stage)) if str(stage).isdigit() else None,
        "rank": next((one.rank for one in workers if isinstance(getattr(one, "rank", None), int)), 0),
        "device": {key: _device[key] for key in ("kind", "bytes")} if "kind" in _device else None,
        "built": list(_merged().values()),
        "config": config,
        "variables": {name: value for name, value in os.environ.items() if wanted.fullmatch(name)},
        "work_dir": os.getcwd(),
        "watched": bool(_how),
        "problems": list(_problems),
    }


def _merged():
    """One entry for all objects of the same classes, such as a backend for each group of layers."""
    found = {}
    for seen in _built:
        classes = _classes(seen)
        one = {"role": seen.role, "classes": classes, "steps": seen.steps}
        key = (seen.role, *(cls["name"] for cls in classes))
        found[key] = max(found.get(key, one), one, key=lambda each: each["steps"])
    return found


def _classes(seen):
    thing = seen.thing()
    if thing is not None or not seen.classes:  # its class may be another now, and it may be gone untold
        every = (seen.kind or (seen.born if thing is None else type(thing))).__mro__
        seen.classes = [_class(one) for one in every if one.__module__.partition(".")[0] not in _FOREIGN]
    return seen.classes


def _class(cls):
    path, digest, _ = _place(cls.__module__, sys.modules.get(cls.__module__, types)) or ("", "", False)
    return {"name": f"{cls.__module__}.{cls.__qualname__}", "path": path, "sha256": digest}


def _config_of(thing):
    config = getattr(thing, "vllm_config", None)
    other = getattr(thing, "od_config", None)
    if other is not None:
        return _plain(other, 2), getattr(other, "stage_id", 0)
    if config is None:
        return {}, None
    found = {}
    for place, names in _CONFIG.items():
        part = config
        for name in filter(None, place.split(".")):
            part = getattr(part, name, None)
        told = [name for name in names.split() if hasattr(part, name)]
        found.update((_CALLED.get(name, name), _plain(getattr(part, name), 2)) for name in told)
    model = getattr(config, "model_config", None)
    found["is_multimodal"] = getattr(model, "multimodal_config", None) is not None
    return found, getattr(model, "stage_id", None)


def _plain(value, depth):
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one, depth - 1) for one in list(value)[:1024]] if depth else []
    if isinstance(value, dict):
        return {str(key): _plain(one, depth - 1) for key, one in value.items()} if depth else {}
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    if isinstance(value, type) or callable(value) or not depth or not hasattr(value, "__dict__"):
        return getattr(value, "__qualname__", None) or type(value).__qualname__
    return {key: _plain(one, depth - 1) for key, one in vars(value).items() if not key.startswith("_")}


def _write(kind, value):
    """Atomically, and only what changed: a process may be killed at any moment."""
    text = json.dumps(value, default=str)
    if _written.get(kind) == (os.getpid(), text):
        return
    target = os.path.join(_HERE, "seen", f"{os.getpid()}.{kind}.json")
    with open(f"{target}.new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(f"{target}.new", target)
    _written[kind] = (os.getpid(), text)
