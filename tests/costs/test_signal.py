from __future__ import annotations

import numpy as np
from costs.counting import count


def test_a_transform_counts_five_n_log_n_and_half_of_it_for_real_numbers():
    assert count("DFT", (3, 16, 2), out=[(3, 16, 2)]) == 3 * 5 * 16 * 4
    assert count("DFT", (3, 16, 1), out=[(3, 9, 2)], onesided=1) == 3 * 5 * 16 * 4 // 2
    assert count("DFT", (3, 16, 2), out=[(3, 16, 2)], inverse=1) == 3 * (5 * 16 * 4 + 2 * 16)


def test_the_logarithm_of_other_lengths_is_rounded_up():
    assert count("DFT", (3, 17, 2), out=[(3, 17, 2)]) == 3 * 5 * 17 * 5
    assert count("DFT", (3, 1, 2), out=[(3, 1, 2)]) == 0


def test_the_axis_is_an_attribute_before_opset_20_and_an_input_since():
    assert count("DFT", (3, 16, 8, 2), out=[(3, 16, 8, 2)], opset=17, axis=1) == 24 * 5 * 16 * 4
    axis = np.asarray(1)
    assert count("DFT", (3, 16, 8, 2), None, axis, out=[(3, 16, 8, 2)]) == 24 * 5 * 16 * 4


def test_a_length_that_is_not_known_makes_the_count_unknown():
    assert count("DFT", (3, 16, 2), (), out=[(3, 16, 2)]) is None


def test_frames_are_weighted_and_transformed():
    step = np.asarray(4)
    found = count("STFT", (2, 32, 1), step, (8,), out=[(2, 7, 5, 2)])

    assert found == 2 * 7 * (8 + 5 * 8 * 3 // 2)
