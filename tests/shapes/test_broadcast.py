"""Sizes of what broadcasts, where two of them are open."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import floats, parse, stock

import gradtool as gt


@pytest.mark.parametrize(
    ("op", "kind"), [("Add", "float"), ("Max", "float"), ("Less", "bool"), ("Mod", "float")]
)
def test_two_open_sizes_meet_in_the_larger(op, kind):
    given = "<fmod = 1>" if op == "Mod" else ""
    model = parse(
        f"g (float[a, 3] x, float[b, 3] y) => ({kind}[c, 3] z) {{ z = {op} {given} (x, y) }}"
    )

    assert [str(d) for d in model.graph.outputs[0].shape] == ["Max(a, b)", "3"]


def test_one_open_size_that_meets_a_known_one_is_that():
    model = parse("g (float[a, 1] x, float[4, b] y) => (float[c, d] z) { z = Mul (x, y) }")

    assert [str(d) for d in model.graph.outputs[0].shape] == ["4", "b"]


def test_expand_to_an_open_size_is_the_larger():
    model = parse("""g (float[a] x, float[b] y) => (float[c] z) {
        s = Shape (y)
        z = Expand (x, s)
    }""")

    assert str(model.graph.outputs[0].shape[0]) == "Max(a, b)"


@pytest.mark.parametrize(("rows", "others"), [(1, 4), (4, 1), (4, 4), (1, 1)])
@pytest.mark.parametrize("op", ["Add", "Mul", "Max", "Where"])
def test_gradients_are_summed_over_the_side_that_was_repeated(op, rows, others):
    pytest.importorskip("onnxruntime")
    call = "c = Less (x, y)\n z = Where (c, x, y)" if op == "Where" else f"z = {op} (x, y)"
    feeds = {"x": floats(rows, 3), "y": floats(others, 3, seed=1)}
    found = {}
    for sizes in (("a", "b"), (rows, others)):
        text = f"g (float[{sizes[0]}, 3] x, float[{sizes[1]}, 3] y) => (float[c, 3] z) {{ {call} }}"
        training = gt.grad(parse(text), loss="sum", wrt=["x", "y"])
        theirs = stock(training.model, **feeds)
        ours = gt.run(training, feeds).gradients
        for name, output in training.gradients.items():
            np.testing.assert_allclose(theirs[output], ours[name], rtol=1e-6)
            found.setdefault(name, []).append(ours[name])

    for of_open, of_known in found.values():
        assert of_open.shape == of_known.shape
        np.testing.assert_array_equal(of_open, of_known)
