from __future__ import annotations

import numpy as np
import pytest
from graphs import parse

from gradtool.emit.builder import Builder


def test_equal_constants_are_one_initializer():
    model = parse("g (float[N, M] x) => (y) { y = Identity (x) }")
    op = Builder(model)
    a, b = op.constant([1, 2]), op.constant(np.array([1, 2]))

    assert a is b
    assert op.constant([1, 2, 3]) is not a
    assert op.constant(np.array([1, 2], np.int32)) is not a
    assert len(model.graph.initializers) == 3


def test_a_list_of_floats_is_not_rounded_in_silence():
    op = Builder(parse("g (float[N, M] x) => (y) { y = Identity (x) }"))

    with pytest.raises(TypeError, match="are no integers"):
        op.constant([0.5, 1.5])
