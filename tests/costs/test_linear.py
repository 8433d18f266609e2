from __future__ import annotations

import numpy as np
import pytest
from costs.counting import count


def test_a_vector_is_a_matrix_of_one_row_or_column():
    assert count("MatMul", (4,), (4, 5), out=[(5,)]) == 2 * 4 * 5
    assert count("MatMul", (3, 4), (4,), out=[(3,)]) == 2 * 3 * 4


def test_gemm_counts_no_sum_that_a_factor_of_zero_leaves_out():
    plain = count("Gemm", (3, 4), (4, 5), out=[(3, 5)])

    assert count("Gemm", (4, 3), (5, 4), out=[(3, 5)], transA=1, transB=1) == plain
    assert count("Gemm", (3, 4), (4, 5), (5,), out=[(3, 5)], beta=0.0) == plain


def test_a_summed_product_counts_every_product_and_their_sum():
    found = count("ai.gradtool::SummedMatMul", (6, 3, 4), (6, 4, 5), out=[(1, 3, 5)], axes=(0,))

    assert found == 6 * count("MatMul", (3, 4), (4, 5), out=[(3, 5)])


@pytest.mark.parametrize(
    ("equation", "shapes", "out", "expected"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)], (3, 5), 2 * 60),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)], (2, 3, 4, 6), 2 * 2 * 3 * 4 * 5 * 6),
        ("i,j->ij", [(3,), (4,)], (3, 4), 12),  # products without a sum
        ("ij->i", [(3, 4)], (3,), 12),
        ("ii->i", [(3, 3)], (3,), 0),  # a diagonal
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], (2, 5), 2 * 24 + 2 * 40),
        ("ij,j->j", [(3, 4), (4,)], (4,), 12 + 4),  # i is summed first
        ("...i,...i->...", [(2, 3, 4), (1, 3, 4)], (2, 3), 2 * 24),
    ],
)
def test_einsum_counts_sums_alone_and_products_from_the_left(equation, shapes, out, expected):
    assert count("Einsum", *shapes, out=[out], equation=equation) == expected


def test_integers_count_like_floats_and_zero_points_are_subtracted():
    plain = count("MatMul", (3, 4), (4, 5), out=[(3, 5)])
    zero = np.zeros((), np.uint8)

    assert count("MatMulInteger", (3, 4), (4, 5), out=[(3, 5)]) == plain
    assert count("MatMulInteger", (3, 4), (4, 5), zero, zero, out=[(3, 5)]) == plain + 12 + 20
