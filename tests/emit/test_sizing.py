from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest
import sympy
from checkers import evaluate

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError

EXPRESSIONS = [
    "N",
    "2*N",
    "N + M",
    "N*M - M",
    "N**2",
    "N/2 + M/2",
    "floor(N/2)",
    "floor((N - 1)/2) + 1",
    "-floor(-N/3)",  # ⌈N/3⌉, as inference writes it
    "1 - floor(-N/2)",
    "floor(-floor(-N/2)/2)",
    "floor(floor(N/2)/2)",
    "floor(N/2)*M",
    "Max(N, M)",
    "Min(N, 5)",
    "Max(0, floor((Min(N, 5) - 1)/2))",
    "Mod(N, 3)",
]


def symbolic():
    """A model with an input of shape [N, M], and its builder."""
    x = ir.Value(name="x", shape=ir.Shape(["N", "M"]), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([x], [], nodes=[], name="g", opset_imports={"": 20})
    model = ir.Model(graph, ir_version=10)
    return model, Builder(model)


def computed(model, value, n, m):
    return evaluate(model, {"x": np.zeros((n, m), np.float32)})[value.name]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_size_is_computed_as_its_expression_says(text):
    model, op = symbolic()
    dim = ir.SymbolicDim(text)
    value = op.size(dim)

    for n, m in itertools.product((1, 2, 3, 5, 7, 8), (1, 4, 5)):
        free = {s: {"N": n, "M": m}[str(s)] for s in dim._expr.free_symbols}
        expected = sympy.Rational(dim._expr.subs(free))
        if expected.q == 1:
            assert computed(model, value, n, m).tolist() == [int(expected)], (n, m)


def test_a_size_rounded_up_is_computed():
    model, op = symbolic()
    x = model.graph.inputs[0]
    value = op.size(-(-x.shape[0] // 4))

    assert [int(computed(model, value, n, 1)[0]) for n in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]


def test_sizes_mix_numbers_and_symbols():
    model, op = symbolic()
    x = model.graph.inputs[0]

    assert computed(model, op.sizes([2, x.shape[0], x.shape[1]]), 3, 5).tolist() == [2, 3, 5]
    assert op.sizes([2, 3]).const_value.numpy().tolist() == [2, 3]


def test_a_size_that_no_value_has_is_an_error():
    _, op = symbolic()

    with pytest.raises(ModelError, match="the size 'K' isn't that of a whole axis"):
        op.size(ir.SymbolicDim("K"))


def test_a_size_without_a_name_is_an_error():
    _, op = symbolic()

    with pytest.raises(ModelError, match="a size is unknown and has no name"):
        op.size(ir.SymbolicDim(None))


def test_a_size_found_inside_a_subgraph_is_not_used_outside():
    _, op = symbolic()
    formal = op.formal("state", ["K", "N"], ir.DataType.FLOAT)
    with op.body([formal]):
        inside = op.size(ir.SymbolicDim("K"))
        assert inside.producer().inputs[0] is formal

    with pytest.raises(ModelError, match="the size 'K' isn't that of a whole axis"):
        op.size(ir.SymbolicDim("K"))
    assert op.size(ir.SymbolicDim("N")).producer().inputs[0].name == "x"
