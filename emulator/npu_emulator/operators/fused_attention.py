"""npu_fused_infer_attention_score and its second version: attention in many layouts, plain, paged, latent."""

from __future__ import annotations

import torch

from npu_emulator.operators import fused_layouts, fused_limits
from npu_emulator.operators.attention import attend
from npu_emulator.operators.fused_call import Call
from npu_emulator.operators.registry import reference
from npu_emulator.problems import lacking, require

FIRST, SECOND = "npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2"


def run(operator: str, call: Call):
    """The result in the layout asked for, and the softmax sums (B, N, S, 1) or (T, N, 1), or one zero."""
    fused_limits.check(operator, call)
    asked = fused_layouts.queries(_joined(call.query, call.query_rope), call.come, call.heads, call.lengths)
    keys = _contexts(operator, call, call.key)
    if call.key_rope is not None:
        ropes = _contexts(operator, call, call.key_rope)
        keys = [torch.cat(pair, -1) for pair in zip(keys, ropes, strict=True)]
    values = _contexts(operator, call, call.value)
    size = values[0].shape[-1] if values else call.size
    rows = torch.zeros(*asked.rows.shape[:2], size, dtype=call.query.dtype)
    sums = torch.full(asked.rows.shape[:2], float("-inf"))
    for index, (start, end) in enumerate(asked.bounds):
        if end == start or not len(keys[index]):
            continue  # a padded sequence gives zeros
        part, lse = attend(
            asked.rows[start:end], keys[index], values[index], call.scale, call.sparse_mode,
            call.before, call.after, _mask_of(call, index, end - start, len(keys[index])), call.sink,
        )  # fmt: skip
        rows[start:end], sums[start:end] = part.to(rows.dtype), lse
    return fused_layouts.arranged(rows, call.goes, asked.shape), _sums(call, sums, asked.shape)


def _joined(query, rope):
    return query if rope is None else torch.cat((query, rope), -1)


def _contexts(operator, call, states):
    if call.block_table is None:
        return fused_layouts.contexts(states, call.come, call.kv_heads, call.kv_lengths, call.batch)
    lengths = [int(length) for length in call.kv_lengths][: call.batch]
    lengths = fused_layouts.spread(lengths, call.batch)
    return fused_layouts.paged_contexts(
        operator, states, call.kv_heads, call.block_size, lengths, call.block_table
    )


def _mask_of(call, index, tokens, context):
    """The mask of one sequence in the sparse modes 0 and 1; the other modes say all themselves."""
    if call.mask is None or call.sparse_mode not in (0, 1):
        return None
    mask = call.mask
    if mask.dim() == 2:
        mask = mask[index : index + 1] if call.tokens == 1 and mask.shape[0] == call.batch else mask
    else:
        mask = mask.reshape(mask.shape[0], *mask.shape[-2:])
        mask = mask[index if mask.shape[0] > 1 else 0]
    return mask[:tokens, :context]


def _sums(call, sums, shape):
    if not call.with_lse:
        return torch.zeros(1)
    if call.flat:
        return sums[..., None]
    return sums.reshape(*shape, -1).transpose(1, 2)[..., None].contiguous()


def _refuse_tensors(operator, options):
    given = sorted(name for name, value in options.items() if isinstance(value, torch.Tensor))
    if given:
        raise lacking(operator, ", ".join(given))


@reference(f"npu::{FIRST}")
def npu_fused_infer_attention_score(
    query, key, value, *, atten_mask=None, actual_seq_lengths=None, actual_seq_lengths_kv=None,
    block_table=None, query_rope=None, key_rope=None, num_heads=1, scale=1.0, pre_tokens=2147483647,
    next_tokens=2147483647, input_layout="BSH", num_key_value_heads=0, sparse_mode=0, block_size=0,
    softmax_lse_flag=False, **other,
):  # fmt: skip
    _refuse_tensors(FIRST, other)
    return run(FIRST, Call(
        query, key, value, input_layout, num_heads, num_key_value_heads or num_heads, scale,
        actual_seq_lengths, actual_seq_lengths_kv, block_table, block_size, atten_mask, sparse_mode,
        pre_tokens, next_tokens, query_rope, key_rope, softmax_lse_flag,
    ))  # fmt: skip


@reference(f"npu::{SECOND}")
def npu_fused_infer_attention_score_v2(
    query, key, value, *, query_rope=None, key_rope=None, atten_mask=None, actual_seq_qlen=None,
    actual_seq_kvlen=None, block_table=None, learnable_sink=None, num_query_heads=1, num_key_value_heads=0,
    softmax_scale=1.0, pre_tokens=2147483647, next_tokens=2147483647, input_layout="BSH", sparse_mode=0,
    block_size=0, return_softmax_lse=False, **other,
):  # fmt: skip
    _refuse_tensors(SECOND, other)
    if learnable_sink is not None:
        fits = input_layout in ("TND", "NTD_TND") and tuple(learnable_sink.shape) == (num_query_heads,)
        require(fits, SECOND, f"learnable_sink takes TND and ({num_query_heads},) values")
    kv_heads = num_key_value_heads or num_query_heads
    return run(SECOND, Call(
        query, key, value, input_layout, num_query_heads, kv_heads, softmax_scale,
        actual_seq_qlen, actual_seq_kvlen, block_table, block_size, atten_mask, sparse_mode, pre_tokens,
        next_tokens, query_rope, key_rope, return_softmax_lse, learnable_sink,
    ))  # fmt: skip


def _into(operator, function, arguments, out, options):
    """The form that writes into ``out``: as much of it as the result fills."""
    attention, lse = function(*arguments, **options)
    target = out[0]
    require(
        target.numel() >= attention.numel(),
        operator,
        f"out has {tuple(target.shape)}, the result {tuple(attention.shape)}",
    )
    if target.numel() == attention.numel():
        target.view(attention.shape).copy_(attention)
    else:
        target[: attention.shape[0]] = attention
    if lse.numel() > 1 and out[1].numel() == lse.numel():
        out[1].view(lse.shape).copy_(lse)
    return out[0], out[1]


@reference(f"npu::{FIRST}.out")
def npu_fused_infer_attention_score_out(query, key, value, *, workspace=None, out, **options):
    return _into(FIRST, npu_fused_infer_attention_score, (query, key, value), out, options)


@reference(f"npu::{SECOND}.out")
def npu_fused_infer_attention_score_v2_out(query, key, value, *, workspace=None, out, **options):
    return _into(SECOND, npu_fused_infer_attention_score_v2, (query, key, value), out, options)


@reference(f"npu::_{FIRST}_get_max_workspace", f"npu::_{SECOND}_get_max_workspace")
def fused_workspace(query, key, value, **options):
    return torch.empty(16, dtype=torch.uint8)
