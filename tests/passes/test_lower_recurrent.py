"""Recurrent operators of unusual forms, as a Scan."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import parse

import gradtool as gt
from gradtool.errors import ModelError
from gradtool.graph.training_info import TrainingInfo
from gradtool.operators.recurrence import GATES, recurrence

T, B, I, H = 4, 3, 2, 5  # noqa: E741 - the names of the operands
UNUSUAL = [
    ("RNN", "clip = 0.5"),
    ("RNN", 'activations = ["Softplus"]'),
    ("GRU", "clip = 0.5"),
    ("GRU", 'activations = ["Sigmoid", "Relu"]'),
    ("GRU", 'linear_before_reset = 1, activations = ["HardSigmoid", "Tanh"]'),
    ("LSTM", "clip = 0.5"),
    ("LSTM", "input_forget = 1"),
    ("LSTM", 'activations = ["Sigmoid", "Tanh", "Relu"]'),
]
USUAL = [
    ("RNN", ""),
    ("RNN", 'activations = ["relu"]'),
    ("GRU", 'activations = ["sigmoid", "Tanh"]'),
    ("LSTM", 'input_forget = 0, activations = ["Sigmoid", "Tanh", "Tanh"]'),
]


def network(op: str, options: str, batch: int = B):
    """A node of an operator, whose weights and first state are initializers, and a loss."""
    gates = GATES[op]
    shapes = {"w": (1, gates * H, I), "r": (1, gates * H, H), "b": (1, 2 * gates * H)}
    shapes |= {"h": (1, batch, H)}
    shapes |= {"c": (1, batch, H), "p": (1, 3 * H)} if op == "LSTM" else {}
    given = ", ".join(f"float[{', '.join(map(str, s))}] {n}" for n, s in shapes.items())
    more = ", c, p" if op == "LSTM" else ""
    options = ", ".join(filter(None, (f"hidden_size = {H}", options)))
    text = f"""
    g (float[{batch}, {T}, {I}] x, {given}) => (float[1, {batch}, {H}] last, float loss) {{
       turned = Transpose <perm = [1, 0, 2]> (x)
       y, last = {op} <{options}> (turned, w, r, b, , h{more})
       loss = ReduceMean <keepdims = 0> (y)
    }}
    """
    return parse(text, weights=" ".join(shapes)), set(shapes)


@pytest.mark.parametrize(("op", "options"), UNUSUAL)
def test_unusual_forms_are_a_scan_from_loading_on(op, options):
    model = gt.load(network(op, options)[0])

    assert [node.op_type for node in model.graph if node.op_type in (op, "Scan")] == ["Scan"]


@pytest.mark.parametrize(("op", "options"), USUAL)
def test_usual_forms_stay(op, options):
    model = gt.load(network(op, options)[0])

    assert op in [node.op_type for node in model.graph]


@pytest.mark.parametrize(("op", "options"), [*UNUSUAL, *USUAL])
def test_weights_and_states_are_the_parameters(op, options, recwarn):
    """The numbers of clips and activations are none, and nobody is told of them."""
    model, names = network(op, options)
    training = gt.grad(gt.load(model), loss="loss")

    assert set(TrainingInfo.of(training.model).gradients) == names
    assert not [str(w.message) for w in recwarn if "scalar" in str(w.message)]


@pytest.mark.parametrize(("op", "options"), UNUSUAL)
def test_a_batch_that_is_fixed_at_one_is_opened_before(op, options):
    model = gt.load(network(op, options, batch=1)[0], batch=6)
    found = gt.run(model, {"x": np.ones((6, T, I), np.float32)})

    assert found.outputs["last"].shape == (1, 6, H)


def test_operands_that_do_not_fit_are_refused_before():
    model, _ = network("GRU", "clip = 0.5")
    model.graph.initializers["r"].const_value = ir.tensor(np.zeros((1, 3 * H, 7), np.float32))
    with pytest.raises(ModelError, match="its R has shape"):
        gt.load(model)


@pytest.mark.parametrize(
    ("op", "options", "said"),
    [
        ("RNN", 'activations = ["Foo"]', "'Foo' must be one of affine, relu"),
        ("LSTM", 'activations = ["Tanh"]', "it has 1 activations, 3 are needed"),
        ("GRU", 'direction = "sideways"', "direction 'sideways' must be one of"),
    ],
)
def test_activations_and_directions_are_refused_by_name(op, options, said):
    with pytest.raises(ModelError, match=said):
        gt.load(network(op, options)[0])


@pytest.mark.parametrize(
    ("op", "options"),
    [("GRU", {"clip": 3.0}), ("LSTM", {"input_forget": 1}), ("RNN", {"activations": ["Elu"]})],
)
def test_kernels_refuse_unusual_forms(op, options):
    x = w = np.zeros((1, 1, 1))

    with pytest.raises(ValueError, match="unusual form"):
        recurrence(op, x, w, options)
