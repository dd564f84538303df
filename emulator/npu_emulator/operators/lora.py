"""Products with the adapters of a batch: down to the rank ("shrink") and up again ("expand").

An adapter's weights are (adapters, out, in) or (adapters, 1, out, in); a row whose adapter is negative has
none and is left as it is.
"""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import require

_HALVES = (torch.float16, torch.bfloat16)


def _check(operator, x, weight, y, wide):
    require(wide.dtype in _HALVES, operator, f"only float16 and bfloat16 are supported, got {wide.dtype}")
    require(
        x.dim() == 2 and y.dim() == 2, operator, f"x and y need 2 dimensions, got {x.dim()} and {y.dim()}"
    )
    require(weight.dim() in (3, 4), operator, f"weight needs 3 or 4 dimensions, got {weight.dim()}")
    require(len(x) == len(y), operator, f"x and y have {len(x)} and {len(y)} rows")


def _per_row(operator, indices, x):
    require(
        indices.dim() == 1 and len(indices) == len(x),
        operator,
        f"indices need one entry for each of {len(x)} rows, got {tuple(indices.shape)}",
    )
    return indices


def _of_sequences(lora_indices, seq_len, x):
    """The adapter of each row; rows behind the last sequence have none."""
    of_rows = torch.full((len(x),), -1, dtype=torch.int64)
    known = torch.repeat_interleave(lora_indices.long(), seq_len.long())[: len(x)]
    of_rows[: len(known)] = known
    return of_rows


def _products(x, weight, indices):
    """(rows that have an adapter, their products in float32)."""
    rows = (indices >= 0).nonzero().flatten()
    matrices = weight.reshape(len(weight), *weight.shape[-2:]).float()
    return rows, torch.einsum("ri,roi->ro", x[rows].float(), matrices[indices[rows].long()])


def _shrink(operator, x, weight, indices, y, scale):
    _check(operator, x, weight, y, x)
    require(
        x.shape[1] > y.shape[1],
        operator,
        f"x has to be wider than y, got {x.shape[1]} and {y.shape[1]}",
    )
    rows, products = _products(x, weight, indices)
    y[rows] = (products * scale).to(y.dtype)


def _expand(operator, x, weight, indices, y, slice_offset, slice_size):
    _check(operator, x, weight, y, y)
    require(x.shape[1] <= slice_size, operator, f"x has {x.shape[1]} columns, the slice {slice_size}")
    require(
        slice_offset >= 0 and slice_offset + slice_size <= y.shape[1],
        operator,
        f"columns {slice_offset} to {slice_offset + slice_size} are not within the {y.shape[1]} of y",
    )
    rows, products = _products(x, weight, indices)
    columns = slice(slice_offset, slice_offset + slice_size)
    y[rows, columns] = (y[rows, columns].float() + products).to(y.dtype)
    return y


def _nothing(*given):
    """What a shrink returns on meta tensors: it writes into y."""


@reference("_C_ascend::bgmv_shrink", meta=_nothing)
def bgmv_shrink(x, weight, indices, y, scale):
    _shrink("bgmv_shrink", x, weight, _per_row("bgmv_shrink", indices, x), y, scale)


@reference("_C_ascend::bgmv_expand", meta=lambda x, weight, indices, y, *rest: torch.empty_like(y))
def bgmv_expand(x, weight, indices, y, slice_offset, slice_size):
    return _expand("bgmv_expand", x, weight, _per_row("bgmv_expand", indices, x), y, slice_offset, slice_size)


@reference("_C_ascend::sgmv_shrink", meta=_nothing)
def sgmv_shrink(x, weight, lora_indices, seq_len, y, scale):
    _shrink("sgmv_shrink", x, weight, _of_sequences(lora_indices, seq_len, x), y, scale)


@reference("_C_ascend::sgmv_expand", meta=lambda x, weight, indices, lengths, y, *rest: torch.empty_like(y))
def sgmv_expand(x, weight, lora_indices, seq_len, y, slice_offset, slice_size):
    return _expand(
        "sgmv_expand", x, weight, _of_sequences(lora_indices, seq_len, x), y, slice_offset, slice_size
    )
