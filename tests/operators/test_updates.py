"""The formulas are arithmetic: they hold for arrays as they do for values of a graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gradtool.operators.updates import decayed, descended, drawn, means, velocity

numbers = st.floats(-8, 8, width=32)
shares = st.floats(0, 1, width=32)


@given(numbers, numbers, shares)
def test_a_mean_is_drawn_by_its_share(old, new, share):
    np.testing.assert_allclose(drawn(old, new, share), (1 - share) * old + share * new, atol=1e-12)


@given(numbers, numbers, numbers)
def test_means_are_of_the_gradient_and_of_its_square(first, second, g):
    found = means((first, abs(second)), g, (0.1, 0.25))

    np.testing.assert_allclose(found[0], 0.9 * first + 0.1 * g, atol=1e-12)
    np.testing.assert_allclose(found[1], 0.75 * abs(second) + 0.25 * g * g, atol=1e-12)
    assert found[1] >= 0


def test_velocity_adds_the_gradient_or_a_part_of_it():
    assert velocity(2.0, 3.0, 0.5) == 4.0
    assert velocity(2.0, 3.0, 0.5, 0.25) == 1.75


def test_descent_divides_the_direction_by_the_root():
    assert descended(10.0, 0.5, 6.0, 2.0, 1.0) == 9.0


def test_decay_shrinks():
    assert decayed(8.0, 0.75) == 6.0
