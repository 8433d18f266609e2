"""Training graphs as pure functions: `gradtool grad --params-as-inputs`."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from kits import NETS, batch_of, net

import gradtool as gt
from gradtool.passes.parameters_as_inputs import parameters_as_inputs

SIZES = {"I": 3, "H": 4, "O": 2, "B": 5}


@pytest.mark.parametrize("optimizer", ["none", "adamw"])
@pytest.mark.parametrize("name", NETS)
def test_the_function_has_the_bits_of_the_graph(name, optimizer):
    graph = gt.grad(gt.load(net(name, SIZES)), loss="ce", optimizer=optimizer, train_mode=True)
    batch = batch_of(name, SIZES)
    expected = gt.run(graph, batch)
    model = graph.model.clone()
    held = parameters_as_inputs(model)
    found = gt.run(model, batch | {name: tensor.numpy() for name, tensor in held.items()})

    assert held.keys() == {*graph.model.graph.initializers} & held.keys() != set()
    assert not held.keys() & model.graph.initializers.keys()
    assert found.loss == expected.loss
    for gradient, array in expected.gradients.items():
        np.testing.assert_array_equal(found.gradients[gradient], array)
    ours, theirs = list(found.outputs.values()), list(expected.outputs.values())
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_next_value_has_one_name(run, tmp_path):
    """Also where an interior value has it, unless an input has."""
    text = """net (float[2, 3] x) => (float[2, 3] y) {
        w_next = MatMul (x, w)
        y = MatMul (w_next, v)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {text}')
    for name in ("w", "v"):
        eye = onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32), name)
        model.graph.initializer.append(eye)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    flags = ("--optimizer", "sgd", "--loss", "mean", "-o", "pure.onnx", "--params-as-inputs")
    outcome = run("grad", "m.onnx", *flags)
    pure = onnx.load(tmp_path / "pure.onnx")

    assert outcome.code == 0, outcome.err
    assert [v.name for v in pure.graph.output] == ["y", "loss", "w_next", "v_next"]
    assert not pure.graph.initializer or all(
        t.name not in ("w", "v") for t in pure.graph.initializer
    )


def test_the_halves_of_a_step_take_parameters_as_well(run, tmp_path):
    (tmp_path / "m.onnx").write_bytes(net("mlp", SIZES))
    outcome = run("grad", "m.onnx", "--loss", "ce", "--split", "--params-as-inputs")
    forward, backward = (onnx.load(tmp_path / f"m.{h}.onnx") for h in ("forward", "backward"))

    assert outcome.code == 0, outcome.err
    assert {"w1", "b1", "scale", "shift", "w2"} <= {v.name for v in forward.graph.input}
    assert "w2" in {v.name for v in backward.graph.input}
    assert not {"w1", "w2"} & {t.name for h in (forward, backward) for t in h.graph.initializer}
