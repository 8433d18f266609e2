"""Outputs of control flow that nobody reads."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import floats, parse, stock

from gradtool.graph.prune import prune
from gradtool.passes.trim import trim

MODELS = {
    "if": """g (float[4, 3] x, bool c) => (float[4, 3] y) {
       p, q, r = If (c) <
          then_branch = t () => (a, b, d) { a = Exp (x) b = Tanh (x) d = Sin (b) },
          else_branch = e () => (f, h, k) { f = Log (x) h = Cos (x) k = Abs (f) }
       >
       y = Neg (q)
    }""",
    "loop": """g (float[4, 3] x, bool c) => (float[n, 4, 3] y) {
       n = Constant <value_int = 3> ()
       last, p, q, r = Loop (n, c, x) <body = b (int64 i, bool go, float[4, 3] h)
             => (go2, h2, a, b, d) {
          go2 = Identity (go) a = Exp (h) b = Tanh (h) d = Sin (b) h2 = Cos (h)
       }>
       y = Neg (q)
    }""",
    "scan": """g (float[4, 3] x, bool c) => (float[3, 4] y) {
       s, p, q, r = Scan (x, x) <num_scan_inputs = 1, scan_output_axes = [0, 1, 0],
             scan_output_directions = [0, 1, 1],
             body = b (float[4, 3] h, float[3] now) => (h2, a, b, d) {
          h2 = Cos (h) a = Exp (now) b = Tanh (now) d = Sin (b)
       }>
       y = Neg (q)
    }""",
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_not_read_goes(name):
    pytest.importorskip("onnxruntime")
    before, after = parse(MODELS[name]), parse(MODELS[name])
    feeds = {"x": floats(4, 3), "c": np.asarray(True)}

    assert trim(after) == 2
    assert not any(n.op_type in ("Exp", "Sin", "Log", "Abs") for n in after.graph.all_nodes())
    assert (stock(before, **feeds)["y"] == stock(after, **feeds)["y"]).all()


def test_outputs_that_are_read_stay():
    text = """g (float[4, 3] x, bool c) => (float[4, 3] y, float[4, 3] z) {
       y, z = If (c) <
          then_branch = t () => (a, b) { a = Exp (x) b = Tanh (x) },
          else_branch = e () => (f, h) { f = Log (x) h = Cos (x) }
       >
    }"""
    model = parse(text)

    assert trim(model) == 0
    assert prune(model) == 0


def test_a_branch_in_a_branch():
    text = """g (float[4, 3] x, bool c) => (float[4, 3] y) {
       p, y = If (c) <
          then_branch = t () => (a, b) {
             a, b = If (c) <
                then_branch = tt () => (u, v) { u = Exp (x) v = Tanh (x) },
                else_branch = te () => (w, z) { w = Log (x) z = Cos (x) }
             >
          },
          else_branch = e () => (f, h) { f = Abs (x) h = Sin (x) }
       >
    }"""
    model = parse(text)

    assert trim(model) == 2
    assert not any(n.op_type in ("Exp", "Log", "Abs") for n in model.graph.all_nodes())
