"""The conventions of docs/conventions.md that the tests of the families leave out, exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import gradients, parse, stock

import gradtool as gt
from gradtool.errors import NotDifferentiable

inf, nan = float("inf"), float("nan")
DOCUMENT = Path(__file__).parents[2] / "docs" / "conventions.md"

# The point as the document names it; a graph; the inputs; the gradients of Σ y by each of them.
ROWS = [
    ("`Clip` on a bound",
     "(float[3] x) => (y) <float a = {0}, float b = {6}> { y = Clip (x, a, b) }",
     {"x": [0, 6, 7]}, {"x": [1, 1, 0]}),
    ("`PRelu(0)`", "(float[2] x, float[2] s) => (y) { y = PRelu (x, s) }",
     {"x": [0, -2], "s": [0.25, 0.25]}, {"x": [0.25, 0.25], "s": [0, -2]}),
    ("`Abs(0)`", "(float[2] x) => (y) { y = Abs (x) }", {"x": [0, -0.0]}, {"x": [0, 0]}),
    ("`Sign`", "(float[2] x) => (y) { z = Sign (x) y = Mul (z, x) }",
     {"x": [-2, 3]}, {"x": [-1, 1]}),
    ("`Floor`", "(float[2] x) => (y) { z = Floor (x) y = Mul (z, x) }",
     {"x": [1.5, 2]}, {"x": [1, 2]}),
    ("`Floor`", "(float[2] x) => (y) { z = Ceil (x) y = Mul (z, x) }",
     {"x": [1.5, 2]}, {"x": [2, 2]}),
    ("`Floor`", "(float[2] x) => (y) { z = Round (x) y = Mul (z, x) }",
     {"x": [1.5, 2.5]}, {"x": [2, 2]}),
    ("`Floor`",
     "(float[2] x) => (y) { i = Cast <to = 7> (x) z = Cast <to = 1> (i) y = Mul (z, x) }",
     {"x": [1.5, -2.5]}, {"x": [1, -2]}),
    ("`Max`, `Min`", "(float[1] x, float[1] z, float[1] w) => (y) { y = Max (x, z, w) }",
     {"x": [1], "z": [1], "w": [1]}, {"x": [1 / 3], "z": [1 / 3], "w": [1 / 3]}),
    ("`ReduceMax`, `ReduceMin`", "(float[2, 2] x) => (y) { y = ReduceMin (x) }",
     {"x": [[1, 1], [2, 1]]}, {"x": [[1 / 3, 1 / 3], [0, 1 / 3]]}),
    ("`TopK`", "(float[3] x) => (y) <int64[1] k = {1}> { y, i = TopK (x, k) }",
     {"x": [2, 2, 2]}, {"x": [1, 0, 0]}),
    ("`MaxPool`", "(float[1, 1, 4] x) => (y) { y = MaxPool <kernel_shape = [3]> (x) }",
     {"x": [[[5, 5, 5, 1]]]}, {"x": [[[1, 1, 0, 0]]]}),
    ("`Sqrt(0)`", "(float[1] x) => (y) { y = Sqrt (x) }", {"x": [0]}, {"x": [inf]}),
    ("`Log(-1)`", "(float[1] x) => (y) { y = Log (x) }", {"x": [-1]}, {"x": [-1]}),
    ("`ReduceL2`", "(float[2] x) => (y) { y = ReduceL2 (x) }", {"x": [0, 0]}, {"x": [0, 0]}),
    ("`ReduceL2`", "(float[1, 2] x) => (y) { y = LpNormalization <axis = 1> (x) }",
     {"x": [[0, 0]]}, {"x": [[0, 0]]}),
    ("`Pow(0, 0)`", "(float[1] x, float[1] e) => (y) { y = Pow (x, e) }",
     {"x": [0], "e": [0]}, {"x": [0], "e": [0]}),
    ("`Pow(0, 0.5)`", "(float[2] x, float[2] e) => (y) { y = Pow (x, e) }",
     {"x": [0, 0], "e": [0.5, -1]}, {"x": [inf, -inf], "e": [0, -inf]}),
    ("`Pow(-2, 2)`", "(float[1] x, float[1] e) => (y) { y = Pow (x, e) }",
     {"x": [-2], "e": [2]}, {"x": [-4], "e": [nan]}),
    ("`a / 0`", "(float[2] a, float[2] b) => (y) { y = Div (a, b) }",
     {"a": [1, 0], "b": [0, 0]}, {"a": [inf, inf], "b": [-inf, nan]}),
    ("`Where(x > 0, Log(x), 0)`",
     "(float[2] x) => (y) <float z = {0}> { g = Greater (x, z) l = Log (x) y = Where (g, l, z) }",
     {"x": [0, 2]}, {"x": [nan, 0.5]}),
    ("`ReduceProd`, `CumProd`", "(float[3] x) => (y) { y = ReduceProd (x) }",
     {"x": [0, 2, 3]}, {"x": [6, 0, 0]}),
    ("`Softmax(1000)`", "(float[1, 3] x, float[1, 3] c) => (y) { s = Softmax (x) y = Mul (s, c) }",
     {"x": [[1000, 0, -inf]], "c": [[1, 2, 3]]}, {"x": [[0, 0, 0]]}),
    ("`Softmax(1000)`",
     "(float[2] x) => (y) { y = Sigmoid (x) }", {"x": [1000, -1000]}, {"x": [0, 0]}),
    ("`Softmax(1000)`",
     "(float[2] x) => (y) { y = Softplus (x) }", {"x": [1000, -1000]}, {"x": [1, 0]}),
    ("a row of only -inf",
     "(float[1, 2] x, float[1, 2] c) => (y) { s = Softmax (x) y = Mul (s, c) }",
     {"x": [[-inf, -inf]], "c": [[1, 2]]}, {"x": [[nan, nan]]}),
    ("`Mod`", "(float[3] a, float[3] b) => (y) { y = Mod <fmod = 1> (a, b) }",
     {"a": [7, -7, 7], "b": [2, 2, -2]}, {"a": [1, 1, 1], "b": [-3, 3, 3]}),
    ("NaN as an input", "(float[1] x) => (y) { y = Relu (x) }", {"x": [nan]}, {"x": [1]}),
    ("NaN as an input", "(float[2] x, float[2] z) => (y) { y = Max (x, z) }",
     {"x": [nan, 1], "z": [1, nan]}, {"x": [1, 0], "z": [0, 1]}),
    ("NaN as an input",
     "(float[2] x) => (y) { y = ReduceMax (x) }", {"x": [nan, 1]}, {"x": [nan, nan]}),
    ("`Gather` with repeated indices",
     "(float[3] x) => (y) <int64[3] i = {1, 1, -1}> { y = Gather (x, i) }",
     {"x": [1, 2, 3]}, {"x": [0, 2, 1]}),
    ("a random generator",
     "(float[2] x) => (y) { r = RandomNormalLike <seed = 3.0> (x) z = Sub (r, r) y = Add (x, z) }",
     {"x": [1, 2]}, {"x": [1, 1]}),
    ("empty and 0-d tensors", "(float[0, 3] x, float w) => (y) { y = Mul (x, w) }",
     {"x": np.zeros((0, 3)), "w": 2.0}, {"x": np.zeros((0, 3)), "w": 0}),
]  # fmt: skip


def taken(body, feeds, wrt):
    model = parse(f"g {body}")
    training = gt.grad(model, loss="sum:y", wrt=list(wrt))
    arrays = {k: np.asarray(v, np.float32) for k, v in feeds.items()}
    return training, arrays


@pytest.mark.parametrize(("body", "feeds", "expected"), [r[1:] for r in ROWS], ids=str)
def test_a_row_of_the_table_holds(body, feeds, expected):
    training, arrays = taken(body, feeds, expected)
    with np.errstate(all="ignore"):
        found = gradients(training, **arrays)

    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], np.asarray(value, np.float32))


@pytest.mark.parametrize(
    ("body", "feeds", "expected"), [r[1:] for r in ROWS if "Random" not in r[1]], ids=str
)
def test_a_row_holds_for_the_written_graph_in_stock_onnxruntime(body, feeds, expected):
    pytest.importorskip("onnxruntime")
    training, arrays = taken(body, feeds, expected)
    found = stock(training.model, **arrays)

    for name, value in expected.items():
        np.testing.assert_array_equal(
            found[training.gradients[name]], np.asarray(value, np.float32), err_msg=name
        )


@pytest.mark.parametrize("point", sorted({row[0] for row in ROWS}))
def test_the_document_names_every_row(point):
    assert point in DOCUMENT.read_text(encoding="utf-8")


def test_the_remainder_of_floats_takes_the_sign_of_the_divisor():
    """Without fmod: ∂/∂b = -⌊a / b⌋. The standard has it since opset 28 only."""
    model = parse("g (float[3] a, float[3] b) => (y) { q = Div (a, b) f = Floor (q) "
                  "p = Mul (f, b) y = Sub (a, p) }")  # fmt: skip
    training = gt.grad(model, loss="sum:y", wrt=["a", "b"])
    arrays = {"a": np.float32([7, -7, 7]), "b": np.float32([2, 2, -2])}
    found = gradients(training, **arrays)

    assert found["a"].tolist() == [1, 1, 1]
    assert found["b"].tolist() == [-3, 4, 4]


def test_the_gradient_of_a_constant_exponent_is_not_computed():
    """It would be NaN where the base is negative."""
    model = parse("g (float[2] x, float e) => (y) { y = Pow (x, e) }", weights="e")
    training = gt.grad(model, loss="sum:y", wrt=["x"])

    assert not any(node.op_type == "Log" for node in training.model.graph.all_nodes())


def test_gradients_that_are_zero_by_definition_are_listed():
    model = parse("g (float[2] x, float[2] w) => (y) { z = Floor (x) y = Mul (z, w) }")
    training = gt.grad(model, loss="sum:y", wrt=["x", "w"])

    assert training.zeros == ("x",)


@pytest.mark.parametrize(
    "body",
    [
        "q = Cast <to = 17> (w) z = Cast <to = 1> (q)",
        "s = Constant <value_float = 0.5> () q = QuantizeLinear (w, s) z = DequantizeLinear (q, s)",
    ],
    ids=["float8", "uint8"],
)
def test_rounding_to_eight_bits_is_never_differentiated_silently(body):
    model = parse(f"g (float[2] x) => (y) <float[2] w = {{0.3, 2}}> {{ {body} y = Add (x, z) }}")

    with pytest.raises(NotDifferentiable, match=r"(?i)cast|quantize"):
        gt.grad(model, loss="sum:y", wrt=["x", "w"])


# Each point in PyTorch, with its gradients there; where they are not ours, the document says so.
ELSEWHERE = [
    (lambda t, x, z, w: t.maximum(t.maximum(x, z), w), [[1], [1], [1]], [[0.25], [0.25], [0.5]]),
    (lambda t, x, z: t.maximum(x, z), [[nan, 1], [1, nan]], [[1, 1], [1, 1]]),
    (lambda t, x: t.nn.functional.relu6(x), [[0, 6]], [[0, 0]]),
    (lambda t, x: t.nn.functional.normalize(x, dim=0), [[0, 0]], [[1e12, 1e12]]),
    (lambda t, x, a, b: t.clamp(x, a, b), [[0, 6, 7], [0] * 3, [6] * 3],
     [[1, 1, 0], [0, 0, 0], [0, 0, 1]]),
    (lambda t, x, s: t.nn.functional.prelu(x, s), [[0, -2], [0.25]], [[0.25, 0.25], [-2]]),
    (lambda t, x: t.amax(x), [[nan, 1]], [[nan, nan]]),
    (lambda t, x: t.linalg.vector_norm(x), [[0, 0]], [[0, 0]]),
    (lambda t, x, e: t.pow(x, e), [[0, 0, 0, -2], [0, 0.5, -1, 2]],
     [[0, inf, -inf, -4], [0, 0, -inf, nan]]),
    (lambda t, a, b: t.div(a, b), [[1, 0], [0, 0]], [[inf, inf], [-inf, nan]]),
    (lambda t, a, b: t.fmod(a, b), [[7, -7, 7], [2, 2, -2]], [[1, 1, 1], [-3, 3, 3]]),
    (lambda t, a, b: t.remainder(a, b), [[7, -7, 7], [2, 2, -2]], [[1, 1, 1], [-3, 4, 4]]),
    (lambda t, x: t.relu(x), [[nan, 0]], [[1, 0]]),
    (lambda t, x: t.prod(x), [[0, 2, 3]], [[6, 0, 0]]),
]  # fmt: skip


@pytest.mark.extra
@pytest.mark.parametrize(("function", "inputs", "expected"), ELSEWHERE)
def test_pytorch_has_what_the_document_says(function, inputs, expected):
    torch = pytest.importorskip("torch")
    given = [torch.tensor(i, dtype=torch.float64, requires_grad=True) for i in inputs]
    function(torch, *given).sum().backward()

    for value, slope in zip(given, expected, strict=True):
        np.testing.assert_allclose(value.grad.numpy(), slope, rtol=1e-12)
