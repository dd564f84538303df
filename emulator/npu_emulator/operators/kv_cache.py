"""Writing keys and values into a paged cache."""

from __future__ import annotations

from npu_emulator.operators.registry import reference
from npu_emulator.problems import lacking, require


def _write(operator, states, cache, slots):
    """Put row i of ``states`` into slot ``slots[i]`` of ``cache`` (blocks, size, …); negative: nowhere."""
    slots = slots.long()
    require(
        states.shape[0] >= slots.shape[0],
        operator,
        f"{slots.shape[0]} slots for {states.shape[0]} rows of keys or values",
    )
    block_size = cache.shape[1]
    most = cache.shape[0] * block_size
    require(bool((slots < most).all()), operator, f"a slot is past the {most} of the cache")
    wanted = slots >= 0
    # by block and offset: the cache may be a strided view
    rows = states[: slots.shape[0]][wanted].to(cache.dtype)
    cache[slots[wanted] // block_size, slots[wanted] % block_size] = rows.reshape(-1, *cache.shape[2:])


@reference("atb::_npu_reshape_and_cache")
def npu_reshape_and_cache(key, value, key_cache, value_cache, slot_indices):
    for states, cache in ((key, key_cache), (value, value_cache)):
        _write("_npu_reshape_and_cache", states, cache, slot_indices)


@reference("npu::npu_scatter_pa_kv_cache")
def npu_scatter_pa_kv_cache(
    key, value, key_cache, value_cache, slot_mapping, *,
    compress_lens=None, compress_seq_offsets=None, seq_lens=None, cache_mode="PA_NZ",
):  # fmt: skip
    if cache_mode != "Norm" and key_cache.shape[-1] != key.shape[-1]:
        raise lacking("npu_scatter_pa_kv_cache", f"cache_mode {cache_mode} with the NZ layout")
    if compress_lens is not None or compress_seq_offsets is not None:
        raise lacking("npu_scatter_pa_kv_cache", "compressed sequences")
    for states, cache in ((key, key_cache), (value, value_cache)):
        _write("npu_scatter_pa_kv_cache", states, cache, slot_mapping)
