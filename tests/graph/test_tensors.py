"""Sizes of tensors, told without making a shape."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from gradtool.graph.predicates import FLOATS, INTEGERS, has_sizes
from gradtool.graph.tensors import elements, is_external, nbytes

NUMBERS = sorted(FLOATS | INTEGERS)


def message(rng, kind):
    dims = [int(n) for n in rng.integers(0, 5, size=rng.integers(0, 4))]
    size = -(-int(np.prod(dims, dtype=int)) * kind.bitwidth // 8)
    proto = onnx.TensorProto(data_type=kind.value, dims=dims, raw_data=bytes(size))
    return ir.serde.TensorProtoTensor(proto)


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_sizes_of_messages_are_what_the_library_says(kind):
    rng = np.random.default_rng(int(kind))
    for _ in range(20):
        tensor = message(rng, kind)

        assert elements(tensor) == tensor.size
        assert nbytes(tensor) == tensor.nbytes


def test_other_tensors_are_asked():
    held = ir.Tensor(np.zeros((2, 3), np.float32))
    texts = ir.StringTensor([b"ab", b"c"], shape=ir.Shape([2]))
    outside = ir.ExternalTensor("x", 0, 24, ir.DataType.FLOAT, shape=ir.Shape([6]), name="x")

    assert [elements(t) for t in (held, texts, outside)] == [6, 2, 6]
    assert [nbytes(t) for t in (held, texts, outside)] == [24, 3, 24]
    assert [is_external(t) for t in (held, texts, outside, None)] == [False, False, True, False]


def test_types_are_what_the_library_says():
    assert {kind for kind in ir.DataType if kind.is_floating_point()} == FLOATS
    assert {kind for kind in ir.DataType if kind.is_integer()} == INTEGERS


def test_a_shape_has_the_sizes_of_one_with_the_same_objects():
    n = ir.SymbolicDim("n")
    shape = ir.Shape([n, 4])

    assert has_sizes(shape, ir.Shape([n, 4], frozen=True))
    assert not has_sizes(shape, ir.Shape([n, 5]))
    assert not has_sizes(shape, ir.Shape([n]))
    assert not has_sizes(shape, ir.Shape([ir.SymbolicDim("n"), 4]))
    assert not has_sizes(None, shape)
