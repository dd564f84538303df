"""Reference operators of mixtures of experts: against formulas written here, and their documented limits."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import close, random, refused, uncovered  # noqa: E402

from npu_emulator.operators import grouped_linear, moe_gating, moe_routing  # noqa: E402

EXPERTS, CHOSEN, TOKENS, WIDTH = 8, 2, 5, 16


def gate(x, **options):
    arguments = {
        "k": CHOSEN, "k_group": 1, "group_count": 1, "group_select_mode": 1, "renorm": 1, "norm_type": 0,
        "out_flag": False, "routed_scaling_factor": 1.0, "eps": 1e-20,
    }  # fmt: skip
    return moe_gating.moe_gating_top_k(x, **arguments | options)


def test_softmax_gating_gives_the_best_probabilities_summed_to_one():
    x = random(TOKENS, EXPERTS)
    weights, experts, _ = gate(x)
    for row in range(TOKENS):
        chances = [float(value) for value in x[row].exp() / x[row].exp().sum()]
        best = sorted(range(EXPERTS), key=lambda expert: -chances[expert])[:CHOSEN]
        assert experts[row].tolist() == best
        total = sum(chances[expert] for expert in best)
        close(weights[row], torch.tensor([chances[expert] / total for expert in best]))
    assert experts.dtype == torch.int32


def test_without_renorm_the_probabilities_stay_and_are_scaled():
    x = random(TOKENS, EXPERTS)
    close(
        gate(x, renorm=0, routed_scaling_factor=2.0)[0],
        2 * x.softmax(-1).sort(descending=True).values[:, :CHOSEN],
    )


def test_sigmoid_gating_chooses_with_the_bias_and_weighs_without_it():
    x, bias = torch.zeros(1, EXPERTS), torch.zeros(EXPERTS)
    x[0, 3], bias[5] = 2.0, 9.0
    weights, experts, _ = gate(x, norm_type=1, bias_opt=bias)
    assert experts.tolist() == [[5, 3]]
    scores = torch.tensor([0.5, 1 / (1 + torch.e**-2.0)])
    close(weights[0], scores / scores.sum())


def test_a_group_is_chosen_by_the_sum_of_its_two_best_or_by_its_best():
    x = torch.tensor([[5.0, -9, -9, -9, 4, 4, 3, 3]])
    assert gate(x, norm_type=1, group_count=2)[1].tolist()[0] in ([4, 5], [5, 4])
    assert gate(x, norm_type=1, group_count=2, group_select_mode=0)[1].tolist()[0][0] == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"k": 0}, "k is 1 to 8"),
        ({"k": EXPERTS + 1}, "k is 1 to 8"),
        ({"group_count": 3}, "8 experts in 3 groups"),
        ({"group_count": 2, "k_group": 3}, "k_group is 1 to 2"),
        ({"group_count": 8, "k_group": 4}, "two experts in a group"),
        ({"norm_type": 2}, "norm_type is 0 or 1"),
        ({"renorm": 2}, "renorm is 0 or 1"),
        ({"bias_opt": torch.zeros(EXPERTS - 1)}, "bias must be"),
        ({"bias_opt": torch.zeros(EXPERTS, dtype=torch.float16)}, "bias must be"),
    ],
)
def test_gating_refuses(options, text):
    with refused(text):
        gate(random(TOKENS, EXPERTS), **options)


def test_gating_refuses_what_is_no_score_of_tokens():
    with refused("two dimensions"):
        gate(random(EXPERTS))
    with refused("float16, bfloat16 or float32"):
        gate(torch.ones(TOKENS, EXPERTS, dtype=torch.int32))
    with refused("at most 2048 experts"):
        gate(random(1, 2049))
    with refused("aligned to 32"):
        gate(random(1, 512), group_count=128, group_select_mode=0)
    with refused("renorm is 0"):
        moe_gating.npu_moe_gating_top_k(random(TOKENS, EXPERTS), CHOSEN, renorm=1)


def test_softmax_gating_of_the_older_operator():
    x = random(TOKENS, EXPERTS)
    finished = torch.tensor([False] * (TOKENS - 1) + [True])
    weights, experts, rows = moe_gating.npu_moe_gating_top_k_softmax(x, finished, CHOSEN)
    close(weights, x.softmax(-1).sort(descending=True).values[:, :CHOSEN])
    assert experts[-1].tolist() == [EXPERTS] * CHOSEN
    assert rows.tolist() == [[row, row + TOKENS] for row in range(TOKENS)]
    with refused("k is 1 to 8"):
        moe_gating.npu_moe_gating_top_k_softmax(x, None, 9)
    with refused("finished is bool"):
        moe_gating.npu_moe_gating_top_k_softmax(x, finished[:2], 1)
    with refused("two or three"):
        moe_gating.npu_moe_gating_top_k_softmax(x[0], None, 1)
    with refused("float16"):
        moe_gating.npu_moe_gating_top_k_softmax(x.int(), None, 1)


CHOICES = torch.tensor([[2, 0], [1, 2], [0, 7], [2, 1], [7, 0]], dtype=torch.int32)


def routed(x, choices=CHOICES, **options):
    arguments = {
        "expert_num": EXPERTS, "expert_tokens_num_type": 1, "expert_tokens_num_flag": True,
        "active_expert_range": [0, EXPERTS],
    }  # fmt: skip
    return moe_routing.npu_moe_init_routing_v2(x, choices, **arguments | options)


def test_tokens_are_sorted_by_expert_and_come_back():
    x = random(TOKENS, WIDTH)
    expanded, rows, counts, _ = routed(x)
    pairs = sorted((int(expert), row) for row, chosen in enumerate(CHOICES) for expert in chosen)
    close(expanded, torch.stack([x[row] for _, row in pairs]))
    assert counts.tolist() == [3, 2, 3, 0, 0, 0, 0, 2]
    probabilities = random(TOKENS, CHOSEN, seed=1)
    back = moe_routing.npu_moe_token_unpermute(expanded, rows, probabilities)
    close(back, x * probabilities.sum(1, keepdim=True))


def test_only_active_experts_take_part():
    x = random(TOKENS, WIDTH)
    expanded, rows, counts, scales = routed(x, active_expert_range=[1, 3], scale=torch.arange(float(TOKENS)))
    assert counts.tolist() == [2, 3]
    close(expanded[:5], x[[1, 3, 0, 1, 3]])
    assert scales[:5].tolist() == [1, 3, 0, 1, 3]
    assert rows.view(TOKENS, CHOSEN).tolist() == [[2, -1], [0, 3], [-1, -1], [4, 1], [-1, -1]]
    scattered = routed(x, active_expert_range=[1, 3], row_idx_type=1)[1]
    assert scattered[:5].tolist() == [2, 7, 0, 3, 6]


def test_counts_as_pairs_name_the_experts_in_use():
    pairs = routed(random(TOKENS, WIDTH), expert_tokens_num_type=2)[2]
    assert pairs[:5].tolist() == [[0, 3], [1, 2], [2, 3], [7, 2], [0, 0]]


def test_the_shapes_without_values_are_those_of_the_result():
    x = random(TOKENS, WIDTH)
    for kind in (1, 2):
        options = {"expert_num": EXPERTS, "expert_tokens_num_type": kind, "active_expert_range": [1, 3]}
        thought = moe_routing._init_shapes(x.to("meta"), CHOICES.to("meta"), **options)
        for one, other in zip(thought, routed(x, **options), strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"expert_num": 0}, "expert_num is 1 to 10240"),
        ({"expert_num": 6000, "expert_tokens_num_type": 2}, "expert_num is 1 to 5120"),
        ({"drop_pad_mode": 1}, "drop_pad_mode is 0"),
        ({"expert_tokens_num_type": 0}, "expert_tokens_num_type is 1 or 2"),
        ({"expert_tokens_num_flag": False}, "expert_tokens_num_flag is True"),
        ({"offset": torch.zeros(1)}, "offset is not taken"),
        ({"active_expert_range": [4, 9]}, "lies in 0 to 8"),
        ({"scale": torch.zeros(2)}, "scale is float32"),
        ({"expert_num": 4, "active_expert_range": [0, 4]}, "past expert_num"),
        ({"choices": CHOICES.long()}, "expert_idx must be int32"),
        ({"choices": CHOICES[:2]}, "one row for each token"),
        ({"choices": CHOICES.flatten()}, "two dimensions"),
    ],
)
def test_routing_refuses(options, text):
    with refused(text):
        routed(random(TOKENS, WIDTH), **options)


def test_routing_refuses_other_dtypes_and_does_not_quantise():
    with refused("floating point or int8"):
        routed(torch.ones(TOKENS, WIDTH, dtype=torch.int32))
    with uncovered("quant_mode 1"):
        routed(random(TOKENS, WIDTH), quant_mode=1)


def test_permute_and_unpermute_are_inverse():
    x = random(TOKENS, WIDTH)
    permuted, rows = moe_routing.npu_moe_token_permute(x, CHOICES)
    assert rows.dtype == torch.int32
    close(permuted[rows.long()].view(TOKENS, CHOSEN, WIDTH), x[:, None].expand(-1, CHOSEN, -1))
    close(moe_routing.npu_moe_token_unpermute(permuted, rows, torch.full((TOKENS, CHOSEN), 0.5)), x)
    assert moe_routing.npu_moe_token_permute(x, CHOICES, 3)[0].shape == (3, WIDTH)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: moe_routing.npu_moe_token_permute(x[0], CHOICES), "two dimensions"),
        (lambda x: moe_routing.npu_moe_token_permute(x.int(), CHOICES), "floating point"),
        (lambda x: moe_routing.npu_moe_token_permute(x, CHOICES, padded_mode=True), "padded_mode is False"),
        (lambda x: moe_routing.npu_moe_token_permute(x, CHOICES.float()), "int32 or int64"),
        (lambda x: moe_routing.npu_moe_token_permute(x, CHOICES[:1]), "1 indices, 5 tokens"),
        (lambda x: moe_routing.npu_moe_token_permute(x, CHOICES[:, :1].expand(-1, 513)), "at most 512"),
        (lambda x: moe_routing.npu_moe_token_unpermute(x, CHOICES), "one dimension"),
        (lambda x: moe_routing.npu_moe_token_unpermute(x, CHOICES.flatten(), x[:, :3]), "for 10 indices"),
        (
            lambda x: moe_routing.npu_moe_token_unpermute(x, CHOICES.flatten(), x[:, :2].half()),
            "probs have the dtype",
        ),
    ],
)
def test_permuting_refuses(call, text):
    with refused(text):
        call(random(TOKENS, WIDTH))


def test_finalize_sums_expert_after_expert_and_adds_what_is_skipped():
    rows, weights, skip = (
        random(TOKENS * CHOSEN, WIDTH),
        random(TOKENS, CHOSEN, seed=1),
        random(TOKENS, WIDTH, seed=2),
    )
    places = torch.randperm(TOKENS * CHOSEN, generator=torch.Generator().manual_seed(3)).int()
    wanted = torch.zeros(TOKENS, WIDTH)
    for token in range(TOKENS):
        for choice in range(CHOSEN):
            wanted[token] += weights[token, choice] * rows[places[token + choice * TOKENS]]
    close(
        moe_routing.npu_moe_finalize_routing(rows, skip, skip, None, weights, places, None), wanted + 2 * skip
    )
    with refused("skip2 needs skip1"):
        moe_routing.npu_moe_finalize_routing(rows, None, skip, None, weights, places, None)
    with refused("must be int32"):
        moe_routing.npu_moe_finalize_routing(rows, None, None, None, weights, places.long(), None)
    with refused("a skip has the shape"):
        moe_routing.npu_moe_finalize_routing(rows, skip[:1], None, None, weights, places, None)
    with uncovered("an expert bias"):
        moe_routing.npu_moe_finalize_routing(rows, None, None, skip, weights, places, None)


def grouped(x, weight, counts, **options):
    arguments = {"split_item": 2, "group_type": 0, "group_list_type": 1, "group_list": torch.tensor(counts)}
    return grouped_linear.npu_grouped_matmul([x], [weight], **arguments | options)


def test_each_group_of_rows_meets_its_own_weight():
    x, weight, bias = random(6, WIDTH), random(3, WIDTH, 4, seed=1), random(3, 4, seed=2)
    wanted = torch.cat((x[:2] @ weight[0] + bias[0], x[2:] @ weight[2] + bias[2]))
    close(grouped(x, weight, [2, 0, 4], bias=[bias])[0], wanted)
    close(grouped(x, weight, [2, 2, 6], group_list_type=0, bias=[bias])[0], wanted)
    listed = grouped_linear.npu_grouped_matmul([x[:2], x[2:]], [weight[0], weight[2]], group_type=-1)
    close(torch.cat(listed), wanted - torch.cat((bias[0].expand(2, 4), bias[2].expand(4, 4))))
    assert not grouped(x, weight, [1, 1, 1])[0][3:].any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"split_item": 0}, "split_item 2 or 3"),
        ({"split_item": 4}, "split_item is 0 to 3"),
        ({"group_type": 2}, "group_type is -1 or 0"),
        ({"group_list_type": 2}, "group_list_type is 0 or 1"),
        ({"act_type": 1}, "only for quantised"),
        ({"group_list": torch.tensor([2, 0, 5])}, "5 of 6 rows|of 6 rows"),
        ({"group_list": torch.tensor([2, -1, 4])}, "does not fall"),
        ({"group_list": torch.tensor([2, 4])}, "3 weights for 2 groups"),
        ({"group_list": torch.tensor([2, 0, 4], dtype=torch.int32)}, "group_list is int64"),
        ({"bias": [torch.zeros(3, 4, dtype=torch.float16)]}, "bias of torch.float32"),
    ],
)
def test_grouped_products_refuse(options, text):
    with refused(text):
        grouped(random(6, WIDTH), random(3, WIDTH, 4), [2, 0, 4], **options)


def test_grouped_products_refuse_other_shapes_and_do_not_quantise():
    with refused("16 columns, weight 0 8 rows"):
        grouped(random(6, WIDTH), random(3, 8, 4), [2, 0, 4])
    with refused("a weight torch.float16"):
        grouped(random(6, WIDTH), random(3, WIDTH, 4, dtype=torch.float16), [2, 0, 4])
    with refused("x of two dimensions"):
        grouped(random(2, 3, WIDTH), random(3, WIDTH, 4), [2, 0, 4])
    with refused("below 65536"):
        grouped(torch.zeros(1, 65536), torch.zeros(1, 65536, 1), [1])
    with refused("at most 128 tensors"):
        grouped_linear.npu_grouped_matmul([random(1, 1)] * 129, [random(1, 1)] * 129)
    with uncovered("quantised inputs"):
        grouped(torch.ones(6, WIDTH, dtype=torch.int8), torch.ones(3, WIDTH, 4, dtype=torch.int8), [2, 0, 4])
    with uncovered("per_token_scale"):
        grouped(random(6, WIDTH), random(3, WIDTH, 4), [2, 0, 4], per_token_scale=[random(6)])


def test_a_batched_product_exchanges_dimensions():
    x, weight = random(3, 5, WIDTH), random(3, WIDTH, 4, seed=1)
    product = grouped_linear.npu_transpose_batchmatmul
    close(product(x, weight, perm_y=(1, 0, 2)), torch.einsum("bmk,bkn->mbn", x, weight))
    close(product(x.transpose(0, 1), weight, perm_x1=(1, 0, 2)), torch.einsum("bmk,bkn->bmn", x, weight))
    with refused("three dimensions"):
        product(x[0], weight)
    with refused("one floating dtype"):
        product(x, weight.half())
    with refused("do not fit"):
        product(x, weight[:2])
    with uncovered("a bias or a scale"):
        product(x, weight, bias=random(4))
    with uncovered("batch_split_factor 2"):
        product(x, weight, batch_split_factor=2)
