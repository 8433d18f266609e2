from __future__ import annotations

import gc
import weakref

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


def test_a_constant_that_was_pruned_is_there_again_when_it_is_asked_for():
    model = parse("g (float[N, M] x) => (y) { y = Identity (x) }")
    op = Builder(model)
    gone = op.constant(1.0)
    del model.graph.initializers[gone.name]
    again = op.constant(1.0)

    assert again is op.constant(1.0)
    assert again in model.graph.initializers.values()


def test_a_list_of_floats_is_not_rounded_in_silence():
    op = Builder(parse("g (float[N, M] x) => (y) { y = Identity (x) }"))

    with pytest.raises(TypeError, match="are no integers"):
        op.constant([0.5, 1.5])


def test_a_builder_that_nobody_needs_is_freed_at_once():
    gc.disable()
    try:
        op = Builder(parse("g (float[n, 4] x) => (y) { y = Relu (x) }"))
        op.Tanh(op.graph.inputs[0])
        gone = weakref.ref(op)
        del op
        assert gone() is None
    finally:
        gc.enable()
