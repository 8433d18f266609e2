"""Scan on our kernels: the body runs within the workspace of the node."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx_ir as ir
import pytest
from graphs import parse, stock

from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import planned
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.flatten import flatten

BODY = """
      (float[2, 3] a, float[2, 3] b, float[2, 4] now) => (next_a, next_b, seen, total) {
         part = MatMul (now, w)
         next_a = Identity (b)
         sum = Add (a, part)
         next_b = Tanh (sum)
         seen = Mul (next_b, part)
         total = ReduceSum <keepdims = 0> (sum)
      }
"""
CROSSED = """
      (float[2, 3] a, float[2, 3] b, float[2, 4] now) => (c, d, e) {
         c = Identity (b)
         d = Identity (a)
         e = Identity (now)
      }
"""


def graph(body: str, outputs: str, x: str, options: str = "") -> str:
    return f"""
    g (float[2, 3] first, float[2, 3] second, float[{x}] x) => ({outputs})
    <float[4, 3] w = {{1, 2, 3, -1, 0, 1, 0.5, 0.25, -2, 1, -1, 0}}> {{
       {outputs.replace("float[] ", "")} = Scan <num_scan_inputs = 1{options}, body = b {body}>
          (first, second, x)
    }}
    """


CASES = {
    "forward": (BODY, "ya, yb, seen, total", "5,2,4", ""),
    "reversed": (
        BODY, "ya, yb, seen, total", "5,2,4",
        ", scan_input_directions = [1], scan_output_directions = [1, 0]",
    ),
    "axes": (
        BODY, "ya, yb, seen, total", "2,5,4", ", scan_input_axes = [1], scan_output_axes = [-1, 0]"
    ),
    "crossed states": (CROSSED, "ya, yb, seen", "3,2,4", ""),
}  # fmt: skip


def executor(text: str, feeds: dict[str, np.ndarray]) -> Executor:
    model = parse(text)
    made = Executor(planned(model, {}), open_device("cpu"), parameters_of(model))
    for name, array in feeds.items():
        made.set_input(name, array)
    return made


def arrays(x: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"first": (2, 3), "second": (2, 3), "x": tuple(map(int, x.split(",")))}
    return {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}


@pytest.mark.parametrize("name", CASES)
def test_scan_agrees_with_onnxruntime(name):
    ort = pytest.importorskip("onnxruntime")
    body, outputs, x, options = CASES[name]
    text, feeds = graph(body, outputs, x, options), arrays(x)
    made = executor(text, feeds)
    made.step()
    session = ort.InferenceSession(
        ir.to_proto(parse(text)).SerializeToString(), providers=["CPUExecutionProvider"]
    )

    for output, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(made.outputs()[output.name], expected, rtol=1e-5, atol=1e-6)


OPEN = {
    "Loop": """
    g (float[1] h0, float[1] k0) => (float[5] seen) {
       n = Constant <value_int = 5> ()
       go = Constant <value = bool {1}> ()
       h, k, seen = Loop (n, go, h0, k0)
       <body = b (int64 i, bool c, float[a] h1, float[b] k1) => (c2, k1, h2, s) {
          c2 = Identity (c)
          h2 = Sin (h1)
          s = ReduceSum <keepdims = 0> (h2)
       }>
    }""",
    "Scan": """
    g (float[1] h0, float[1] k0, float[5, 1] xs) => (float[5] seen) {
       h, k, seen = Scan <num_scan_inputs = 1,
          body = b (float[a] h1, float[b] k1, float[1] x) => (k2, h2, s) {
             k2 = Identity (k1)
             h2 = Add (h1, x)
             s = ReduceSum <keepdims = 0> (h2)
       }> (h0, k0, xs)
    }""",
}


@pytest.mark.parametrize("op", OPEN)
def test_states_of_unknown_size_change_places_in_a_node_of_known_ones(op):
    """That is what inference leaves where a body adds to its state what it can't size."""
    pytest.importorskip("onnxruntime")
    model = parse(OPEN[op])
    body = model.graph.node(-1).attributes["body"].as_graph()
    for value in (*body.inputs[-3:], *body.outputs[:-1]):
        if value.shape is not None and len(value.shape) == 1 and value.name != "x":
            value.shape = ir.Shape([f"{value.name}_size"])
    made = Executor(no_recompute(flatten(model)), open_device("cpu"), parameters_of(model))
    rng = np.random.default_rng(0)
    shapes = {"h0": (1,), "k0": (1,), "xs": (5, 1)}
    feeds = {v.name: rng.random(shapes[v.name], np.float32) for v in model.graph.inputs}
    for name, array in feeds.items():
        made.set_input(name, array)
    for _ in range(2):
        made.step()
        (found,) = made.outputs().values()

        np.testing.assert_allclose(found, stock(model, **feeds)["seen"], rtol=1e-6)
    assert model.graph.node(-1).outputs[-1].shape.is_static()


def test_states_stay_as_they_are_where_there_is_nothing_to_scan():
    made = executor(graph(BODY, "ya, yb, seen, total", "0,2,4"), feeds := arrays("0,2,4"))
    made.step()

    assert np.array_equal(made.outputs()["ya"], feeds["first"])
    assert made.outputs()["seen"].shape == (0, 2, 3)


def test_a_second_step_gives_the_same():
    body, outputs, x, options = CASES["forward"]
    made = executor(graph(body, outputs, x, options), arrays(x))
    made.step()
    before = made.outputs()
    made.step()

    assert all(np.array_equal(before[name], value) for name, value in made.outputs().items())


def test_the_body_takes_no_memory_but_the_workspace_of_the_node():
    text = """
    g (float[256, 64] first, float[8, 256, 64] x) => (y, seen) {
       y, seen = Scan <num_scan_inputs = 1, body = b (float[256, 64] h, float[256, 64] now)
             => (next, shown) {
          sum = Add (h, now)
          next = Tanh (sum)
          shown = Mul (next, now)
       }> (first, x)
    }
    """
    rng = np.random.default_rng(0)
    feeds = {
        "first": rng.normal(size=(256, 64)).astype(np.float32),
        "x": rng.normal(size=(8, 256, 64)).astype(np.float32),
    }
    made = executor(text, feeds)
    made.step()
    tracemalloc.start()
    made.step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak <= 65536


LOOP = """
g (float[256, 64] first) => (float[256, 64] y, float[8, 256, 64] seen) {
   n = Constant <value_int = 8> ()
   go = Constant <value = bool {1}> ()
   y, seen = Loop (n, go, first) <body = b (int64 i, bool c, float[256, 64] h)
         => (c2, next, shown) {
      c2 = Identity (c)
      square = Mul (h, h)
      next = Tanh (square)
      shown = Mul (next, h)
   }>
}"""
IF = """
g (float[256, 64] first) => (float[256, 64] y) {
   m = ReduceMax <keepdims = 0> (first)
   zero = Constant <value_float = 0> ()
   c = Greater (m, zero)
   y = If (c) <
      then_branch = t () => (a) { p = Mul (first, first) a = Tanh (p) },
      else_branch = e () => (b) { q = Exp (first) r = Mul (q, q) b = Add (r, q) }
   >
}"""


@pytest.mark.parametrize("text", [LOOP, IF], ids=["loop", "if"])
def test_bodies_and_branches_run_in_the_arena(text):
    first = np.random.default_rng(0).normal(size=(256, 64)).astype(np.float32)
    made = executor(text, {"first": first})
    made.step()
    tracemalloc.start()
    made.step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert made.dynamic.peak == 0
    assert peak <= 98304
