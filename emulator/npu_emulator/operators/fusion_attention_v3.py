"""``npu_fusion_attention_v3``: ``npu_fusion_attention`` for graphs, which is torch's attention on an NPU."""

from __future__ import annotations

import torch

from npu_emulator.operators import fusion_attention
from npu_emulator.operators.registry import reference


def _with_tensors(results):
    """Results whose last ones, of the dropout, are tensors here."""
    result, most, sums, left, *_ = results
    return result, most, sums, left, *(torch.zeros(1, dtype=torch.long, device=result.device) for _ in "12")


def _shapes(query, key, value, head_num, input_layout, *rest, **options):
    return _with_tensors(fusion_attention._shapes(query, key, value, head_num, input_layout))


@reference("npu::npu_fusion_attention_v3", meta=_shapes)
def npu_fusion_attention_v3(
    query,
    key,
    value,
    head_num,
    input_layout,
    pse=None,
    padding_mask=None,
    atten_mask=None,
    scale=1.0,
    keep_prob=1.0,
    pre_tockens=fusion_attention._WHOLE,
    next_tockens=fusion_attention._WHOLE,
    inner_precise=0,
    prefix=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    sparse_mode=0,
    gen_mask_parallel=True,
    sync=False,
    softmax_layout="",
    sink=None,
):
    query_ends, key_ends = (
        None if ends is None else ends.tolist() for ends in (actual_seq_qlen, actual_seq_kvlen)
    )
    return _with_tensors(
        fusion_attention.npu_fusion_attention(
            query,
            key,
            value,
            head_num,
            input_layout,
            pse,
            padding_mask,
            atten_mask,
            scale,
            keep_prob,
            pre_tockens,
            next_tockens,
            inner_precise,
            prefix,
            query_ends,
            key_ends,
            sparse_mode,
            gen_mask_parallel,
            sync,
            softmax_layout,
            sink,
        )
    )
