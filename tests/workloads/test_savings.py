"""The rows of a report on what is saved: plain, with masks, with hoisting."""

from __future__ import annotations

from graphs import parse

import gradtool as gt
from gradtool.graph.stages import is_hoisted
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.save_less import planned
from gradtool.workloads.savings import savings

STEPS = """g (float[64, 256] x, float[256] w) => (y) {
    h = Mul (x, w) r = Relu (h) s = Add (r, x) a = Exp (s) b = Tanh (s) c = Equal (a, b)
    t = Where (c, a, b) u = Tanh (t) y = ReduceMean <keepdims = 0> (u)
}"""


def test_savings_go_from_plain_to_masks_to_hoisting():
    model = parse(STEPS, "w")
    plain, masks, hoisting = savings(model, options=GradOptions(loss="y"))

    assert [row.step for row in (plain, masks, hoisting)] == ["plain", "masks", "hoisting"]
    assert (plain.moved, plain.asked) == ((), 0)
    assert masks.moved == (("Cast", 1),)
    assert plain.residuals - masks.residuals == 64 * 256 * 3
    assert plain.peak >= masks.peak >= hoisting.peak
    assert plain.peak == planned(gt.grad(model, loss="y", save_less=False).model).total
    assert hoisting.peak == planned(gt.grad(model, loss="y").model).total


def test_savings_of_a_training_graph_count_from_before_they_were_made():
    model = parse(STEPS, "w")
    training = gt.grad(model, loss="y").model
    before = [is_hoisted(n) for n in training.graph]

    assert [r.residuals for r in savings(training)] == [
        r.residuals for r in savings(model, options=GradOptions(loss="y"))
    ]
    assert [is_hoisted(n) for n in training.graph] == before


def test_savings_with_open_sizes_have_no_peak_until_they_are_given():
    model = parse(STEPS.replace("[64", "[N"), "w")

    assert {row.peak for row in savings(model, options=GradOptions(loss="y"))} == {None}
    assert savings(model, options=GradOptions(loss="y"), dims={"N": 64}) == savings(
        parse(STEPS, "w"), options=GradOptions(loss="y")
    )
