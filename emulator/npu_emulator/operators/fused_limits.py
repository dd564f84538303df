"""What the documentation of npu_fused_infer_attention_score and its second version asks of a call.

float32 is not among the documented dtypes: a dry run uses it so that tokens can be compared, and the
references take it wherever float16 and bfloat16 are allowed.
"""

from __future__ import annotations

import itertools

import torch

from npu_emulator.operators.attention import BAND, CAUSAL, LEFT_CAUSAL
from npu_emulator.operators.fused_layouts import LAYOUTS
from npu_emulator.problems import lacking, require

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_MASK_SIDE = 2048  # of the compressed mask that the sparse modes 2, 3 and 4 ask for
_MOST_HEAD, _MOST_HEADS, _MOST_GROUP, _MOST_BLOCK = 512, 256, 64, 512
_LATENT, _ROPE = 512, 64  # head sizes of latent attention
_MOST_LATENT_TOKENS = 16


def check(operator, call) -> None:
    """Raise unless ``call`` (a :class:`fused_call.Call`) keeps to the documented limits."""
    require(call.layout in LAYOUTS, operator, f"input_layout {call.layout} is unknown")
    _check_heads(operator, call)
    _check_dtypes(operator, call)
    _check_lengths(operator, call)
    _check_mask(operator, call)
    if call.block_table is not None:
        _check_pages(operator, call)
    _check_rope(operator, call)


def _check_heads(operator, call):
    dimensions = 3 if call.come in ("TND", "NTD", "BSH") else 4
    require(
        call.query.dim() == dimensions,
        operator,
        f"with {call.layout} query has {dimensions} dimensions, got {tuple(call.query.shape)}",
    )
    if call.come == "BSH":
        fits = call.query.shape[2] % call.heads == 0
    else:
        fits = call.query.shape[call.come.index("N")] == call.heads
    require(fits, operator, f"num_heads is {call.heads}, query has the shape {tuple(call.query.shape)}")
    require(
        call.heads % call.kv_heads == 0,
        operator,
        f"num_heads {call.heads} must be a multiple of num_key_value_heads {call.kv_heads}",
    )
    require(
        call.heads // call.kv_heads <= _MOST_GROUP,
        operator,
        f"at most {_MOST_GROUP} heads share a key head, got {call.heads} and {call.kv_heads}",
    )
    require(call.heads <= _MOST_HEADS, operator, f"at most {_MOST_HEADS} heads, got {call.heads}")
    require(
        call.size <= _MOST_HEAD and call.size % 16 == 0,
        operator,
        f"the head size is a multiple of 16 up to {_MOST_HEAD}, got {call.size}",
    )


def _check_dtypes(operator, call):
    if call.query.dtype == torch.int8 or call.key.dtype == torch.int8:
        raise lacking(operator, "int8 inputs")
    require(call.query.dtype in _FLOATS, operator, f"query must be floating point, got {call.query.dtype}")
    others = [call.key, call.value, *(part for part in (call.query_rope, call.key_rope) if part is not None)]
    for other in others:
        require(
            other.dtype == call.query.dtype,
            operator,
            f"all inputs have one dtype, got {call.query.dtype} and {other.dtype}",
        )


def _check_lengths(operator, call):
    if call.flat:
        given = call.lengths is not None and call.kv_lengths is not None
        require(given, operator, f"{call.layout} needs both lists of sequence lengths")
        require(
            len(call.lengths) == len(call.kv_lengths),
            operator,
            f"{len(call.lengths)} query and {len(call.kv_lengths)} key lengths",
        )
        _check_sums(operator, "actual_seq_lengths", call.lengths, call.tokens)
        if call.block_table is None:
            rows = call.key.shape[call.come.index("T")]
            _check_sums(operator, "actual_seq_lengths_kv", call.kv_lengths, rows)
    for name, lengths in (("actual_seq_lengths", call.lengths), ("actual_seq_lengths_kv", call.kv_lengths)):
        if lengths is not None and not call.flat and not (name == "actual_seq_lengths" and call.tokens == 1):
            require(
                len(lengths) == 1 or len(lengths) >= call.batch,
                operator,
                f"{name} has one length or {call.batch}, got {len(lengths)}",
            )


