"""Bodies count as often as they run."""

from __future__ import annotations

import pytest
from onnx import parser

import gradtool as gt
from gradtool.ops import costs
from gradtool.program import Program, Step

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
LOOP = """
g (float[4] x, bool more) => (float[4] y, float[3,4] ys)
<int64 n = {3}, bool yes = {1}> {
  y, ys = Loop (COUNT, yes, x) <body = b (int64 i, bool go, float[4] s)
    => (bool on, float[4] t, float[4] u) {
      on = CONDITION
      t = Mul (s, s)
      u = Exp (t)
  }>
}
"""


def program(tmp_path, text: str) -> Program:
    import onnx

    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(HEADER + text), path)
    return gt.plan(gt.load(path)).program


def the(found: Program, op: str) -> Step:
    (step,) = (s for s in found.steps if s.op == op)
    return step


def test_a_loop_of_known_length_counts_its_body_that_often(tmp_path):
    text = LOOP.replace("COUNT", "n").replace("CONDITION", "Identity (go)")
    step = the(program(tmp_path, text), "Loop")

    assert step.flops == 3 * (4 + 4)
    assert step.moved == 16 + 16 + 48 + 3 * (3 * 16 + 2 * 16)


def test_a_loop_that_data_may_end_is_unknown(tmp_path):
    text = LOOP.replace("COUNT", "n").replace("CONDITION", "Equal (i, i)")

    assert the(program(tmp_path, text), "Loop").flops is None


def test_a_scan_counts_its_body_for_every_slice(tmp_path):
    text = """
    g (float[4] s, float[7,4] xs) => (float[4] t, float[7,4] ys) {
      t, ys = Scan <num_scan_inputs = 1, body = b (float[4] a, float[4] x)
        => (float[4] c, float[4] y) {
          c = Add (a, x)
          y = Mul (c, x)
      }> (s, xs)
    }
    """
    assert the(program(tmp_path, text), "Scan").flops == 7 * (4 + 4)


@pytest.mark.parametrize("branch", ["then_branch", "else_branch"])
def test_an_if_counts_its_larger_branch(tmp_path, branch):
    other = "else_branch" if branch == "then_branch" else "then_branch"
    text = f"""
    g (bool c, float[4] x) => (float[4] y) {{
      y = If (c) <{branch} = a () => (float[4] p) {{ h = Exp (x)
                                                     p = Mul (h, x) }},
                  {other} = b () => (float[4] q) {{ q = Neg (x) }}>
    }}
    """
    assert the(program(tmp_path, text), "If").flops == 2 * 4


def test_the_total_of_a_program_is_unknown_if_that_of_a_step_is(tmp_path):
    text = LOOP.replace("COUNT", "n")

    assert costs.total(program(tmp_path, text.replace("CONDITION", "Identity (go)"))) == 24
    assert costs.total(program(tmp_path, text.replace("CONDITION", "Equal (i, i)"))) is None
