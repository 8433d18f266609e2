from __future__ import annotations

from costs.counting import count


def test_the_gradient_of_a_maximum_adds_and_that_of_a_mean_divides_first():
    found = count("ai.gradtool::MaxPoolGrad", (1, 2, 6, 7), (1, 2, 6, 7), None, out=[(1, 2, 8, 8)])
    assert found == 84
    found = count(
        "ai.gradtool::AveragePoolGrad", (1, 2, 6, 7), None, out=[(1, 2, 8, 8)], kernel_shape=(3, 2)
    )
    assert found == 84 * 7


def test_whole_planes_are_read_once():
    assert count("GlobalMaxPool", (1, 2, 8, 8), out=[(1, 2, 1, 1)]) == 128
    assert count("GlobalAveragePool", (1, 2, 8, 8), out=[(1, 2, 1, 1)]) == 128 + 2
