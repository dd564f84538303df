"""Matrix products of groups of rows, and batched ones with their dimensions exchanged."""

from __future__ import annotations

import itertools

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import lacking, require

_GROUPED, _BATCHED = "npu_grouped_matmul", "npu_transpose_batchmatmul"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_INNER, _MOST_GROUPS, _MOST_LIST = 65536, 1024, 128
_BIAS = {torch.float16: torch.float16, torch.bfloat16: torch.float32, torch.float32: torch.float32}
_ROWS, _COUNTS = 0, 1


@reference(f"npu::{_GROUPED}", f"npu::{_GROUPED}.List")
def npu_grouped_matmul(
    x, weight, *, bias=None, group_list=None, split_item=0, group_type=None, group_list_type=0, act_type=0,
    output_dtype=None, tuning_config=None, x_dtype=None, weight_dtype=None, scale_dtype=None,
    per_token_scale_dtype=None, **quantised,
):  # fmt: skip
    given = sorted(name for name, value in quantised.items() if value is not None)
    if given:
        raise lacking(_GROUPED, ", ".join(given))
    if any(part.dtype not in _FLOATS for part in (*x, *weight)):
        raise lacking(_GROUPED, "quantised inputs")
    _check_grouped(x, weight, bias, split_item or 0, group_type, act_type or 0)
    rows = _rows_of(x, group_list, group_list_type or 0)
    weights = weight[0].unbind(0) if len(weight) == 1 and weight[0].dim() == 3 else list(weight)
    biases = bias[0] if bias and len(bias) == 1 and bias[0].dim() == 2 else bias
    require(len(weights) == len(rows), _GROUPED, f"{len(weights)} weights for {len(rows)} groups")
    results = []
    for group, (states, matrix) in enumerate(zip(rows, weights, strict=True)):
        require(
            states.shape[-1] == matrix.shape[0],
            _GROUPED,
            f"x has {states.shape[-1]} columns, weight {group} {matrix.shape[0]} rows",
        )
        product = states.float() @ matrix.float()
        results.append((product if biases is None else product + biases[group].float()).to(x[0].dtype))
    if (split_item or 0) < 2:
        return results
    # rows past the last group are left as they are on the device; here they are zero
    total = torch.zeros(sum(part.shape[0] for part in x), weights[0].shape[-1], dtype=x[0].dtype)
    joined = torch.cat(results)
    total[: joined.shape[0]] = joined
    return [total]


def _check_grouped(x, weight, bias, split_item, group_type, act_type):
    require(len(x) <= _MOST_LIST and len(weight) <= _MOST_LIST, _GROUPED, f"at most {_MOST_LIST} tensors")
    require(split_item in (0, 1, 2, 3), _GROUPED, f"split_item is 0 to 3, got {split_item}")
    require(group_type in (None, -1, _ROWS), _GROUPED, f"group_type is -1 or 0, got {group_type}")
    if group_type == _ROWS:
        require(split_item in (2, 3), _GROUPED, f"groups of rows need split_item 2 or 3, got {split_item}")
        require(all(part.dim() == 2 for part in x), _GROUPED, "groups of rows need x of two dimensions")
    require(act_type == 0, _GROUPED, f"an activation is only for quantised inputs, got act_type {act_type}")
    for part in (*x, *weight):
        require(part.dtype == x[0].dtype, _GROUPED, f"x is {x[0].dtype}, a weight {part.dtype}")
        require(
            part.shape[-1] < _INNER, _GROUPED, f"the last dimension is below {_INNER}, got {part.shape[-1]}"
        )
    for part in bias or ():
        require(
            part.dtype == _BIAS[x[0].dtype],
            _GROUPED,
            f"bias of {x[0].dtype} is {_BIAS[x[0].dtype]}, got {part.dtype}",
        )


def _rows_of(x, group_list, kind):
    """The rows of each group: parts of one x, or each x of its own."""
    if group_list is None or len(x) > 1:
        return list(x)
    require(kind in (0, _COUNTS), _GROUPED, f"group_list_type is 0 or 1, got {kind}")
    if isinstance(group_list, torch.Tensor):
        require(
            group_list.dtype == torch.int64 and group_list.dim() == 1 and len(group_list) <= _MOST_GROUPS,
            _GROUPED,
            f"group_list is int64 of one dimension and at most {_MOST_GROUPS}, got {group_list.dtype}",
        )
    values = [int(value) for value in group_list]
    ends = list(itertools.accumulate(values)) if kind == _COUNTS else values
    ordered = all(one <= two for one, two in itertools.pairwise([0, *ends]))
    require(ordered, _GROUPED, f"group_list does not fall, got {values}")
    require(
        not ends or ends[-1] <= x[0].shape[0],
        _GROUPED,
        f"group_list asks for {ends[-1:]} of {x[0].shape[0]} rows",
    )
    return [x[0][one:two] for one, two in itertools.pairwise([0, *ends])]


@reference(f"npu::{_BATCHED}")
def npu_transpose_batchmatmul(
    input, weight, *, bias=None, scale=None, perm_x1=None, perm_x2=None, perm_y=None, batch_split_factor=1
):
    if bias is not None or scale is not None:
        raise lacking(_BATCHED, "a bias or a scale")
    if batch_split_factor not in (None, 1):
        raise lacking(_BATCHED, f"batch_split_factor {batch_split_factor}")
    require(input.dim() == 3 and weight.dim() == 3, _BATCHED, "input and weight have three dimensions")
    require(
        input.dtype in _FLOATS and input.dtype == weight.dtype,
        _BATCHED,
        f"input and weight have one floating dtype, got {input.dtype} and {weight.dtype}",
    )
    first = input.permute(perm_x1) if perm_x1 else input
    second = weight.permute(perm_x2) if perm_x2 else weight
    require(
        first.shape[0] == second.shape[0] and first.shape[2] == second.shape[1],
        _BATCHED,
        f"(B, M, K) and (B, K, N) do not fit: {tuple(first.shape)} and {tuple(second.shape)}",
    )
    product = torch.bmm(first.float(), second.float()).to(input.dtype)
    return (product.permute(perm_y) if perm_y else product).contiguous()
