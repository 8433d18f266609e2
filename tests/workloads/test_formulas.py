"""Peaks as polynomials, against the simulator at sizes that they were not made from."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from graphs import parse

import gradtool as gt
from gradtool.planning.remap_schedule import translated
from gradtool.planning.simulate import Simulator
from gradtool.workloads import strategies
from gradtool.workloads.formulas import Formula, Term, peak_formula
from gradtool.workloads.plans import workload

SAMPLES = Path(__file__).parents[2] / "samples"
LINEAR = """g (float[N, 8] x, float[8, 12] w) => (y) {
    a = MatMul (x, w) b = Tanh (a) c = Exp (b) y = ReduceMean <keepdims = 0> (c)
}"""
ATTENTION = """g (float[B, S, 8] x, float[8, 8] w) => (y) {
    q = MatMul (x, w) t = Transpose <perm = [0, 2, 1]> (q)
    s = MatMul (q, t) p = Softmax (s) o = MatMul (p, q) y = ReduceMean <keepdims = 0> (o)
}"""
MIXED = """g (float[N, M, K] x, float[K] w) => (y) {
    a = Mul (x, w) b = Tanh (a) y = ReduceMean <keepdims = 0> (b)
}"""
MINIMUM = """g (float[N, 4] x, float[1, 4] w) => (y)
    <int64[1] zero = {0}, int64[1] five = {40}, int64[1] axis = {0}> {
    a = Mul (x, w) b = Exp (a) c = Slice (b, zero, five, axis) y = ReduceMean <keepdims = 0> (c)
}"""


def opened(text, weights, *, fuse_attention=True, **dims):
    training = gt.grad(parse(text, weights), loss="y", fuse_attention=fuse_attention)
    return workload(training.model, dims)


def simulated(work, schedule, sizes):
    """The peak by brute force: padding left out, as the formula does."""
    other = work.resized(sizes)
    order = translated(work.program, other, schedule.order)
    return Simulator(dataclasses.replace(other, alignment=1)).peak(order)


def held(work, schedule, sizes):
    """Bytes alive at each step, workspaces left out."""
    other = work.resized(sizes)
    steps = tuple(dataclasses.replace(step, workspace=()) for step in other.steps)
    bare = dataclasses.replace(other, alignment=1, steps=steps)
    return Simulator(bare).profile(translated(work.program, other, schedule.order))


@pytest.mark.parametrize("name", ["keep", "mirror", "sqrt"])
def test_a_linear_peak_is_exact_at_every_large_size(name):
    work = opened(LINEAR, "w", N=1)
    schedule = strategies.STRATEGIES[name](work).schedule
    formula = peak_formula(work, schedule, ["N"])

    assert [dict(t.powers) for t in formula.terms] == [{"N": 1}, {}]
    for n in (64, 100, 777):
        assert formula.at({"N": n}) == simulated(work, schedule, {"N": n})


def test_attention_is_linear_in_the_sequence():
    work = opened(ATTENTION, "w", B=1, S=1)
    formula = peak_formula(work, strategies.keep(work).schedule, ["B", "S"])

    assert {"B": 1, "S": 1} in [dict(t.powers) for t in formula.terms]
    assert all(t.powers.get("S", 0) < 2 for t in formula.terms)


def test_attention_as_it_is_written_is_quadratic_in_the_sequence():
    work = opened(ATTENTION, "w", fuse_attention=False, B=1, S=1)
    found = strategies.keep(work)
    formula = peak_formula(work, found.schedule, ["B", "S"])

    assert {"B": 1, "S": 2} in [dict(t.powers) for t in formula.terms]
    assert [sum(t.powers.values()) for t in formula.terms] == sorted(
        (sum(t.powers.values()) for t in formula.terms), reverse=True
    )
    assert formula.workspace > 0  # Softmax is done in pieces
    for b, s in itertools.product((48, 96, 130), (64, 200)):
        sizes = {"B": b, "S": s}
        assert formula.at(sizes) in held(work, found.schedule, sizes)
        assert formula.at(sizes) <= simulated(work, found.schedule, sizes)


def test_a_third_symbol_keeps_its_size():
    work = opened(MIXED, "", N=1, M=1, K=1)
    formula = peak_formula(work, strategies.keep(work).schedule, ["N", "M", "K"])

    assert formula.fixed == {"K": 1}
    assert {name for t in formula.terms for name in t.powers} <= {"N", "M"}


def test_a_peak_that_is_no_polynomial_has_no_formula():
    """The slice ends at row 40, or where x does: sizes below and above it lie on two lines."""
    work = opened(MINIMUM, "w", N=1)

    assert peak_formula(work, strategies.keep(work).schedule, ["N"]) is None


def test_the_formula_names_the_step_of_the_peak():
    work = opened(LINEAR, "w", N=64)
    formula = peak_formula(work, strategies.keep(work).schedule, ["N"])

    assert formula.step in {step.name for step in work.program.steps}


def test_terms_are_added():
    formula = Formula((Term(3, {"n": 2, "m": 1}), Term(5, {})), "s", {})

    assert formula.at({"n": 2, "m": 7}) == 3 * 4 * 7 + 5


@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_samples_have_a_formula_of_every_plan(name):
    work = workload(gt.grad(gt.load(SAMPLES / f"{name}.onnx")).model, {"batch": 1})
    for strategy in (strategies.keep, strategies.mirror, strategies.sqrt):
        found = strategy(work)
        formula = peak_formula(work, found.schedule, ["batch"])

        if formula.workspace is None:
            assert formula.at({"batch": 96}) == simulated(work, found.schedule, {"batch": 96})
        else:
            assert formula.at({"batch": 96}) in held(work, found.schedule, {"batch": 96})


def test_a_view_at_size_one_is_a_step_at_other_sizes():
    """With one row the transposed copy is a view, and only then."""
    text = """g (float[N, 3, 4, 4] x, float[5, 3, 1, 1] w) => (y) {
        a = Conv (x, w) b = Transpose <perm = [1, 0, 2, 3]> (a) c = Tanh (b)
        d = Reshape (c, flat) y = ReduceMean <keepdims = 0> (d)
    }"""
    work = opened(text.replace("=> (y)", "=> (y) <int64[1] flat = {-1}>"), "w", N=1)
    one = {s.name for s in work.program.steps}
    many = {s.name for s in work.resized({"N": 16}).steps}
    formula = peak_formula(work, strategies.keep(work).schedule, ["N"])

    assert one != many
    assert formula is not None
