from __future__ import annotations

from costs.counting import count, spec

from gradtool.graph.specs import Spec

Q, K, V = (2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)  # four heads of queries, two of keys
Y = (2, 4, 3, 6)
SCORES = 2 * 4 * 3 * 5
WEIGHTS = 2 * 4 * 3 * 8 + SCORES * (2 * 8 + 4)  # q · scale, product; max, -, exp, Σ


def test_flat_operands_count_like_those_with_heads():
    flat = count(
        "Attention", (2, 3, 32), (2, 5, 16), (2, 5, 12), out=[(2, 3, 24)], opset=23,
        q_num_heads=4, kv_num_heads=2,
    )  # fmt: skip

    assert flat == count("Attention", Q, K, V, out=[Y], opset=23)


def test_a_boolean_mask_selects():
    plain = count("Attention", Q, K, V, out=[Y], opset=23)

    mask = spec((3, 5), bool)
    assert isinstance(mask, Spec)
    assert count("Attention", Q, K, V, mask, out=[Y], opset=23) == plain
    assert count("Attention", Q, K, V, out=[Y], opset=23, is_causal=1) == plain


def test_the_gradient_of_attention_takes_five_products():
    op, given = "ai.gradtool::FusedAttentionGrad", [Q, K, V, None, Y]
    scores = SCORES + 2 * SCORES * 6 + 4 * SCORES  # p, dp, and back through the softmax
    results = 2 * (2 * SCORES * 8) + 2 * 4 * 3 * 8 + 2 * SCORES * 6

    every = count(op, *given, out=[Q, K, V])
    assert every == WEIGHTS + scores + results
    assert every - count(op, *given, out=[Q, K, None]) == 2 * SCORES * 6
    given[3] = (*Y[:3], 1)  # the statistic of rows
    assert every - count(op, *given, out=[Q, K, V]) == 3 * SCORES


def test_a_rotation_counts_six_per_pair_of_what_it_rotates():
    assert count("RotaryEmbedding", Q, (5, 4), (5, 4), (2, 3), out=[Q], opset=23) == 3 * 192
    half = count(
        "RotaryEmbedding", Q, (5, 2), (5, 2), (2, 3), out=[Q], opset=23, rotary_embedding_dim=4
    )
    assert half == 3 * 96
