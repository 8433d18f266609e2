"""Gradients of weights that a graph transposes: written by column, so that no one copies them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, parse
from hypothesis import given
from hypothesis import strategies as st

import gradtool as gt
from gradtool.api import model_of
from gradtool.exec import agreement
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import check_arena, measure
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import planned
from gradtool.native import library

SIZES = st.integers(1, 5)
KERNELS = ["numpy", "cupy", *(["native"] if library.is_available() else [])]


def steps(training, kernels="numpy"):
    return [step.op for step in planned(model_of(training), {}, kernels).program.steps]


def by(training, kernels, **feeds):
    """Gradients, run here whatever the kernels."""
    model = model_of(training)
    executor = Executor(planned(model, {}, kernels), open_device("cpu"), parameters_of(model))
    for name, array in feeds.items():
        executor.set_input(name, array)
    executor.step()
    found = executor.gradients()
    check_arena(executor)
    assert measure(executor, 1, copy=False).high_water <= executor.plan.peak
    return found


def as_laid(x, is_turned):
    return x.T if is_turned else x


@pytest.mark.sample(3)
@pytest.mark.parametrize("kernels", KERNELS)
@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.sampled_from([1.0, 0.5, -2.0]))
def test_the_gradient_through_a_gemm_is_one_product(kernels, m, n, k, flip_a, flip_b, alpha):
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
    found = by(training, kernels, x=x, w=w, s=scale)
    by_right = alpha * as_laid(x, flip_a).T @ scale

    assert "Transpose" not in steps(training, kernels)
    np.testing.assert_allclose(found["w"], as_laid(by_right, flip_b).T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernels", KERNELS)
@given(st.lists(SIZES, min_size=1, max_size=3), SIZES, SIZES)
def test_the_gradient_through_a_matmul_is_one_product(kernels, rows, n, k):
    x, w = floats(*rows, k), floats(n, k, seed=1)
    model = parse(
        f"g (float[{', '.join(map(str, x.shape))}] x, float[{n}, {k}] w) => (y)"
        " { t = Transpose <perm = [1, 0]> (w) p = MatMul (x, t) y = Mul (p, p) }"
    )
    training = gt.grad(model, loss="sum:y", wrt=["w"])
    flat = x.reshape(-1, k)

    assert "Transpose" not in steps(training, kernels)
    found = by(training, kernels, x=x, w=w)["w"]
    np.testing.assert_allclose(found, 2 * (flat @ w.T).T @ flat, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "double"])
def test_other_types_are_written_by_column_too(kind):
    types = {"float16": 10, "bfloat16": 16, "double": 11}
    model = parse(
        "g (float[7, 5] x, float[6, 5] w) => (y) {"
        f" a = Cast <to = {types[kind]}> (x) b = Cast <to = {types[kind]}> (w)"
        " t = Transpose (b) p = MatMul (a, t) y = Cast <to = 1> (p) }"
    )
    x, w = floats(7, 5), floats(6, 5, seed=1)
    training = gt.grad(model, loss="sum:y", wrt=["w"])
    found = by(training, "numpy", x=x, w=w)["w"]

    assert "Transpose" not in steps(training)
    np.testing.assert_allclose(found, np.tile(x.sum(0), (6, 1)), rtol=2e-2, atol=2e-2)


BODIES = {
    "read twice": "t = Transpose (w) p = MatMul (x, t) q = MatMul (z, t) y = Add (p, q)",
    "read by others": "t = Transpose (w) p = MatMul (x, t) q = Mul (t, t) y = MatMul (p, q)",
    "turned twice": "v = Transpose (w) u = Transpose (v) t = Transpose (u) p = MatMul (x, t)"
    " y = Mul (p, p)",
    "scaled before": "v = Mul (w, w) t = Transpose (v) y = MatMul (x, t)",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("wrt", [["w"], ["w", "t"], ["t", "w"]])
@pytest.mark.parametrize("accumulate", ["chain", "sum"])
def test_what_else_reads_the_weight_or_its_gradient_stays_right(kernels, body, wrt, accumulate):
    weights = {"x": floats(3, 3), "z": floats(3, 3, seed=1), "w": floats(3, 3, seed=2)}
    model = parse(f"g (float[3, 3] x, float[3, 3] z, float[3, 3] w) => (y) {{ {body} }}")
    training = gt.grad(model, loss="sum:y", wrt=wrt, accumulate=accumulate)
    found = by(training, kernels, **weights)
    plain = parse(f"g (float[3, 3] x, float[3, 3] z, float[3, 3] t) => (y) {{ {_of_t(body)} }}")
    turned = weights["w"] ** 2 if "Mul (w, w)" in body else weights["w"]
    by_t = by(
        gt.grad(plain, loss="sum:y", wrt=["t"]), kernels, x=weights["x"], z=weights["z"], t=turned.T
    )["t"]
    expected = by_t.T * (2 * weights["w"] if turned is not weights["w"] else 1)

    np.testing.assert_allclose(found["w"], expected, rtol=1e-4, atol=1e-5)
    if "t" in wrt:
        np.testing.assert_allclose(found["t"], by_t, rtol=1e-4, atol=1e-5)


def _of_t(body):
    """The same of the transposed weight itself."""
    return body[min(i for i in (body.find("p = "), body.find("y = ")) if i >= 0) :]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("kernels", ["numpy", *KERNELS[2:]])
def test_updates_read_what_was_written_by_column(kernels, optimizer):
    turned = parse(
        "g (float[7, 5] x, float[6, 5] w) => (y) { t = Transpose (w) y = MatMul (x, t) }", "w"
    )
    plain = parse("g (float[7, 5] x, float[5, 6] w) => (y) { y = MatMul (x, w) }", "w")
    plain.graph.initializers["w"].const_value = ir.Tensor(floats(6, 5).T.copy(), name="w")
    found = []
    for model in (turned, plain):
        training = gt.grad(model, loss="mean:y", optimizer=optimizer)
        with gt.Session(training, kernels=kernels) as session:
            session.step({"x": floats(7, 5)})
            session.step({"x": floats(7, 5, seed=3)})
            found.append(session.values("w")["w"])

    np.testing.assert_allclose(found[0], found[1].T, rtol=1e-5)


@pytest.mark.parametrize("kernels", ["numpy", *KERNELS[2:]])
def test_every_plan_has_the_bits_of_keeping_everything(kernels):
    text = """g (float[64, 32] x, float[48, 32] w, float[32, 48] v) => (y) {
        t = Transpose (w) a = MatMul (x, t) b = Tanh (a) u = Transpose (v) c = MatMul (b, u)
        d = Tanh (c) e = MatMul (d, t) y = Tanh (e)
    }"""
    training, feeds = gt.grad(parse(text, "w v"), loss="mean:y"), {"x": floats(64, 32)}
    result = gt.run(training, feeds, kernels=kernels)

    assert agreement.every_plan(model_of(training), feeds, result)


@pytest.mark.parametrize("name", ["sqrt", "mirror", "optimal"])
def test_a_written_file_transposes_as_soon_as_there_is_something_to(name):
    """Other runtimes copy: the product and what it was made of leave before others come."""
    text = """g (float[64, 32] x, float[48, 32] w, float[32, 48] v) => (y) {
        t = Transpose (w) a = MatMul (x, t) b = Tanh (a) u = Transpose (v) c = MatMul (b, u)
        d = Tanh (c) y = Tanh (d)
    }"""
    training = gt.grad(parse(text, "w v"), loss="mean:y")
    nodes = list(gt.recompute(training, name).model.graph)
    turned = [n for n in nodes if n.op_type == "Transpose" and n.name.endswith("/grad/Transpose")]

    assert len(turned) == 2
    for node in turned:
        assert nodes[nodes.index(node) - 1] is node.inputs[0].producer()


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["optimal", "sqrt", "mirror"])
@pytest.mark.parametrize("kernels", ["numpy", *KERNELS[2:]])
def test_a_file_of_tied_words_takes_what_was_planned(kernels, name, tmp_path):
    """The gradient of the words may be put off to where the other part of it is computed."""
    text = """g (int64[24] i, float[40, 16] w, float[16, 16] v) => (y) {
        x = Gather (w, i) a = MatMul (x, v) b = Gelu (a) c = MatMul (b, v) d = Gelu (c)
        t = Transpose (w) y = MatMul (d, t)
    }"""
    training = gt.grad(parse(text, "w v"), loss="ce:y")
    again = gt.recompute(training, name, kernels=kernels)
    path = tmp_path / "again.onnx"
    gt.save(again.model, path, barrier=True)

    planned_for = gt.plan(again.model, kernels=kernels).peak
    assert again.plan.peak == planned_for == gt.plan(gt.load(path), kernels=kernels).peak
