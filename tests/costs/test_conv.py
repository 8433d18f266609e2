from __future__ import annotations

from costs.counting import count

X, W, Y = (2, 6, 9, 8), (4, 3, 3, 2), (2, 4, 7, 7)  # two groups


def test_both_gradients_of_a_convolution_multiply_what_it_multiplied():
    sizes = {"group": 2, "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    by_input = count("ai.gradtool::ConvGradInput", Y, W, None, out=[X], **sizes)
    by_weight = count("ai.gradtool::ConvGradWeight", X, Y, out=[W], kernel_shape=(3, 2), **sizes)

    assert by_input == by_weight == count("Conv", X, W, out=[Y], group=2)


def test_a_deformed_convolution_interpolates_each_tap_of_each_channel_first():
    offset = (1, 2 * 9, 5, 5)  # an offset along two axes, for each of nine taps
    weights = 9 * 25 * (4 * 2 + 4 * 1)
    sampled = (3 * 9 * 25) * 2 * 4
    product = 2 * (4 * 25) * (3 * 9)

    found = count("DeformConv", (1, 3, 7, 7), (4, 3, 3, 3), offset, out=[(1, 4, 5, 5)])
    assert found == weights + sampled + product
