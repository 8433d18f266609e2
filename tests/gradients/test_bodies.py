"""Gradients of subgraphs: what forward hands over, what is refused, and gradients of gradients."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, gradients, parse, stock

import gradtool as gt
from gradtool.ops.driver import Offenders

X = floats(4, 3)
HALF = """half = Constant <value_float = 0.5> () on = Constant <value = bool {1}> ()"""
DROPOUT_IN_IF = f"""
g (float[4, 3] x, float[3, 3] w, float limit) => (float[4, 3] y) {{
   {HALF}
   m = ReduceMax <keepdims = 0> (x)
   c = Greater (m, limit)
   y = If (c) <
      then_branch = t () => (a) {{ q = MatMul (x, w) a = Dropout (q, half, on) }},
      else_branch = e () => (b) {{ b = MatMul (x, w) }}
   >
}}"""
DROPOUT_IN_LOOP = f"""
g (float[4, 3] x, float[3, 3] w) => (float[5, 4, 3] y) {{
   {HALF}
   n = Constant <value_int = 5> ()
   y = Loop (n, on) <body = body (int64 i, bool c) => (c2, r) {{
      c2 = Identity (c)
      q = MatMul (x, w)
      r = Dropout (q, half, on)
   }}>
}}"""


@pytest.mark.parametrize("engine", ["gradtool", "onnxruntime"])
@pytest.mark.parametrize(
    ("text", "feeds"),
    [(DROPOUT_IN_IF, {"limit": np.asarray(np.float32(-9))}), (DROPOUT_IN_LOOP, {})],
    ids=["if", "loop"],
)
def test_the_mask_is_that_of_forward(text, feeds, engine):
    training = gt.grad(parse(text, "w"), loss="sum")
    if engine == "gradtool":
        result = gt.run(training, {"x": X, **feeds})
        y, dw = result.outputs["y"], result.gradients["w"]
    else:
        pytest.importorskip("onnxruntime")
        found = stock(training.model, x=X, **feeds)
        y, dw = found["y"], found["w_grad"]
    scale = np.where(y == 0, 0, 2).reshape(-1, 4, 3).sum(0)

    assert 0 < np.mean(y == 0) < 1
    np.testing.assert_allclose(dw, X.T @ scale, rtol=1e-5, atol=1e-5)  # terms may cancel


def test_operators_without_a_gradient_are_named_in_and_outside_of_bodies():
    text = """
    g (float[4, 3] x, float[3, 3] w) => (float[4, 3] y) {
       m = ReduceMax <keepdims = 0> (x)
       c = Cast <to = 9> (m)
       h = MatMul (x, w)
       z = If (c) <
          then_branch = t () => (a) { a = test.Odd (h) },
          else_branch = e () => (b) { b = Tanh (h) }
       >
       y = test.Even (z)
    }"""
    from onnx_shape_inference import registry

    for name in ("Odd", "Even"):
        registry.register("test", name)(
            lambda context, node: context.set_shape_and_dtype(
                node.outputs[0], node.inputs[0].shape, node.inputs[0].dtype
            )
        )
    with pytest.raises(Offenders) as caught:
        gt.grad(parse(text, "w"), loss="sum")

    assert "test::Even" in {row.op for row in caught.value.rows}


LOOP = """
g (float[4, 3] h0, float[3, 3] w{extra}) => (float[4, 3] y) {{
   {count}
   go = Constant <value = bool {{1}}> ()
   y = Loop (n, go, h0) <body = body (int64 i, bool c, float[4, 3] h) => (c2, h2) {{
      c2 = Identity (c)
      q = MatMul (h, w)
      h2 = Tanh (q)
   }}>
}}"""
IF = """
g (float[4, 3] h0, float[3, 3] w, float limit) => (float[4, 3] y) {
   m = ReduceMax <keepdims = 0> (h0)
   c = Greater (m, limit)
   y = If (c) <
      then_branch = t () => (a) { q = MatMul (h0, w) a = Tanh (q) },
      else_branch = e () => (b) { r = MatMul (h0, w) s = MatMul (r, w) b = Sigmoid (s) }
   >
}"""
SCAN = """
g (float[4, 3] h0, float[5, 4, 3] xs, float[3, 3] w) => (float[4, 3] y) {
   y = Scan (h0, xs) <num_scan_inputs = 1,
      body = body (float[4, 3] h, float[4, 3] x) => (h2) {
         q = MatMul (h, w)
         s = Add (q, x)
         h2 = Tanh (s)
      }>
}"""
TWICE = {
    "loop": (LOOP.format(extra="", count="n = Constant <value_int = 3> ()"), {}),
    "counted": (LOOP.format(extra=", int64 n", count=""), {"n": np.asarray(3)}),
    "then": (IF, {"limit": np.asarray(np.float32(-9))}),
    "else": (IF, {"limit": np.asarray(np.float32(9))}),
    "scan": (SCAN, {"xs": floats(5, 4, 3, seed=2)}),
}


@pytest.mark.parametrize("name", TWICE)
def test_the_gradient_of_a_gradient(name):
    """Against differences of the first gradient, and in stock onnxruntime."""
    pytest.importorskip("onnxruntime")
    text, feeds = TWICE[name]
    feeds = {"h0": X, **feeds}
    model = parse(text, "w")
    once = gt.grad(model, loss="sum", wrt=["w"])
    again = gt.grad(once, loss="sum:w_grad", wrt=["w"])
    found = gradients(again, **feeds)["w"]
    value = model.graph.initializers["w"]
    start = value.const_value.numpy()
    direction = floats(3, 3, seed=9)

    def slope(step: float) -> float:
        value.const_value = ir.Tensor(start + np.float32(step) * direction, name="w")
        made = gt.grad(model, loss="sum", wrt=["w"])
        return float(gradients(made, **feeds)["w"].astype(np.float64).sum())

    expected = (slope(1e-2) - slope(-1e-2)) / 2e-2

    np.testing.assert_allclose(np.vdot(found, direction), expected, rtol=2e-2, atol=2e-2)
    theirs = stock(again.model, **feeds)[again.gradients["w"]]
    np.testing.assert_allclose(found, theirs, rtol=1e-3, atol=1e-4)


def test_a_loop_through_which_no_gradient_flows_gives_zeros():
    training = gt.grad(
        parse("""g (float[3] x, float[4] s) => (l) {
            y = Scan <num_scan_inputs = 1, body = b (float[3] c, float u) => (float[3] n) {
                n = Sin (c)
            }> (x, s)
            l = ReduceSum <keepdims = 0> (y)
        }""", "s"),
        wrt=["s"],
    )  # fmt: skip

    assert training.zeros == ("s",)
    assert not gt.run(training, {"x": np.ones(3, np.float32)}).gradients["s"].any()
