"""Which attributes objects of a class have, as far as the trees tell."""

from __future__ import annotations

import ast

from npu_upgrade.code.definitions import top_level
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import last_name, string, walk
from npu_upgrade.ground.held import held
from npu_upgrade.program.program import CLOSED, ClassSymbol
from npu_upgrade.program.self_use import self_use

_ENUM = {"name", "value"}
_BROUGHT: dict[str, set[str]] = {
    "NamedTuple": {"_fields", "_replace", "_asdict", "_make", "_field_defaults", *dir(tuple)},
    "Enum": _ENUM,
    "IntEnum": _ENUM.union(dir(int)),
    "StrEnum": _ENUM.union(dir(str)),
    "str": set(dir(str)),
    "int": set(dir(int)),
}
_CLOSED = CLOSED.union(_BROUGHT)
_DYNAMIC = {"__getattr__", "__getattribute__", "__setattr__"}
_HARMLESS_META = {"ABCMeta", "EnumMeta"}


def provided_by_bases(cls: ClassSymbol) -> set[str] | None:
    """What bases outside the trees bring; None when that is not known."""
    outside = {last_name(node) for owner in cls.mro for node in owner.outside}
    return set().union(*(_BROUGHT.get(base, ()) for base in outside)) if outside <= _CLOSED else None


def is_module(cls: ClassSymbol) -> bool:
    """Whether all that is not known of the class is that it is a module of torch's."""
    outside = {last_name(node) for owner in cls.mro for node in owner.outside} - _CLOSED
    return outside == {"Module"}


@held
def registered(cls: ClassSymbol) -> frozenset[str]:
    """What a module of torch's has by itself, and what the class and its bases register on it by name."""
    calls = (node for owner in cls.mro for node in walk(owner.node) if isinstance(node, ast.Call))
    names = (string(call.args[0]) for call in calls if call.args and last_name(call.func) in _REGISTERS)
    return MODULE_NAMES.union(names)


def named_by_classes(cls: ClassSymbol) -> set[str]:
    """What the class bodies of the MRO define: methods, fields, classes in them."""
    found = provided_by_bases(cls) or set()
    for owner in cls.mro:
        found |= set(owner.methods) | set(owner.fields) | _bound_in_body(owner)
        found |= {node.name for node in owner.node.body if isinstance(node, ast.ClassDef)}
    return found


@held
def members(cls: ClassSymbol) -> frozenset[str] | None:
    """All attributes of the class and its bases, whoever sets them; None when it may have others.

    Attributes that only something else assigns on its objects are not among them.
    """
    brought = provided_by_bases(cls)
    if brought is None or any(_is_dynamic(owner) for owner in cls.mro):
        return None
    if any("__getattr__" in owner.methods for owner in cls.mro):
        brought |= DEVICE_NAMES
    return frozenset(brought.union(*(own_members(owner) for owner in cls.mro)))


@held
def own_members(cls: ClassSymbol) -> frozenset[str]:
    """What the class's own body defines or sets on ``self``, declarations included."""
    found = set(cls.methods) | set(cls.fields)
    found |= {node.name for node in walk(cls.node) if isinstance(node, ast.ClassDef)}
    for method in cls.methods.values():
        use = self_use(method.node)
        found |= use.writes.keys() | use.declared.keys()
    return frozenset(found | _bound_in_body(cls))


def _is_dynamic(cls: ClassSymbol) -> bool:
    """Whether it may have attributes that its source does not name."""
    special = _DYNAMIC & cls.methods.keys()
    if special == {"__getattr__"} and passes_on(cls.methods["__getattr__"].node):
        special = set()
    if special or any(self_use(m.node).open for m in cls.methods.values()):
        return True
    return any(
        key.arg == "metaclass" and last_name(key.value) not in _HARMLESS_META for key in cls.node.keywords
    )


def _bound_in_body(cls: ClassSymbol) -> set[str]:
    """Names that imports in the class's body bind."""
    found: set[str] = set()
    for node in top_level(cls.node.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


_REGISTERS = {"register_buffer", "register_parameter", "register_module", "add_module"}
_OF_MODULES = (
    "training dump_patches call_super_init forward register_buffer register_parameter add_module"
    " register_module get_submodule set_submodule get_parameter get_buffer get_extra_state"
    " set_extra_state apply cuda ipu xpu npu mtia cpu type float double half bfloat16 to_empty to"
    " register_full_backward_pre_hook register_backward_hook register_full_backward_hook"
    " register_forward_pre_hook register_forward_hook register_state_dict_post_hook"
    " register_state_dict_pre_hook state_dict register_load_state_dict_pre_hook"
    " register_load_state_dict_post_hook load_state_dict parameters named_parameters buffers"
    " named_buffers children named_children modules named_modules train eval requires_grad_ zero_grad"
    " share_memory extra_repr compile"
)
_WITHIN_MODULES = (
    "_parameters _buffers _modules _apply _call_impl _get_name _named_members _save_to_state_dict"
    " _load_from_state_dict _forward_hooks _forward_pre_hooks _non_persistent_buffers_set _version"
    " _compiled_call_impl _backward_hooks _backward_pre_hooks _state_dict_hooks"
    " _load_state_dict_pre_hooks _load_state_dict_post_hooks _replicate_for_data_parallel"
    " _slow_forward _wrapped_call_impl _is_hf_initialized"
)
MODULE_NAMES = frozenset(" ".join((_OF_MODULES, _WITHIN_MODULES)).split())
"""What every module of torch's has."""

_TYPES = "Event ExternalStream Stream StreamContext NPUGraph CUDAGraph MemPool device device_of graph"
_MEMORY = (
    "empty_cache ipc_collect mem_get_info memory memory_allocated memory_cached memory_reserved"
    " memory_snapshot memory_stats memory_summary memory_usage max_memory_allocated max_memory_cached"
    " max_memory_reserved reset_accumulated_memory_stats reset_max_memory_allocated"
    " reset_max_memory_cached reset_peak_memory_stats set_per_process_memory_fraction"
    " caching_allocator_alloc caching_allocator_delete change_current_allocator get_allocator_backend"
    " use_mem_pool host_memory_stats"
)
_DEVICES = (
    "can_device_access_peer current_blas_handle current_device current_stream default_stream"
    " device_count get_arch_list get_device_capability get_device_name get_device_properties init"
    " is_available is_bf16_supported is_current_stream_capturing is_initialized set_device set_stream"
    " set_sync_debug_mode get_sync_debug_mode stream synchronize utilization temperature power_draw"
    " clock_rate graphs make_graphed_callables graph_pool_handle amp random nvtx profiler"
    " set_compile_mode set_option get_npu_overflow_flag is_support_inf_nan"
)
_RANDOM = (
    "default_generators get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed"
    " seed_all set_rng_state set_rng_state_all"
)
DEVICE_NAMES = frozenset(" ".join((_TYPES, _MEMORY, _DEVICES, _RANDOM)).split())


def passes_on(getter: Function) -> bool:
    """Whether a ``__getattr__`` looks in torch's module of the device, and nowhere else."""
    calls = [node for node in walk(getter) if isinstance(node, ast.Call)]
    asked = [node.args[0] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "getattr"]
    names = {node.id for node in asked if isinstance(node, ast.Name)}
    held = {
        target.id
        for node in walk(getter)
        if isinstance(node, ast.Assign) and node.value in calls and _of_torch(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return "torch" in names and len(names) == len(asked) and names <= {"torch"} | held


def _of_torch(call: ast.expr) -> bool:
    first = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return isinstance(first, ast.Name) and first.id == "torch"
