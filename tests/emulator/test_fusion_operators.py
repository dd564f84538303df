"""``npu_fusion_attention`` in each layout against one formula written here, and its documented limits."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import close, random, refused, uncovered  # noqa: E402

from npu_emulator.operators.fusion_attention import npu_fusion_attention  # noqa: E402
from npu_emulator.operators.normalisation import npu_layer_norm_eval  # noqa: E402
from npu_emulator.operators.rotary import npu_apply_rotary_pos_emb  # noqa: E402

HEADS, KV_HEADS, SIZE, SCALE = 4, 2, 8, 0.3
CAUSAL = torch.ones(2048, 2048).triu(1).bool()


def plain(query, key, value, seen):
    """Attention of (B, S, N, D), one weight after another."""
    result = torch.zeros(*query.shape[:3], value.shape[-1])
    for row, token, head in torch.cartesian_prod(*map(torch.arange, query.shape[:3])).tolist():
        shared = head // (query.shape[2] // key.shape[2])
        places = [at for at in range(key.shape[1]) if seen(row, token, at)]
        weights = [math.exp(float(query[row, token, head] @ key[row, at, shared]) * SCALE) for at in places]
        for at, weight in zip(places, weights, strict=True):
            result[row, token, head] += weight / sum(weights) * value[row, at, shared]
    return result


QUERY, KEY, VALUE = (
    random(2, 3, HEADS, SIZE, seed=1),
    random(2, 5, KV_HEADS, SIZE, seed=2),
    random(2, 5, KV_HEADS, SIZE, seed=3),
)
TO = {
    "BSND": lambda states: states,
    "BNSD": lambda states: states.transpose(1, 2),
    "BSH": lambda states: states.flatten(2),
    "SBH": lambda states: states.flatten(2).transpose(0, 1),
}


@pytest.mark.parametrize("layout", TO)
@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({}, lambda row, token, at: True),
        ({"sparse_mode": 3, "atten_mask": CAUSAL}, lambda row, token, at: at <= token + 2),
        ({"sparse_mode": 2, "atten_mask": CAUSAL}, lambda row, token, at: at <= token),
        (
            {"sparse_mode": 1, "atten_mask": torch.ones(3, 5).triu(2).bool()},
            lambda row, token, at: at < token + 2,
        ),
        (
            {"atten_mask": torch.stack((torch.zeros(1, 3, 5), torch.ones(1, 3, 5).tril(-1))).bool()},
            lambda row, token, at: row == 0 or at >= token,
        ),
    ],
    ids=["all", "causal", "first tokens aligned", "a whole mask", "a mask for each sequence"],
)
def test_each_layout_gives_the_formula(layout, options, seen):
    given = (TO[layout](states) for states in (QUERY, KEY, VALUE))
    result, sums, *_ = npu_fusion_attention(*given, HEADS, layout, scale=SCALE, **options)
    close(result, TO[layout](plain(QUERY, KEY, VALUE, seen)))
    assert sums.shape == (2, HEADS, 3, 8)


def test_sequences_one_after_another_see_themselves_only():
    query, key = QUERY.flatten(0, 1), KEY.flatten(0, 1)
    result, *_ = npu_fusion_attention(
        query,
        key,
        VALUE.flatten(0, 1),
        HEADS,
        "TND",
        scale=SCALE,
        actual_seq_qlen=[3, 6],
        actual_seq_kvlen=[5, 10],
    )
    close(result, plain(QUERY, KEY, VALUE, lambda row, token, at: True).flatten(0, 1))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"input_layout": "NSD"}, "input_layout is one of"),
        ({"head_num": 3}, "head_num 3 is the heads of query 4"),
        ({"sparse_mode": 3}, "takes a mask of 2048 x 2048"),
        ({"sparse_mode": 1}, "takes a whole mask"),
        ({"atten_mask": torch.zeros(4, 4).bool()}, "a mask .* of 3 x 5"),
        ({"key": KEY.half()}, "one dtype"),
        ({"input_layout": "TND"}, "takes actual_seq_qlen"),
    ],
)
def test_documented_limits_are_kept(change, text):
    given = {"query": QUERY, "key": KEY, "value": VALUE, "head_num": HEADS, "input_layout": "BSND"} | change
    with refused(text):
        npu_fusion_attention(**given)


@pytest.mark.parametrize(
    "more", [{"pse": QUERY}, {"keep_prob": 0.5}, {"sparse_mode": 5}, {"actual_seq_qlen": [3, 6]}]
)
def test_modes_without_a_reference_are_named(more):
    with uncovered("npu_fusion_attention"):
        npu_fusion_attention(QUERY, KEY, VALUE, HEADS, "BSND", **more)


def test_layer_norm_is_torchs_over_the_last_dimensions():
    states, weight, bias = random(2, 3, 8), random(8, seed=1), random(8, seed=2)
    close(
        npu_layer_norm_eval(states, [8], weight, bias, 1e-6),
        torch.nn.functional.layer_norm(states, [8], weight, bias, 1e-6),
    )
    with refused("is the end of the input"):
        npu_layer_norm_eval(states, [4])


def test_rotary_positions_turn_query_and_key_in_place():
    query, key = random(2, 3, 4, 8, seed=1), random(2, 3, 2, 8, seed=2)
    angle = random(2, 3, 1, 8, seed=3)
    cos, sin = angle.cos(), angle.sin()
    first, second = query.chunk(2, -1)
    expected = query * cos + torch.cat((-second, first), -1) * sin
    turned, _ = npu_apply_rotary_pos_emb(query, key, cos, sin)
    close(turned, expected)
    assert turned is query
    with refused("head size 8"):
        npu_apply_rotary_pos_emb(query, key, cos[..., :4], sin[..., :4])
