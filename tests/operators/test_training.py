"""Steps of optimizers against their formulas, and in place of large arrays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from checkers import check_memory
from whole import verified

import gradtool as gt
from gradtool.graph.families import split_name
from gradtool.ops import kernels as kernel
from gradtool.ops.shared.call import call, spec_of

X, G, V = (np.random.default_rng(s).standard_normal(40000).astype(np.float32) for s in range(3))
H = np.abs(V) + np.float32(0.1)
RATE = np.float32(0.05)


def run(op: str, count: int, *tensors: np.ndarray, outputs: int, **attributes) -> list[np.ndarray]:
    found = kernel.find(*split_name(f"ai.onnx.preview.training::{op}"), 1)
    out = [spec_of(tensors[0])] * outputs
    return call(np, found, [np.asarray(RATE), np.asarray(count), *tensors], out, attributes)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("count", [0, 7])
def test_adam(count):
    x, v, h = run("Adam", count, X, G, V, H, outputs=3, alpha=0.8, beta=0.95,
                  norm_coefficient=0.1, norm_coefficient_post=0.2)  # fmt: skip
    g = G + 0.1 * X
    new_v, new_h = 0.8 * V + 0.2 * g, 0.95 * H + 0.05 * g * g
    rate = RATE if count == 0 else RATE * np.sqrt(1 - 0.95**count) / (1 - 0.8**count)

    close(v, new_v)
    close(h, new_h)
    close(x, 0.8 * (X - rate * new_v / (np.sqrt(new_h) + 1e-6)))


@pytest.mark.parametrize("count", [0, 7])
def test_adagrad(count):
    x, h = run("Adagrad", count, X, G, H, outputs=2, decay_factor=0.1, norm_coefficient=0.1)
    g = G + 0.1 * X

    close(h, H + g * g)
    close(x, X - RATE / (1 + count * 0.1) * g / (np.sqrt(H + g * g) + 1e-6))


@pytest.mark.parametrize("count", [0, 7])
@pytest.mark.parametrize("mode", ["standard", "nesterov"])
def test_momentum(mode, count):
    x, v = run("Momentum", count, X, G, V, outputs=2, alpha=0.9, beta=0.5, mode=mode,
               norm_coefficient=0.1)  # fmt: skip
    g = G + 0.1 * X
    new = 0.9 * V + (0.5 if count else 1) * g

    close(v, new)
    close(x, X - RATE * (new if mode == "standard" else g + 0.9 * new))


@pytest.mark.parametrize(
    ("op", "tensors", "outputs", "attributes"),
    [
        ("Adam", (X, G, V, H), 3, {}),
        ("Adagrad", (X, G, H), 2, {}),
        ("Momentum", (X, G, V), 2,
         {"alpha": 0.9, "beta": 1.0, "mode": "nesterov", "norm_coefficient": 0.0}),
    ],
)  # fmt: skip
def test_a_step_takes_two_blocks(op, tensors, outputs, attributes):
    inputs = [np.asarray(RATE), np.asarray(1), *tensors]
    check_memory(f"ai.onnx.preview.training::{op}", inputs, [spec_of(X)] * outputs, **attributes)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize(
    ("op", "state"),
    [
        ("Adam <alpha = 0.8, beta = 0.9, norm_coefficient = 0.1, norm_coefficient_post = 0.2>",
         "v h"),
        ("Adagrad <decay_factor = 0.1, norm_coefficient = 0.01>", "h"),
        ('Momentum <alpha = 0.9, beta = 0.95, mode = "standard", norm_coefficient = 0.1>', "v"),
        ('Momentum <alpha = 0.9, beta = 0.95, mode = "nesterov", norm_coefficient = 0.1>', "v"),
    ],
)  # fmt: skip
def test_a_step_has_gradients(op, state, count):
    """By everything but the number of the step, as stock onnxruntime computes them too."""
    pytest.importorskip("onnxruntime")
    names = state.split()
    more = ", ".join(f"float[3, 4] {n}" for n in names)
    made = ", ".join(f"{n}2" for n in names)
    text = f"""
    <ir_version: 10, opset_import: ["" : 20, "ai.onnx.preview.training" : 1]>
    m (float r, int64 t, float[3, 4] x, float[3, 4] g, {more}) => (float[3, 4] y) {{
       z, {made} = ai.onnx.preview.training.{op} (r, t, x, g, {", ".join(names)})
       y = Sum (z, {made})
    }}"""
    rng = np.random.default_rng(0)
    feeds = {k: rng.uniform(0.1, 1, (3, 4)).astype(np.float32) for k in ("x", "g", *names)}
    training = gt.grad(ir.from_onnx_text(text), loss="sum", wrt=["r", "x", "g", *names])

    verified(training, feeds | {"r": np.asarray(RATE), "t": np.asarray(count)})
