"""Gradients of weights that a graph transposes: one product, as the exporters' `x Wᵀ` has it."""

import numpy as np
import pytest
from graphs import floats, gradients, parse, stock
from hypothesis import given
from hypothesis import strategies as st

import gradtool as gt

SIZES = st.integers(1, 5)


def transposes(training):
    backward = [n for n in training.model.graph if n.metadata_props["gradtool.stage"] == "backward"]
    return [node.op_type for node in backward].count("Transpose")


def as_laid(x, is_turned):
    return x.T if is_turned else x


@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.sampled_from([1.0, 0.5, -2.0]))
def test_the_gradient_through_a_gemm_is_one_product(m, n, k, flip_a, flip_b, alpha):
    x, w = floats(*as_laid(np.empty((m, k)), flip_a).shape), floats(n, k, seed=1)
    w = w.T.copy() if flip_b else w
    scale = floats(m, n, seed=2)
    a, b = (", ".join(map(str, v.shape)) for v in (x, w))
    model = parse(
        f"g (float[{a}] x, float[{b}] w, float[{m}, {n}] s) => (y) {{"
        f" t = Transpose (w) p = Gemm <transA = {int(flip_a)}, transB = {int(flip_b)},"
        f" alpha = {alpha}> (x, t) y = Mul (p, s) }}"
    )
    training = gt.grad(model, loss="sum:y", wrt=["x", "w"])
    found = gradients(training, x=x, w=w, s=scale)
    by_right = alpha * as_laid(x, flip_a).T @ scale

    assert transposes(training) == 0
    np.testing.assert_allclose(found["w"], as_laid(by_right, flip_b).T, rtol=1e-4, atol=1e-5)
    theirs = stock(training.model, x=x, w=w, s=scale)
    np.testing.assert_allclose(theirs["w_grad"], found["w"], rtol=1e-4, atol=1e-5)


@given(st.lists(SIZES, min_size=1, max_size=3), SIZES, SIZES)
def test_the_gradient_through_a_matmul_is_one_product(rows, n, k):
    x, w = floats(*rows, k), floats(n, k, seed=1)
    model = parse(
        f"g (float[{', '.join(map(str, x.shape))}] x, float[{n}, {k}] w) => (y)"
        " { t = Transpose <perm = [1, 0]> (w) p = MatMul (x, t) y = Mul (p, p) }"
    )
    training = gt.grad(model, loss="sum:y", wrt=["w"])
    flat = x.reshape(-1, k)

    assert transposes(training) == 0
    found = gradients(training, x=x, w=w)["w"]
    np.testing.assert_allclose(found, 2 * (flat @ w.T).T @ flat, rtol=1e-4, atol=1e-5)


BODIES = {
    "read twice": "t = Transpose (w) p = MatMul (x, t) q = MatMul (z, t) y = Add (p, q)",
    "read by others": "t = Transpose (w) p = MatMul (x, t) q = Mul (t, t) y = MatMul (p, q)",
    "turned twice": "v = Transpose (w) u = Transpose (v) t = Transpose (u) p = MatMul (x, t)"
    " y = Mul (p, p)",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("wrt", [["w"], ["w", "t"], ["t", "w"]])
@pytest.mark.parametrize("accumulate", ["chain", "sum"])
def test_what_else_reads_the_weight_or_its_gradient_stays_right(body, wrt, accumulate):
    weights = {"x": floats(3, 3), "z": floats(3, 3, seed=1), "w": floats(3, 3, seed=2)}
    model = parse(f"g (float[3, 3] x, float[3, 3] z, float[3, 3] w) => (y) {{ {body} }}")
    training = gt.grad(model, loss="sum:y", wrt=wrt, accumulate=accumulate)
    found = gradients(training, **weights)
    plain = parse(f"g (float[3, 3] x, float[3, 3] z, float[3, 3] t) => (y) {{ {_of_t(body)} }}")
    by_t = gradients(
        gt.grad(plain, loss="sum:y", wrt=["t"]), x=weights["x"], z=weights["z"], t=weights["w"].T
    )["t"]

    np.testing.assert_allclose(found["w"], by_t.T, rtol=1e-4, atol=1e-5)
    if "t" in wrt:
        np.testing.assert_allclose(found["t"], by_t, rtol=1e-4, atol=1e-5)


def _of_t(body):
    """The same of the transposed weight itself."""
    return body[body.index("p = ") :]
