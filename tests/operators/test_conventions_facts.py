"""Each row of the table of conventions, by exact equality."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from checkers import evaluate

from gradtool.emit.builder import Builder
from gradtool.graph.attributes import attribute
from gradtool.ops import gradients
from gradtool.ops.conventions import CONVENTIONS, Example
from gradtool.ops.driver import differentiate

EXAMPLES = [
    pytest.param(e, id=f"{e.op}-{c.point}-{i}")
    for c in CONVENTIONS.entries() for i, e in enumerate(c.examples)
]  # fmt: skip


def array(numbers):
    """Integers are constants; everything else is float32."""
    made = np.asarray(numbers)
    return made if made.dtype.kind in "ib" else made.astype(np.float32)


def found(example: Example) -> list:
    graph = ir.Graph([], [], nodes=[], name="example", opset_imports={"": example.opset})
    model = ir.Model(graph, ir_version=10)
    feeds, values = {}, []
    for slot, numbers in enumerate(example.inputs):
        data = array(numbers)
        tensor = ir.Tensor(data, name=f"x{slot}")
        value = ir.Value(
            name=f"x{slot}", shape=ir.Shape(data.shape), type=ir.TensorType(tensor.dtype)
        )
        if data.dtype == np.float32:
            graph.inputs.append(value)
            feeds[value.name] = data
        else:
            value.const_value = tensor
            graph.register_initializer(value)
        values.append(value)
    outputs = len(example.gradients) if example.op == "TopK" else 1
    given = [attribute(k, v) for k, v in example.attributes.items()]
    node = ir.Node("", example.op, values, given, num_outputs=outputs, name="node")
    for index, output in enumerate(node.outputs):
        output.name = f"y{index}"
    graph.append(node)
    op = Builder(model)
    op.infer(node)
    y = node.outputs[0]
    ones = np.ones(y.shape.numpy(), np.float32)
    dy = op.constant(ones if example.dy is None else array(example.dy))
    wrt = [v for v in values if v.name in feeds]
    made = differentiate(op, {y: dy}, wrt).gradients
    graph.outputs.extend(made.values())
    with np.errstate(all="ignore"):
        results = evaluate(model, feeds)
    return [results[made[v].name] if v in made else None for v in values]


@pytest.mark.parametrize("example", EXAMPLES)
def test_gradients_have_the_values_of_the_table(example):
    for got, expected in zip(found(example), example.gradients, strict=False):
        if expected is not None:
            np.testing.assert_array_equal(got, array(expected))


@pytest.mark.parametrize(
    "convention", CONVENTIONS.entries(), ids=lambda c: f"{c.operators[0]}-{c.point}"
)
def test_a_convention_is_of_operators_that_there_are(convention):
    names = {s.name for s in onnx.defs.get_all_schemas()}

    assert set(convention.operators) <= names
    assert {e.op for e in convention.examples} <= set(convention.operators)
    assert all(gradients.find("", e.op, 26) is not None for e in convention.examples)
