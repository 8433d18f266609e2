"""Tensors that change from step to step: inference takes nothing from how they begin."""

import numpy as np
import onnx_ir as ir
import pytest
from conftest import build

import gradtool as gt
from gradtool.emit.builder import Builder
from gradtool.graph.training_info import record
from gradtool.passes.optimizer import zeros
from gradtool.shapes import infer

BODY = """net (int64[3] x) => (int64[3] y) {
    same = Equal (seen, zero)
    place = Where (same, zero, three)
    y = Add (x, place)
}"""


@pytest.mark.parametrize("changes", [True, False])
def test_inference_reads_no_state(changes):
    seen, three = np.zeros(3, np.int64), np.array([1, 2, 3])
    model = gt.load(build(BODY, seen=seen, zero=np.array(0), three=three))
    if changes:
        record(model, state={"seen": "y"})
    infer(model)

    place = next(v for node in model.graph for v in node.outputs if v.name == "place")
    assert (place.const_value is None) is changes
    assert model.graph.initializers["seen"].const_value is not None


def test_the_builder_reads_no_state_whatever_it_emitted_of_constants_before():
    model = gt.load(build("net (int64[3] x) => (int64[3] y) { y = Identity (x) }"))
    op = Builder(model)
    seen = zeros(op, "seen", ir.DataType.INT64, [3])
    made = [op.Add(v, op.constant([1, 2, 3])) for v in (op.constant([0, 0, 0]), seen)]

    assert made[0].const_value is not None
    assert made[1].const_value is None
    assert not op.knows_elements(made[1])
