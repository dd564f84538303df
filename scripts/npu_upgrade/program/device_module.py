"""What ``torch.npu`` and its like have, for classes that pass unknown attributes on to them."""

from __future__ import annotations

import ast

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import walk

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
