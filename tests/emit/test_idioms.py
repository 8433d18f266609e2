from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from checkers import evaluate
from graphs import parse, stock

from gradtool.emit.builder import Builder


@pytest.mark.parametrize(
    ("shape", "dims", "expected"),
    [
        ((0, 3, 4), [0, -1], [0, 12]),
        ((2, 0, 4), [-1, 0], [8, 0]),
        ((0, 3), [-1, 3], [0, 3]),
        ((0,), [0, -1, 1], [0, 1, 1]),
    ],
)
def test_the_open_size_of_an_empty_tensor_is_what_is_left_beside_its_zeros(shape, dims, expected):
    x = ir.Value(name="x", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([x], [], nodes=[], name="g", opset_imports={"": 20})
    model = ir.Model(graph, ir_version=10)
    result = Builder(model).reshape(x, dims)
    found = evaluate(model, {"x": np.zeros(shape, np.float32)})[result.name]

    assert list(found.shape) == list(result.shape) == expected


@pytest.mark.parametrize("count", [2, 3])
def test_sequences_are_summed_whatever_the_ranks_of_their_elements(count):
    pytest.importorskip("onnxruntime")
    model = parse("g (float[4, 3] a, float[5] b) => (float[4, 3] a2) { a2 = Identity (a) }")
    op, elements = Builder(model), list(model.graph.inputs)
    sequence = op.SequenceConstruct(*elements)
    sequence.shape = None
    total = op.total([sequence] * count)
    for index, x in enumerate(elements):
        model.graph.outputs.append(op.SequenceAt(total, np.asarray(index), like=x))
    a, b = np.arange(12, dtype=np.float32).reshape(4, 3), np.ones(5, np.float32)
    _, *sums = stock(model, a=a, b=b).values()

    np.testing.assert_array_equal(sums[0], count * a)
    np.testing.assert_array_equal(sums[1], count * b)


@pytest.mark.parametrize(
    ("pads", "axes", "expected"),
    [
        ([1, 2], [1], [0, 1, 0, 0, 2, 0]),
        ([1, 2, 3, 4], [-1, 0], [2, 0, 1, 4, 0, 3]),
        ([1, 2, 3, 4, 5, 6], None, [1, 2, 3, 4, 5, 6]),
    ],
)
@pytest.mark.parametrize("computed", ["nothing", "pads", "axes"])
def test_a_pad_has_pads_for_every_axis(pads, axes, expected, computed):
    model = parse("g (float[2, 3, 4] x, int64[n] p, int64[m] a) => (p2) { p2 = Identity (p) }")
    op, (x, p, a) = Builder(model), list(model.graph.inputs)
    a.shape, p.shape = ir.Shape([len(pads) // 2]), ir.Shape([len(pads)])
    made = op.pad(
        x,
        pads if computed == "nothing" else p,
        None if axes is None else a if computed == "axes" else axes,
    )
    node = made.producer()

    assert len(node.inputs) == 2
    feeds = {"x": np.ones((2, 3, 4), np.float32), "p": np.array(pads), "a": np.array(axes or [0])}
    model.graph.outputs.extend([node.inputs[1], made])
    found = evaluate(model, feeds | {"a": np.resize(feeds["a"], len(pads) // 2)})
    constant = node.inputs[1].const_value
    whole = found[node.inputs[1].name] if constant is None else constant.numpy()
    assert whole.tolist() == expected
