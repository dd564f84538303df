"""Reference operators of latent attention: its cache, its rotary part, the joining of partial results."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import close, random, refused, uncovered  # noqa: E402

from npu_emulator.operators import attention, latent  # noqa: E402

TOKENS, LATENT, ROPE, BLOCK = 3, 512, 64, 4


def angles(tokens=TOKENS):
    """Cosines and sines (tokens, 1, 1, 64), each angle twice."""
    angle = random(tokens, 1, 1, ROPE // 2, seed=7).repeat(1, 1, 1, 2)
    return angle.cos(), angle.sin()


def turned(x, cos, sin):
    """Pair (2 i, 2 i + 1) turned by angle i; first all even results, then all odd ones."""
    result = torch.empty_like(x)
    for index in range(ROPE // 2):
        c, s = cos[..., index], sin[..., index]
        even, odd = x[..., 2 * index], x[..., 2 * index + 1]
        result[..., index] = even * c - odd * s
        result[..., index + ROPE // 2] = odd * c + even * s
    return result


def test_interleaved_rotation():
    x, (cos, sin) = random(TOKENS, 4, 1, ROPE), angles()
    close(latent.npu_interleave_rope(x, cos, sin), turned(x, cos, sin))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x, cos, sin: (x[..., :32], cos, sin), r"x is \(B, N, S, 64\)"),
        (lambda x, cos, sin: (x.int(), cos, sin), "floating point"),
        (lambda x, cos, sin: (x, cos[:2], sin), r"cos is \(B, 1, S, 64\)"),
        (lambda x, cos, sin: (x, cos, sin[:, 0]), r"sin is \(B, 1, S, 64\)"),
        (lambda x, cos, sin: (x, cos.half(), sin), "cos has the dtype"),
    ],
)
def test_interleaved_rotation_refuses(change, text):
    with refused(text):
        latent.npu_interleave_rope(*change(random(TOKENS, 4, 1, ROPE), *angles()))


def stored(**options):
    cos, sin = angles()
    arguments = {
        "kv": random(TOKENS, 1, 1, LATENT + ROPE), "gamma": random(LATENT, seed=1), "cos": cos, "sin": sin,
        "index": torch.tensor([5, -1, 0]), "k_cache": torch.zeros(2, BLOCK, 1, ROPE),
        "ckv_cache": torch.zeros(2, BLOCK, 1, LATENT), "epsilon": 1e-6, "cache_mode": "PA",
        "is_output_kv": True,
    } | options  # fmt: skip
    return latent.npu_kv_rmsnorm_rope_cache(**arguments)


def test_the_cache_gets_a_normed_and_a_turned_part():
    kv, gamma, (cos, sin) = random(TOKENS, 1, 1, LATENT + ROPE), random(LATENT, seed=1), angles()
    k_cache, ckv_cache, rope, normed = stored()
    wanted = kv[..., :LATENT] / (kv[..., :LATENT].square().mean(-1, keepdim=True) + 1e-6).sqrt() * gamma
    close(normed, wanted)
    close(rope, turned(kv[..., LATENT:], cos, sin))
    for slot, row in ((5, 0), (0, 2)):
        close(ckv_cache[slot // BLOCK, slot % BLOCK, 0], wanted[row, 0, 0])
        close(k_cache[slot // BLOCK, slot % BLOCK, 0], rope[row, 0, 0])
    assert int(ckv_cache.abs().sum(-1).count_nonzero()) == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kv": random(TOKENS, 2, 1, LATENT + ROPE)}, r"kv is \(B, 1, S, D\)"),
        ({"kv": random(TOKENS, 1, 1, LATENT)}, "512 \\+ 64 values"),
        ({"gamma": random(LATENT).half()}, "gamma torch.float16"),
        ({"index": torch.tensor([5, -1, 0], dtype=torch.int32)}, "index must be int64"),
        ({"index": torch.tensor([5, -1])}, "2 slots for 3 tokens"),
        ({"index": torch.tensor([8, -1, 0])}, "past the cache"),
        ({"k_cache": torch.zeros(2, BLOCK, ROPE)}, "the cache is"),
        ({"cache_mode": "paged"}, "cache_mode paged"),
    ],
)
def test_storing_refuses(options, text):
    with refused(text):
        stored(**options)


def test_storing_modes_without_a_reference_are_named():
    with uncovered("cache_mode PA_NZ"):
        stored(cache_mode="PA_NZ")
    with uncovered("quantised caches"):
        stored(c_kv_scale=random(1))


def test_results_over_parts_of_the_context_become_one():
    query, key, value = (random(2, 1, 16, seed=1), random(5, 1, 16, seed=2), random(5, 1, 16, seed=3))
    whole, total = attention.attend(query, key, value, 0.25)
    parts = [attention.attend(query, key[rows], value[rows], 0.25) for rows in (slice(0, 2), slice(2, 5))]
    parts.append((random(2, 1, 16), torch.full((2, 1), torch.inf)))  # a part without context
    sums, results = [lse.flatten() for _, lse in parts], [part.view(2, 16) for part, _ in parts]
    joined, lse = latent.npu_attention_update(sums, results, 1)
    close(joined, whole.view(2, 16))
    close(lse, total.flatten())
    with refused("2 sums and 3 results"):
        latent.npu_attention_update(sums[:2], results, 0)
    with refused("lse must be float32"):
        latent.npu_attention_update([sums[0].half()], results[:1], 0)
    with refused("for a result"):
        latent.npu_attention_update([sums[0][:1]], results[:1], 0)


def gathered(**options):
    """Tokens 1 … 5 of a sequence in blocks 1 and 0, and the first two of one in block 2."""
    cache, rope = random(3, BLOCK, 1, 8, seed=1), random(3, BLOCK, 1, 4, seed=2)
    arguments = {
        "block_tables": torch.tensor([[1, 0], [2, 0]], dtype=torch.int32), "seq_lens": torch.tensor([5, 2]),
        "seq_offset": torch.tensor([1, 0]), "key": torch.zeros(7, 1, 8), "value": torch.zeros(7, 1, 4),
    } | options  # fmt: skip
    latent.npu_gather_pa_kv_cache(cache, rope, **arguments)
    return cache, rope, arguments["key"], arguments["value"]


def test_rows_are_gathered_from_pages():
    cache, rope, key, value = gathered()
    for whole, taken in ((cache, key), (rope, value)):
        close(taken, torch.cat((whole[1, 1:], whole[0, :2], whole[2, :2])))
    sums = gathered(seq_lens=torch.tensor([0, 5, 7]), is_seq_lens_cumsum=True)
    close(sums[2], key)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"block_tables": torch.zeros(2, 2)}, "block_table must be int32"),
        ({"key": torch.zeros(7, 1, 8, dtype=torch.bfloat16)}, "a cache of torch.float32 into torch.bfloat16"),
        ({"value": torch.zeros(7, 1, 3)}, "into"),
        ({"seq_lens": torch.tensor([5, 3])}, "8 tokens into 7 rows"),
    ],
)
def test_gathering_refuses(options, text):
    with refused(text):
        gathered(**options)


def test_the_older_operators_do_the_same():
    cache, rope = random(3, BLOCK, 1, 8, seed=1), random(3, BLOCK, 1, 4, seed=2)
    key, value = torch.zeros(7, 1, 8), torch.zeros(7, 1, 4)
    latent.npu_paged_cache_load_out(
        cache, rope, torch.tensor([[1, 0], [2, 0]], dtype=torch.int32), torch.tensor([5, 2]),
        seq_starts=torch.tensor([1, 0]), key=key, value=value,
    )  # fmt: skip
    close(key, gathered()[2])


def test_a_ring_adds_a_part_of_the_context_to_an_earlier_one():
    query, rope = random(3, 2, 16, seed=1), random(3, 2, 4, seed=2)
    keys, ropes, values = random(5, 2, 16, seed=3), random(5, 2, 4, seed=4), random(5, 2, 16, seed=5)
    joined, context = torch.cat((query, rope), -1), torch.cat((keys, ropes), -1)

    def ring(rows, tokens, **options):
        return latent.npu_ring_mla(
            query, rope, keys[rows], ropes[rows], values[rows], None, torch.tensor([[3], [tokens]]), 2, 2,
            qk_scale=0.25, **options,
        )  # fmt: skip

    own, sums = ring(slice(2, 5), 3, mask_type="mask_type_triu", calc_type="calc_type_first_ring")
    close(own, attention.attend(joined, context[2:], values[2:], 0.25, attention.CAUSAL)[0])
    result, _ = ring(slice(0, 2), 2, mask_type="no_mask", pre_out=own, prev_lse=sums)
    close(result, attention.attend(joined, context, values, 0.25, attention.CAUSAL)[0])
