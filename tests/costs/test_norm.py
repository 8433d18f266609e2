from __future__ import annotations

from costs.counting import count

X = (4, 6, 5)  # 120 elements, 24 rows, 6 channels


def test_gradients_that_nobody_wants_are_not_counted():
    op, statistics = "ai.gradtool::LayerNormalizationGrad", (4, 6, 1)
    given = [X, (5,), statistics, statistics, X]

    every = count(op, *given, out=[X, (5,), (5,)], axis=-1)
    assert every - count(op, *given, out=[X, None, None], axis=-1) == (2 + 1) * 120
    again = count(op, X, (5,), None, None, X, out=[X, (5,), (5,)], axis=-1)
    assert again - every == 3 * 120 + 5 * 24
