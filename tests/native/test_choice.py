from dataclasses import replace

import pytest

from gradtool.native.choice import algorithm
from gradtool.native.conv import Window


@pytest.mark.parametrize(
    ("w", "window", "expected"),
    [
        ((64, 64, 3, 3), Window(), "winograd"),
        ((64, 64, 3, 3), Window(strides=(2, 1)), "direct"),
        ((64, 64, 3, 3), Window(dilations=(1, 2)), "direct"),
        ((64, 32, 3, 3), Window(group=2), "direct"),
        ((64, 3, 3, 3), Window(), "direct"),
        ((8, 64, 3, 3), Window(), "direct"),
        ((64, 64, 1, 3), Window(), "direct"),
        ((64, 1, 3, 3), Window(group=64), "depthwise"),
        ((128, 1, 3, 3), Window(group=64), "direct"),
        ((1, 1, 3, 3), Window(), "direct"),
    ],
)
def test_a_convolution_is_computed_by_its_shape(w, window, expected):
    assert algorithm(w, window) == expected
    assert algorithm(w, replace(window, exact=True)) == expected.replace("winograd", "direct")
