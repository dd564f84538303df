"""``npu_fusion_attention_v3`` gives what ``npu_fusion_attention`` does, and tensors for the dropout."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import close, random, refused, uncovered  # noqa: E402

from npu_emulator.operators.fusion_attention import npu_fusion_attention  # noqa: E402
from npu_emulator.operators.fusion_attention_v3 import npu_fusion_attention_v3  # noqa: E402

HEADS, SIZE = 4, 8
GIVEN = [random(2, HEADS, tokens, SIZE, seed=tokens) for tokens in (3, 5, 5)]


def test_a_masked_attention_is_torchs():
    seen = torch.ones(2, 1, 3, 5).tril(2).bool()
    result, *_, seed, offset = npu_fusion_attention_v3(
        *GIVEN, HEADS, "BNSD", atten_mask=~seen, scale=SIZE**-0.5
    )
    close(result, torch.nn.functional.scaled_dot_product_attention(*GIVEN, seen))
    assert (seed.shape, seed.dtype, offset.shape, offset.dtype) == ((1,), torch.long) * 2


def test_sequences_end_where_tensors_say():
    query, key, value = (states.transpose(1, 2).flatten(0, 1) for states in GIVEN)
    ends = [3, 6], [5, 10]
    result, *_ = npu_fusion_attention_v3(
        query,
        key,
        value,
        HEADS,
        "TND",
        actual_seq_qlen=torch.tensor(ends[0]),
        actual_seq_kvlen=torch.tensor(ends[1]),
    )
    other, *_ = npu_fusion_attention(
        query, key, value, HEADS, "TND", actual_seq_qlen=ends[0], actual_seq_kvlen=ends[1]
    )
    close(result, other)


def test_limits_and_modes_without_a_reference_are_those_of_the_first():
    with refused("head_num 3 is the heads of query 4"):
        npu_fusion_attention_v3(*GIVEN, 3, "BNSD")
    with uncovered("dropout"):
        npu_fusion_attention_v3(*GIVEN, HEADS, "BNSD", keep_prob=0.5)
