"""Reference attention: every layout against one formula written here, and the documented limits."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import close, random, refused, uncovered  # noqa: E402

from npu_emulator.operators import attention, fused_attention  # noqa: E402

HEADS, KV_HEADS, SIZE, SCALE = 4, 2, 16, 0.25
MASK = torch.ones(2048, 2048).triu(1).bool()
first, second = (
    fused_attention.npu_fused_infer_attention_score,
    fused_attention.npu_fused_infer_attention_score_v2,
)


def plain(query, key, value, seen=lambda row, column: True, scale=SCALE):
    """Attention (tokens, heads, size), one weight after another; ``seen`` of token and context positions."""
    result = torch.zeros(query.shape[0], query.shape[1], value.shape[2])
    sums = torch.full(query.shape[:2], -math.inf)
    for row in range(query.shape[0]):
        for head in range(query.shape[1]):
            shared = head // (query.shape[1] // key.shape[1])
            places = [column for column in range(key.shape[0]) if seen(row, column)]
            weights = [math.exp(float(query[row, head] @ key[column, shared]) * scale) for column in places]
            for column, weight in zip(places, weights, strict=True):
                result[row, head] += weight / sum(weights) * value[column, shared]
            if weights:
                sums[row, head] = math.log(sum(weights))
    return result, sums


def causal(tokens, context):
    return lambda row, column: column <= row + context - tokens


def states(tokens, heads, seed, size=SIZE):
    return random(tokens, heads, size, seed=seed)


def in_layout(parts, layout):
    """Sequences of one length (S, N, D) in a layout."""
    whole = torch.stack(parts)
    if layout == "BSH":
        return whole.flatten(2)
    return {"BSND": whole, "BNSD": whole.transpose(1, 2)}[layout]


QUERIES = [states(3, HEADS, 1), states(3, HEADS, 2)]
KEYS = [states(5, KV_HEADS, 3), states(5, KV_HEADS, 4)]
VALUES = [states(5, KV_HEADS, 5), states(5, KV_HEADS, 6)]
BATCHED = {
    "BSH": lambda parts: torch.stack(parts).flatten(2),
    "BSND": torch.stack,
    "BNSD": lambda parts: torch.stack(parts).transpose(1, 2),
    "BNSD_BSND": torch.stack,
    "BSH_NBSD": lambda parts: torch.stack(parts).permute(2, 0, 1, 3),
    "BSND_NBSD": lambda parts: torch.stack(parts).permute(2, 0, 1, 3),
    "BNSD_NBSD": lambda parts: torch.stack(parts).permute(2, 0, 1, 3),
}


@pytest.mark.parametrize("layout", BATCHED)
def test_batched_layouts(layout):
    come = layout.partition("_")[0]
    result, sums = second(
        *(in_layout(parts, come) for parts in (QUERIES, KEYS, VALUES)), num_query_heads=HEADS,
        num_key_value_heads=KV_HEADS, softmax_scale=SCALE, input_layout=layout,
        atten_mask=MASK, sparse_mode=3,
        return_softmax_lse=True,
    )  # fmt: skip
    parts = [plain(*one, causal(3, 5)) for one in zip(QUERIES, KEYS, VALUES, strict=True)]
    close(result, BATCHED[layout]([part for part, _ in parts]))
    close(sums, torch.stack([lse.t() for _, lse in parts])[..., None])


def test_lengths_of_batched_sequences_end_what_is_seen():
    result, _ = second(
        torch.stack(QUERIES), torch.stack(KEYS), torch.stack(VALUES), num_query_heads=HEADS,
        num_key_value_heads=KV_HEADS, softmax_scale=SCALE, input_layout="BSND", actual_seq_qlen=[2, 3],
        actual_seq_kvlen=[4],
    )  # fmt: skip
    close(result[0, :2], plain(QUERIES[0][:2], KEYS[0][:4], VALUES[0][:4])[0])
    assert not result[0, 2].any()
    close(result[1], plain(QUERIES[1], KEYS[1][:4], VALUES[1][:4])[0])


def flat(**options):
    """Three sequences of 2, 0 and 3 tokens, their contexts 4, 0 and 3, one after another."""
    arguments = {
        "actual_seq_lengths": [2, 2, 5], "actual_seq_lengths_kv": [4, 4, 7], "num_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "scale": SCALE, "input_layout": "TND", "atten_mask": MASK,
        "sparse_mode": 3, "softmax_lse_flag": True,
        "query": states(5, HEADS, 1), "key": states(7, KV_HEADS, 2), "value": states(7, KV_HEADS, 3),
    } | options  # fmt: skip
    return first(arguments.pop("query"), arguments.pop("key"), arguments.pop("value"), **arguments), arguments


def test_flat_sequences():
    query, key, value = states(5, HEADS, 1), states(7, KV_HEADS, 2), states(7, KV_HEADS, 3)
    wanted = [
        plain(query[:2], key[:4], value[:4], causal(2, 4)),
        plain(query[2:], key[4:], value[4:], causal(3, 3)),
    ]
    (result, sums), _ = flat()
    close(result, torch.cat([part for part, _ in wanted]))
    close(sums, torch.cat([lse for _, lse in wanted])[..., None])
    (unseen, none), _ = flat(sparse_mode=0, atten_mask=None, softmax_lse_flag=False)
    close(unseen[:2], plain(query[:2], key[:4], value[:4])[0])
    assert none.tolist() == [0]


def test_a_flat_result_by_heads():
    query, key, value = states(5, HEADS, 1), states(7, KV_HEADS, 2), states(7, KV_HEADS, 3)
    options = {
        "num_query_heads": HEADS, "num_key_value_heads": KV_HEADS, "softmax_scale": SCALE,
        "actual_seq_qlen": [2, 5], "actual_seq_kvlen": [4, 7], "atten_mask": MASK, "sparse_mode": 3,
    }  # fmt: skip
    wanted = second(query, key, value, input_layout="TND", **options)[0]
    close(second(query, key, value, input_layout="TND_NTD", **options)[0], wanted.transpose(0, 1))
    turned = (part.transpose(0, 1) for part in (query, key, value))
    close(second(*turned, input_layout="NTD_TND", **options)[0], wanted)


def test_a_band_and_the_mask_with_first_tokens_aligned():
    query, key, value = states(3, HEADS, 1), states(5, KV_HEADS, 2), states(5, KV_HEADS, 3)
    one = {
        "query": query,
        "key": key,
        "value": value,
        "actual_seq_lengths": [3],
        "actual_seq_lengths_kv": [5],
    }
    (band, _), _ = flat(**one, sparse_mode=4, pre_tokens=1, next_tokens=0)
    close(band, plain(query, key, value, lambda row, column: row + 1 <= column <= row + 2)[0])
    (left, _), _ = flat(**one, sparse_mode=2)
    close(left, plain(query, key, value, lambda row, column: column <= row)[0])


def test_a_full_mask_hides_what_is_true():
    hidden = torch.zeros(2, 1, 3, 5, dtype=torch.bool)
    hidden[0, 0, :, 4], hidden[1, 0, 1] = True, True
    result, _ = second(
        torch.stack(QUERIES), torch.stack(KEYS), torch.stack(VALUES), num_query_heads=HEADS,
        num_key_value_heads=KV_HEADS, softmax_scale=SCALE, input_layout="BSND", atten_mask=hidden,
    )  # fmt: skip
    close(result[0], plain(QUERIES[0], KEYS[0][:4], VALUES[0][:4])[0])
    assert not result[1, 1].any()
    close(result[1, 2], plain(QUERIES[1], KEYS[1], VALUES[1])[0][2])


def test_a_sink_takes_weight_and_gives_nothing():
    query, key, value, sink = (
        states(2, HEADS, 1),
        states(3, KV_HEADS, 2),
        states(3, KV_HEADS, 3),
        random(HEADS),
    )
    options = {
        "num_query_heads": HEADS, "num_key_value_heads": KV_HEADS, "softmax_scale": SCALE,
        "input_layout": "TND",
        "actual_seq_qlen": [2], "actual_seq_kvlen": [3],
    }  # fmt: skip
    result, _ = second(query, key, value, learnable_sink=sink, **options)
    wanted, sums = plain(query, key, value)
    close(result, wanted * (sums.exp() / (sums.exp() + sink.exp()))[..., None])
    with refused("learnable_sink takes TND"):
        second(query, key, value, learnable_sink=sink[:1], **options)


BLOCK = 16


def cached(parts, order, heads, layout="BSH"):
    """A cache whose block ``order[i]`` holds the tokens 16 i … of the sequences, and the table."""
    cache = random(len(order) + 1, BLOCK, heads, parts[0].shape[2], seed=9)
    table, given = torch.full((len(parts), 2), 77, dtype=torch.int32), iter(order)
    for row, part in enumerate(parts):
        for index, chunk in enumerate(part.split(BLOCK)):
            table[row, index] = next(given)
            cache[table[row, index], : len(chunk)] = chunk
    return cache.flatten(2) if layout == "BSH" else cache.transpose(1, 2).contiguous(), table


@pytest.mark.parametrize("layout", ["BSH", "BNSD"])
def test_paged_contexts_of_both_layouts(layout):
    lengths = [20, 7]
    keys, values = ([states(length, KV_HEADS, seed + length) for length in lengths] for seed in (30, 40))
    (key, table), (value, _) = (cached(parts, [2, 0, 1], KV_HEADS, layout) for parts in (keys, values))
    query = states(5, HEADS, 1)
    (result, _), _ = flat(
        query=query, key=key, value=value, block_table=table, block_size=BLOCK, actual_seq_lengths=[2, 5],
        actual_seq_lengths_kv=lengths,
    )  # fmt: skip
    close(result[:2], plain(query[:2], keys[0], values[0], causal(2, 20))[0])
    close(result[2:], plain(query[2:], keys[1], values[1], causal(3, 7))[0])


def test_results_go_where_they_are_wanted():
    out, sums = torch.zeros(6, HEADS, SIZE), torch.zeros(5, HEADS)
    (result, lse), options = flat()
    arguments = (states(5, HEADS, 1), states(7, KV_HEADS, 2), states(7, KV_HEADS, 3))
    fused_attention.npu_fused_infer_attention_score_out(*arguments, out=[out, sums], **options)
    close(out[:5], result)
    close(sums, lse[..., 0])
    with refused("out has"):
        fused_attention.npu_fused_infer_attention_score_out(*arguments, out=[out[:1], sums], **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"input_layout": "SBH"}, "input_layout SBH is unknown"),
        ({"input_layout": "BSND"}, "query has 4 dimensions"),
        ({"num_heads": 3}, "num_heads is 3"),
        ({"num_key_value_heads": 3}, "a multiple of num_key_value_heads 3"),
        ({"query": states(5, 65, 1), "num_heads": 65, "num_key_value_heads": 1}, "at most 64 heads share"),
        ({"query": states(5, 257, 1), "num_heads": 257, "num_key_value_heads": 257}, "at most 256 heads"),
        ({"query": states(5, HEADS, 1, 528)}, "a multiple of 16 up to 512"),
        ({"query": states(5, HEADS, 1, 24)}, "a multiple of 16 up to 512"),
        ({"query": states(5, HEADS, 1).int()}, "query must be floating point"),
        ({"key": states(7, KV_HEADS, 2).half()}, "all inputs have one dtype"),
        ({"actual_seq_lengths": None}, "needs both lists"),
        ({"actual_seq_lengths": [2, 5]}, "2 query and 3 key lengths"),
        ({"actual_seq_lengths": [3, 2, 5]}, "a running sum"),
        ({"actual_seq_lengths": [2, 2, 4]}, "ends at the 5 rows"),
        ({"actual_seq_lengths_kv": [4, 4, 6]}, "ends at the 7 rows"),
        ({"atten_mask": MASK.float()}, "bool, int8 or uint8"),
        ({"atten_mask": None}, "needs an atten_mask"),
        ({"atten_mask": MASK[:64, :64]}, "needs an atten_mask"),
        ({"sparse_mode": 5}, "sparse_mode is 0, 1, 2, 3, 4 or 9"),
        ({"sparse_mode": 1, "atten_mask": None}, "sparse_mode 1 needs"),
        ({"sparse_mode": 0}, "takes no atten_mask"),
        ({"query_rope": states(5, HEADS, 1, 64)}, "given together"),
    ],
)
def test_fused_attention_refuses(options, text):
    with refused(text):
        flat(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"block_table": torch.zeros(3, 2)}, "block_table must be int32"),
        ({"block_table": torch.zeros(2, 2, dtype=torch.int32)}, "for 3 sequences"),
        ({"block_size": 24}, "a multiple of 16 up to 512"),
        ({"block_size": 1024}, "a multiple of 16 up to 512"),
        ({"block_size": 32}, r"\(blocks, block size 32, H\)"),
        ({"actual_seq_lengths_kv": [4, 0, 40]}, "for a sequence of 40"),
        ({"key": random(2, BLOCK, KV_HEADS, SIZE)}, "a cache of four dimensions"),
    ],
)
def test_paged_attention_refuses(options, text):
    pages = {"key": random(2, BLOCK, KV_HEADS * SIZE), "value": random(2, BLOCK, KV_HEADS * SIZE)}
    table = torch.zeros(3, 2, dtype=torch.int32)
    with refused(text):
        flat(
            **pages
            | {"block_table": table, "block_size": BLOCK, "actual_seq_lengths_kv": [4, 0, 3]}
            | options
        )


def test_modes_without_a_reference_are_named():
    for options, text in (
        ({"query": states(5, HEADS, 1).to(torch.int8)}, "int8 inputs"),
        ({"pse_shift": random(1)}, "pse_shift"),
    ):
        with uncovered(text):
            flat(**options)
    with uncovered("the NZ layout"):
        flat(
            key=random(2, KV_HEADS, 1, BLOCK, 16), value=random(2, KV_HEADS, 1, BLOCK, 16), block_size=BLOCK,
            block_table=torch.zeros(3, 2, dtype=torch.int32), actual_seq_lengths_kv=[4, 0, 3],
        )  # fmt: skip


def test_one_length_or_one_for_each_sequence():
    with refused("one length or 2"):
        second(
            torch.stack(QUERIES * 2)[:2], torch.stack(KEYS), torch.stack(VALUES), num_query_heads=HEADS,
            num_key_value_heads=KV_HEADS, input_layout="BSND", actual_seq_kvlen=[],
        )  # fmt: skip


LATENT, ROPE = 512, 64


def latent(**options):
    """One query each of two sequences over one paged latent head, the result by heads first."""
    arguments = {
        "query": random(2, HEADS, 1, LATENT, seed=1), "key": random(3, 1, BLOCK, LATENT, seed=2),
        "query_rope": random(2, HEADS, 1, ROPE, seed=3), "key_rope": random(3, 1, BLOCK, ROPE, seed=4),
        "num_query_heads": HEADS, "num_key_value_heads": 1, "softmax_scale": 0.01,
        "input_layout": "BNSD_NBSD",
        "block_table": torch.tensor([[2, 0], [1, 0]], dtype=torch.int32), "block_size": BLOCK,
        "actual_seq_kvlen": [20, 3],
    } | options  # fmt: skip
    key = arguments.pop("key")
    return second(arguments.pop("query"), key, key, **arguments)


def test_latent_attention_adds_the_rotary_part_to_its_scores():
    result, _ = latent()
    query = torch.cat((random(2, HEADS, 1, LATENT, seed=1), random(2, HEADS, 1, ROPE, seed=3)), -1)
    key, rope = random(3, 1, BLOCK, LATENT, seed=2), random(3, 1, BLOCK, ROPE, seed=4)
    for row, (blocks, length) in enumerate((([2, 0], 20), ([1], 3))):
        values = torch.cat([key[block, 0] for block in blocks])[:length, None]
        ropes = torch.cat([rope[block, 0] for block in blocks])[:length, None]
        wanted, _ = plain(query[row].transpose(0, 1), torch.cat((values, ropes), -1), values, scale=0.01)
        close(result[:, row], wanted.transpose(0, 1), 1e-4)


def test_a_padded_sequence_gives_zeros():
    assert not latent(actual_seq_kvlen=[20, 0])[0][:, 1].any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"query_rope": random(2, HEADS, 1, 32)}, "last dimension of 64"),
        ({"key_rope": random(3, 1, 8, ROPE)}, "key_rope is like key"),
        ({"query": random(2, HEADS, 1, 256), "key": random(3, 1, BLOCK, 256)}, "head size is 128 or 512"),
        ({"block_table": None, "actual_seq_kvlen": None}, "needs a block_table"),
        ({"block_size": 32}, "block_size is 16 or 128"),
        (
            {"query": random(2, 3, 1, LATENT), "query_rope": random(2, 3, 1, ROPE), "num_query_heads": 3},
            "1, 2, 4, … 128 heads",
        ),
        ({"num_key_value_heads": 2}, "one key head"),
        (
            {"query": random(2, HEADS, 17, LATENT), "query_rope": random(2, HEADS, 17, ROPE)},
            "at most 16 queries",
        ),
        (
            {"query": random(2, HEADS, 2, LATENT), "query_rope": random(2, HEADS, 2, ROPE)},
            "several queries need sparse_mode 3",
        ),
        ({"sparse_mode": 3, "atten_mask": MASK}, "one query needs sparse_mode 0"),
    ],
)
def test_latent_attention_refuses(options, text):
    with refused(text):
        latent(**options)


def test_rope_parts_of_128_take_flat_layouts_only():
    query, rope = random(1, 2, 3, 128), random(1, 2, 3, ROPE)
    with refused("rope parts of 128 do not take BNSD"):
        second(query, query, query, query_rope=rope, key_rope=rope, num_query_heads=2, input_layout="BNSD")


def test_paged_attention_of_one_token_each():
    lengths = [20, 7]
    keys, values = ([states(length, KV_HEADS, seed + length) for length in lengths] for seed in (30, 40))
    (key, table), (value, _) = (cached(parts, [2, 0, 1], KV_HEADS) for parts in (keys, values))
    shape = (-1, BLOCK, KV_HEADS, SIZE)
    query, out = states(2, HEADS, 1), torch.zeros(2, HEADS, SIZE)
    options = (KV_HEADS, HEADS, SCALE, table, torch.tensor(lengths), out)
    attention.npu_paged_attention(query, key.view(shape), value.view(shape), *options)
    for row in range(2):
        close(out[row : row + 1], plain(query[row : row + 1], keys[row], values[row])[0])
    with refused("no multiple"):
        attention.npu_paged_attention(query, key.view(shape), value.view(shape), 3, *options[1:])


def test_unpadded_sequences():
    query, key, value = states(5, HEADS, 1), states(5, KV_HEADS, 2), states(5, KV_HEADS, 3)
    out = torch.zeros(5, HEADS, SIZE)
    call = attention.npu_flash_attention_unpad
    call(query, key, value, torch.tensor([2, 3]), SCALE, HEADS, KV_HEADS, out)
    close(out[:2], plain(query[:2], key[:2], value[:2])[0])
    close(out[2:], plain(query[2:], key[2:], value[2:])[0])
    with refused("no multiple"):
        call(query, key, value, torch.tensor([2, 3]), SCALE, HEADS, 3, out)
    with refused("for 5 rows of query"):
        call(query, key, value, torch.tensor([2, 4]), SCALE, HEADS, KV_HEADS, out)