def _check_sums(operator, name, sums, rows):
    ordered = all(one <= other for one, other in itertools.pairwise(sums))
    require(ordered and (not sums or sums[0] >= 0), operator, f"{name} is a running sum, got {list(sums)}")
    require(
        not sums or sums[-1] == rows,
        operator,
        f"{name} ends at the {rows} rows given, got {list(sums)}",
    )


def _check_mask(operator, call):
    shape = None if call.mask is None else tuple(call.mask.shape)
    if call.mask is not None:
        allowed = (torch.bool, torch.int8, torch.uint8)
        require(
            call.mask.dtype in allowed,
            operator,
            f"atten_mask is bool, int8 or uint8, got {call.mask.dtype}",
        )
    if call.sparse_mode in (LEFT_CAUSAL, CAUSAL, BAND):
        side = (_MASK_SIDE, _MASK_SIDE)
        fits = shape is not None and shape[-2:] == side and all(one == 1 for one in shape[:-2])
        require(fits, operator, f"sparse_mode {call.sparse_mode} needs an atten_mask of {side}, got {shape}")
        return
    require(
        call.sparse_mode in (0, 1), operator, f"sparse_mode is 0, 1, 2, 3, 4 or 9, got {call.sparse_mode}"
    )
    require(call.sparse_mode == 0 or shape is not None, operator, "sparse_mode 1 needs an atten_mask")
    if call.flat:
        require(shape is None, operator, f"with {call.layout} sparse_mode 0 takes no atten_mask")


def _check_pages(operator, call):
    table = call.block_table
    require(table.dtype == torch.int32, operator, f"block_table must be int32, got {table.dtype}")
    require(call.kv_lengths is not None, operator, "a block_table needs actual_seq_lengths_kv")
    require(
        table.dim() == 2 and table.shape[0] >= call.batch,
        operator,
        f"block_table has the shape {tuple(table.shape)} for {call.batch} sequences",
    )
    require(
        0 < call.block_size <= _MOST_BLOCK and call.block_size % 16 == 0,
        operator,
        f"block_size is a multiple of 16 up to {_MOST_BLOCK}, got {call.block_size}",
    )
    longest = max(call.kv_lengths, default=0)
    require(
        table.shape[1] * call.block_size >= longest,
        operator,
        f"block_table has {table.shape[1]} blocks of {call.block_size} for a sequence of {longest}",
    )


def _check_rope(operator, call):
    require(
        (call.query_rope is None) == (call.key_rope is None),
        operator,
        "query_rope and key_rope are given together or not at all",
    )
    if call.query_rope is None:
        return
    require(
        call.query_rope.shape[:-1] == call.query.shape[:-1] and call.query_rope.shape[-1] == _ROPE,
        operator,
        f"query_rope is like query with a last dimension of {_ROPE}, got {tuple(call.query_rope.shape)}",
    )
    require(
        call.key_rope.shape[:-1] == call.key.shape[:-1],
        operator,
        f"key_rope is like key but for the last dimension, got {tuple(call.key_rope.shape)}",
    )
    require(call.size in (128, _LATENT), operator, f"with rope parts the head size is 128 or {_LATENT}")
    if call.size == 128:
        require(call.layout in ("TND", "NTD_TND"), operator, f"rope parts of 128 do not take {call.layout}")
    else:
        _check_latent(operator, call)


def _check_latent(operator, call):
    require(call.block_table is not None, operator, "latent attention needs a block_table")
    require(call.block_size in (16, 128), operator, f"its block_size is 16 or 128, got {call.block_size}")
    require(call.kv_heads == 1, operator, f"it has one key head, got {call.kv_heads}")
    power = call.heads & (call.heads - 1) == 0 and call.heads <= 128
    require(power, operator, f"it has 1, 2, 4, … 128 heads, got {call.heads}")
    most = call.longest_query
    require(most <= _MOST_LATENT_TOKENS, operator, f"a sequence has at most 16 queries, got {most}")
    if most > 1:
        require(
            call.sparse_mode == CAUSAL,
            operator,
            f"several queries need sparse_mode 3, got {call.sparse_mode}",
        )
    elif not call.flat:
        alone = call.sparse_mode == 0 and call.mask is None
        require(alone, operator, f"one query needs sparse_mode 0 and no mask, got {call.sparse_mode}")
