"""Recurrent operators and attention: kinks, rows without a key, PyTorch, half precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cases import Case, Floats, floats
from checkers import build, differentiated, evaluate
from graphs import floats as random
from graphs import gradients, parse, stock

import gradtool as gt
from gradtool.ops import kernels as registry
from gradtool.ops.shared.call import call, spec_of

GRAD = "ai.gradtool::FusedAttentionGrad"
INF = math.inf


def run(op: str, inputs: list[Any], outputs: list[Any], **attributes: Any) -> list[Any]:
    domain, _, name = op.rpartition("::")
    found = registry.find(domain, name, 24)
    return call(np, found, inputs, [None if o is None else spec_of(o) for o in outputs], attributes)


@pytest.mark.parametrize(
    ("name", "parameters", "points", "slopes"),
    [
        ("Relu", (), [0.0, -0.0], [0, 0]),
        ("LeakyRelu", (0.25,), [0.0], [0.25]),
        ("ThresholdedRelu", (0.5,), [0.5, 0.75], [0, 1]),
        ("Elu", (0.5,), [0.0], [0.5]),
        ("HardSigmoid", (0.25, 0.5), [-2.0, 2.0, 0.0], [0, 0, 0.25]),
        ("Softsign", (), [0.0], [1]),
        ("Affine", (2.0, 1.0), [0.0], [2]),
    ],
)
def test_slopes_of_activations_at_their_kinks(name, parameters, points, slopes):
    kinds = ("activation_alpha", "activation_beta")
    options = {kind: [p] for kind, p in zip(kinds, parameters, strict=False)}
    _, dx = activated(points, activations=[name], **options)

    assert dx == slopes


def activated(points: list[float], **options: Any) -> tuple[list[float], list[float]]:
    """`(y, dy/dx)` of an RNN of one time that shows the activation of its input."""
    inputs = floats(1, len(points), 1), floats(1, 1, 1), floats(1, 1, 1)
    model, feeds, names = differentiated(Case("RNN", inputs, options | {"hidden_size": 1}, 1, 22))
    one = np.ones((1, 1, 1))
    feeds |= {"x0": np.reshape(points, (1, -1, 1)), "x1": one, "x2": 0 * one}
    found = evaluate(model, feeds | {"c_y0": np.ones_like(feeds["c_y0"])})
    return found["y0"].ravel().tolist(), found[names[0]].ravel().tolist()


def test_the_bound_of_a_clip_belongs_to_the_inside():
    points = [0.5, -0.5, 0.5 + 1e-9, 2.0]
    y, dx = activated(points, activations=["Affine"], clip=0.5)

    assert y == [0.5, -0.5, 0.5, 0.5]
    assert dx == [1, 1, 0, 0]


def test_the_final_state_of_an_empty_sequence_is_zero():
    rng = np.random.default_rng(0)
    x, w, r, h = (rng.normal(size=s) for s in ((3, 2, 2), (1, 4, 2), (1, 4, 1), (1, 2, 1)))
    lens = np.asarray([0, 3], np.int32)
    shown = [np.empty((3, 1, 2, 1)), h, h]
    y, y_h, y_c = run("LSTM", [x, w, r, None, lens, h, h], shown, hidden_size=1)

    assert y[:, 0, 0].ravel().tolist() == [0, 0, 0]
    assert y_h[0, 0, 0] == y_c[0, 0, 0] == 0
    assert y_h[0, 1, 0] == y[2, 0, 1, 0]


def test_hidden_states_that_nobody_asked_for_are_asked_for():
    text = """
    g (float[3, 2, 2] x, float[1, 4, 2] w, float[1, 4, 1] r) => (float[1, 2, 1] last) {
       , last = LSTM <hidden_size = 1> (x, w, r)
    }
    """
    model = parse(text)
    training = gt.grad(model, loss="sum:last", wrt=[], input_grad=["x", "w", "r"])
    feeds = {"x": random(3, 2, 2), "w": random(1, 4, 2), "r": random(1, 4, 1)}
    expected = stock(training.model, **feeds)

    for name, found in gradients(training, **feeds).items():
        np.testing.assert_allclose(found, expected[training.gradients[name]], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("additive", [False, True])
def test_a_query_that_may_see_no_key_is_zero_and_passes_nothing_on(additive):
    rng = np.random.default_rng(0)
    q, k, v, dy = (rng.normal(size=(1, 1, 2, 4)) for _ in range(4))
    mask: Any = np.asarray([[True, False], [False, False]])
    mask = np.where(mask, 0.0, -INF) if additive else mask
    (y,) = run("Attention", [q, k, v, mask], [q])
    outputs = [q, k, v, *([mask] if additive else [])]
    inputs = [q, k, v, None, dy, None, mask]
    of = [0] if additive else []
    dq, dk, dv, *dmask = run(GRAD, inputs, outputs, safe=1, of=of)

    assert y[0, 0, 1].tolist() == dq[0, 0, 1].tolist() == [0] * 4
    assert y[0, 0, 0].tolist() == v[0, 0, 0].tolist()
    assert dv[0, 0].tolist() == [dy[0, 0, 0].tolist(), [0] * 4]
    assert all(np.isfinite(d).all() for d in (dq, dk, dv, *dmask))


def test_scores_too_large_for_exp_are_no_matter():
    q = np.full((1, 1, 1, 1), 1e4, np.float32)
    k = np.asarray([1.0, -1.0, 1.0], np.float32).reshape(1, 1, 3, 1)
    (y,) = run("Attention", [q, k, k], [q], scale=1.0)
    dq, dk, dv = run(GRAD, [q, k, k, None, q], [q, k, k], scale=1.0)

    assert y.ravel().tolist() == [1]
    assert dq.ravel().tolist() == [0]
    assert dv.ravel().tolist() == [5e3, 0, 5e3]
    assert np.isfinite(dk).all()


@pytest.mark.parametrize("window", [(1, -1), (-1, 1), (2, 0), (0, 0)])
@pytest.mark.parametrize("causal", [0, 1])
def test_a_window_is_a_mask(window, causal):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 2, n, 4)) for n in (5, 6, 6))
    distance = np.arange(6)[None, :] - np.arange(5)[:, None]
    left, right = window
    mask = np.ones((5, 6), bool)
    mask &= (distance >= -left) if left >= 0 else mask
    mask &= (distance <= right) if right >= 0 else mask
    mask &= (distance <= 0) if causal else mask
    options = {"left_window_size": left, "right_window_size": right, "is_causal": causal}
    windowed, masked = (
        run("Attention", [q, k, v], [q], **options),
        run("Attention", [q, k, v, mask], [q]),
    )
    inputs = [q, k, v, None, q]
    found = run(GRAD, inputs, [q, k, v], **options)
    expected = run(GRAD, [*inputs, None, mask], [q, k, v])

    for a, b in zip((*windowed, *found), (*masked, *expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.extra
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_gradients_are_those_of_torch(kind):
    torch = pytest.importorskip("torch")
    gates, order = {"LSTM": (4, [0, 3, 1, 2]), "GRU": (3, [1, 0, 2]), "RNN": (1, [0])}[kind]
    net = getattr(torch.nn, kind)(3, 4, bidirectional=True).double()
    sides = ("l0", "l0_reverse")

    def stacked(name):
        weights = [getattr(net, f"{name}_{s}").detach().numpy() for s in sides]
        return np.stack(
            [a.reshape(gates, 4, *a.shape[1:])[order].reshape(a.shape) for a in weights]
        )

    w, r = stacked("weight_ih"), stacked("weight_hh")
    b = np.concatenate([stacked("bias_ih"), stacked("bias_hh")], axis=1)
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    output, _ = net(x)
    dy = torch.randn_like(output)
    output.backward(dy)

    options = {"direction": "bidirectional", "hidden_size": 4}
    options |= {"linear_before_reset": 1} if kind == "GRU" else {}
    y = np.empty((5, 2, 2, 4))
    inputs = [x.detach().numpy(), w, r, b]
    (y, *_) = run(kind, inputs, [y, *[None] * (2 if kind == "LSTM" else 1)], **options)
    shown = dy.numpy().reshape(5, 2, 2, 4).swapaxes(1, 2)
    absent = [None] * (4 if kind == "LSTM" else 2)
    inputs += [*absent, y, np.ascontiguousarray(shown)]
    outputs = [x.detach().numpy(), w, r, b, *[None] * (2 if kind == "LSTM" else 1)]
    dx, dw, *_ = run(f"ai.gradtool::{kind}Grad", inputs, outputs, **options)
    expected = net.weight_ih_l0_reverse.grad.numpy()
    expected = expected.reshape(gates, 4, 3)[order].reshape(-1, 3)

    np.testing.assert_allclose(
        y.swapaxes(1, 2).reshape(5, 2, 8), output.detach().numpy(), rtol=1e-10
    )
    np.testing.assert_allclose(dx, x.grad.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(dw[1], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.extra
@pytest.mark.parametrize("causal", [False, True])
def test_attention_gradients_are_those_of_torch(causal):
    torch = pytest.importorskip("torch")
    q, k, v, dy = (torch.randn(2, 3, 7, 4, dtype=torch.float64) for _ in range(4))
    for a in (q, k, v):
        a.requires_grad_()
    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).backward(dy)
    inputs = [a.detach().numpy() for a in (q, k, v)]
    found = run(
        GRAD, [*inputs, None, dy.numpy()], inputs,
        is_causal=int(causal),
    )  # fmt: skip

    for a, b in zip((q, k, v), found, strict=True):
        np.testing.assert_allclose(b, a.grad.numpy(), rtol=1e-9, atol=1e-12)


HALVES = [
    Case("LSTM", (floats(3, 2, 4), floats(1, 12, 4), floats(1, 12, 3)), {"hidden_size": 3}, 3, 22),
    Case("GRU", (floats(3, 2, 4), floats(1, 9, 4), floats(1, 9, 3)), {"hidden_size": 3}, 2, 22),
    Case("Attention", (floats(2, 2, 3, 4), floats(2, 1, 5, 4), floats(2, 1, 5, 4)), {}, 1, 23),
    Case("Attention", (*[Floats((2, 2, 3, 4))] * 3, floats(3, 3)), {"is_causal": 1}, 1, 23),
    Case("RotaryEmbedding", (floats(2, 2, 3, 4), floats(2, 3, 2), floats(2, 3, 2)), {}, 1, 23),
]


@pytest.mark.parametrize("case", HALVES, ids=lambda c: c.id)
def test_half_precision_is_single_precision_rounded_at_the_end(case):
    model, feeds, names = differentiated(case, np.float16)
    narrow = evaluate(model, feeds)
    wide_model, _, wide_names = differentiated(case, np.float32)
    wide = evaluate(wide_model, {n: a.astype(np.float32) for n, a in feeds.items()})

    for mine, other in zip((*names, "y0"), (*wide_names, "y0"), strict=True):
        np.testing.assert_allclose(narrow[mine], wide[other], rtol=4e-3, atol=4e-3)


def test_attention_in_half_precision_agrees_with_onnxruntime():
    ort = pytest.importorskip("onnxruntime")
    import onnx_ir as ir

    model, feeds = build(HALVES[2], np.float16)
    ours = evaluate(model, feeds)["y0"]
    proto = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(proto, providers=["CPUExecutionProvider"])

    np.testing.assert_allclose(ours, session.run(None, feeds)[0], rtol=2e-3, atol=2e-3)
