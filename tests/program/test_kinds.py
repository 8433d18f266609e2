from __future__ import annotations

from graphs import parse

import gradtool as gt
from gradtool.program.flatten import flatten


def test_values_are_sorted_by_what_they_are():
    model = parse(
        """g (float[2, 3] x, float[3] w) => (y) <int64[1] axes = {1}, float two = {2},
           int64[2] table = {1, 0}> {
            a = Mul (x, w) b = Mul (a, two) c = Gather <axis = 0> (b, table)
            y = ReduceSum (c, axes)
        }""",
        "w",
    )

    assert {v.name: v.kind for v in flatten(model).values} == {
        "x": "input", "w": "parameter", "axes": "host", "two": "constant", "table": "constant",
        "a": "activation", "b": "activation", "c": "activation", "y": "output",
    }  # fmt: skip


def test_what_only_updates_read_is_state_and_what_they_replace_stays_a_parameter():
    model = parse("g (float[2, 3] x, float[3] w) => (y) { a = Mul (x, w) y = Tanh (a) }", "w")
    step = gt.grad(model, loss="mean", optimizer="momentum")
    found = {v.name: v.kind for v in flatten(step.model).values}

    assert found["w"] == "parameter"
    assert [name for name, kind in found.items() if kind == "state"] == ["w_momentum"]
    assert found["w_next"] == "output"


def test_a_gradient_is_told_from_other_outputs():
    model = parse("g (float[2, 3] x, float[3] w) => (y) { a = Mul (x, w) y = Tanh (a) }", "w")
    made = gt.grad(model, loss="mean")
    found = {v.name: v.kind for v in flatten(made.model).values}

    assert found[made.gradients["w"]] == "gradient"
    assert found[made.loss] == found["y"] == "output"


def test_numbers_of_one_element_are_constants_unless_they_are_trained():
    model = parse("g (float[3] x, float[1] w) => (y) { a = Mul (x, w) y = Tanh (a) }", "w")
    trained = gt.grad(model, loss="mean", wrt=["w"]).model

    assert {v.name: v.kind for v in flatten(model).values}["w"] == "constant"
    assert {v.name: v.kind for v in flatten(trained).values}["w"] == "parameter"
