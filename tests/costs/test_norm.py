from __future__ import annotations

from costs.counting import count

X = (4, 6, 5)  # 120 elements, 24 rows, 6 channels


def test_a_layer_normalisation_counts_seven_per_element_and_five_per_row():
    """Mean 1, centred 1, squares and their sum 2, rstd 1, scale 1, bias 1."""
    assert count("LayerNormalization", X, (5,), (5,), out=[X]) == 7 * 120 + 5 * 24
    assert count("LayerNormalization", X, (5,), out=[X]) == 6 * 120 + 5 * 24
    assert count("RMSNormalization", X, (5,), out=[X]) == 4 * 120 + 4 * 24


def test_a_batch_normalisation_counts_statistics_only_in_training():
    given = [X, (6,), (6,), (6,), (6,)]

    assert count("BatchNormalization", *given, out=[X]) == 3 * 120 + 3 * 6
    found = count("BatchNormalization", *given, out=[X, (6,), (6,)], training_mode=1)
    assert found == 7 * 120 + 5 * 6 + 2 * 3 * 6


def test_gradients_that_nobody_wants_are_not_counted():
    op, statistics = "ai.gradtool::LayerNormalizationGrad", (4, 6, 1)
    given = [X, (5,), statistics, statistics, X]

    every = count(op, *given, out=[X, (5,), (5,)], axis=-1)
    assert every == (2 + 8 + 2 + 1) * 120 + 2 * 24
    assert count(op, *given, out=[X, None, None], axis=-1) == 10 * 120 + 2 * 24
    again = count(op, X, (5,), None, None, X, out=[X, (5,), (5,)], axis=-1)
    assert again - every == 3 * 120 + 5 * 24


def test_neighbouring_channels_count_as_often_as_there_are_neighbours():
    assert count("LRN", X, out=[X], size=3) == 120 * (1 + 3 + 4)
