"""``npu_fusion_attention``: attention over whole sequences without a cache, for diffusion and codecs."""

from __future__ import annotations

import itertools

import torch

from npu_emulator.operators.attention import BAND, CAUSAL, LEFT_CAUSAL, attend
from npu_emulator.operators.registry import reference
from npu_emulator.problems import lacking, require

_OPERATOR = "npu_fusion_attention"
_LAYOUTS = ("BSH", "SBH", "BSND", "BNSD", "TND")
_COMPRESSED = (LEFT_CAUSAL, CAUSAL, BAND)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_WHOLE = 2147483647  # tokens of a band that has no end


def _by_sequence(states, layout, heads, ends):
    """The sequences of a tensor, each (tokens, heads, size)."""
    if layout == "TND":
        return [states[one:two] for one, two in itertools.pairwise([0, *ends])]
    if layout == "SBH":
        states = states.transpose(0, 1)
    if layout in ("BSH", "SBH"):
        states = states.unflatten(-1, (heads, -1))
    return list(states.transpose(1, 2) if layout == "BNSD" else states)


def _arranged(sequences, layout):
    """The sequences as one tensor of a layout."""
    if layout == "TND":
        return torch.cat(sequences)
    states = torch.stack(sequences)
    if layout == "BNSD":
        return states.transpose(1, 2).contiguous()
    if layout == "BSND":
        return states
    flat = states.flatten(2)
    return flat.transpose(0, 1).contiguous() if layout == "SBH" else flat


def _sums(sequences, layout):
    """What the softmax kept of each row, eight times over: (B, N, S, 8), or (T, N, 8)."""
    if layout == "TND":
        return torch.cat(sequences)[..., None].expand(-1, -1, 8).contiguous()
    return torch.stack(sequences).transpose(1, 2)[..., None].expand(-1, -1, -1, 8).contiguous()


def _shapes(query, key, value, head_num, input_layout, *rest, **options):
    batch, tokens = {"BSH": (0, 1), "SBH": (1, 0), "BSND": (0, 1), "BNSD": (0, 2), "TND": (0, 0)}[
        input_layout
    ]
    rows = (query.shape[batch], head_num, query.shape[tokens], 8)
    kept = query.new_empty(rows if input_layout != "TND" else (rows[0], head_num, 8), dtype=torch.float32)
    return torch.empty_like(query), kept, torch.empty_like(kept), query.new_empty(0), 0, 0, 0


@reference("npu::npu_fusion_attention", meta=_shapes)
def npu_fusion_attention(
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
    pre_tockens=_WHOLE,
    next_tockens=_WHOLE,
    inner_precise=0,
    prefix=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    sparse_mode=0,
    gen_mask_parallel=True,
    sync=False,
    softmax_layout="",
    sink=None,
    dropout_mask=None,
    seed=0,
    offset=0,
):
    require(query.dtype in _FLOATS, _OPERATOR, f"query is float16, bfloat16 or float32, got {query.dtype}")
    require(query.dtype == key.dtype == value.dtype, _OPERATOR, "query, key and value have one dtype")
    require(input_layout in _LAYOUTS, _OPERATOR, f"input_layout is one of {_LAYOUTS}, got {input_layout}")
    more = {"pse": pse, "padding_mask": padding_mask, "prefix": prefix, "dropout_mask": dropout_mask}
    if given := [name for name, one in more.items() if one is not None]:
        raise lacking(_OPERATOR, " and ".join(given))
    if keep_prob != 1.0:
        raise lacking(_OPERATOR, "dropout")
    if sparse_mode not in (0, 1, *_COMPRESSED):
        raise lacking(_OPERATOR, f"sparse mode {sparse_mode}")
    if sparse_mode in _COMPRESSED:
        require(
            atten_mask is not None and tuple(atten_mask.shape[-2:]) == (2048, 2048),
            _OPERATOR,
            f"sparse mode {sparse_mode} takes a mask of 2048 x 2048",
        )
    require(sparse_mode != 1 or atten_mask is not None, _OPERATOR, "sparse mode 1 takes a whole mask")
    if sparse_mode == 0 and atten_mask is not None and min(pre_tockens, next_tockens) < max(atten_mask.shape):
        raise lacking(_OPERATOR, "a band beside a mask")
    flat = input_layout == "TND"
    require(
        not flat or bool(actual_seq_qlen and actual_seq_kvlen),
        _OPERATOR,
        "layout TND takes actual_seq_qlen and actual_seq_kvlen",
    )
    if flat:
        pairs = ((actual_seq_qlen, query), (actual_seq_kvlen, key))
        for ends, states in pairs:
            require(
                list(ends) == sorted(ends) and ends[-1] == states.shape[0],
                _OPERATOR,
                f"lengths are running sums that end with {states.shape[0]} tokens, got {list(ends)}",
            )
    elif actual_seq_qlen or actual_seq_kvlen:
        raise lacking(_OPERATOR, f"lengths in the layout {input_layout}")
    queries = _by_sequence(query, input_layout, head_num, actual_seq_qlen)
    size = queries[0].shape[-1]
    shared = key.shape[-1] // size if input_layout in ("BSH", "SBH") else 0
    keys = _by_sequence(key, input_layout, shared, actual_seq_kvlen)
    values = _by_sequence(value, input_layout, shared, actual_seq_kvlen)
    require(
        keys[0].shape[1] > 0 and head_num % keys[0].shape[1] == 0 and queries[0].shape[1] == head_num,
        _OPERATOR,
        f"head_num {head_num} is the heads of query {queries[0].shape[1]}, a multiple of {keys[0].shape[1]}",
    )
    results, sums = [], []
    for row, (one, two, three) in enumerate(zip(queries, keys, values, strict=True)):
        mask = (
            None if sparse_mode in _COMPRESSED else _mask(atten_mask, row, one.shape[0], two.shape[0], flat)
        )
        mode = sparse_mode if sparse_mode in _COMPRESSED else 0
        result, kept = attend(one, two, three, scale, mode, pre_tockens, next_tockens, mask, sink)
        results.append(result.to(query.dtype))
        sums.append(kept)
    kept = _sums(sums, input_layout)
    return _arranged(results, input_layout), kept, torch.ones_like(kept), query.new_empty(0), 0, 0, 0


def _mask(mask, row, tokens, context, flat):
    """What sequence ``row`` does not see: (tokens, context), or one for each head; None without a mask."""
    if mask is None:
        return None
    require(
        not flat and tuple(mask.shape[-2:]) == (tokens, context),
        _OPERATOR,
        f"a mask (S, S) of {tokens} x {context}, got {tuple(mask.shape)}",
    )
    if mask.dim() == 2:
        return mask
    own = mask[row if mask.shape[0] > 1 else 0]
    return own[0] if own.shape[0] == 1 else own
