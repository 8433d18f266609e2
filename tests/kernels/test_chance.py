"""Draws of nodes without a seed."""

from __future__ import annotations

import numpy as np
from graphs import floats, parse

import gradtool as gt
from gradtool.ops.shared.rng import repeatable, unseeded

DROPOUT = """g (float[100] x) => (float[100] y) <bool t = {1}, float r = {0.5}> {
    y = Dropout (x, r, t)
}"""
NOISE = """g (float[50] x) => (float[50] y) {
    n = RandomNormalLike (x)
    u = RandomUniform <shape = [50]> ()
    s = Mul (x, n)
    y = Add (s, u)
}"""


def test_they_differ_from_run_to_run():
    first, second = (unseeded().random(4) for _ in range(2))

    assert (first != second).all()


def test_they_are_the_same_where_runs_are_compared():
    found = []
    for _ in range(2):
        with repeatable(7):
            found.append([unseeded().random(4) for _ in range(2)])

    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0][0] != found[0][1]).all()


def test_checking_the_arena_takes_no_fault_from_chance():
    for text in (DROPOUT, NOISE):
        training = gt.grad(parse(text), loss="sum", wrt=["x"])
        feeds = {"x": floats(100 if text is DROPOUT else 50)}

        first, second = (gt.run(training, feeds, check_arena=True) for _ in range(2))
        assert (first.gradients["x"] != second.gradients["x"]).any()
