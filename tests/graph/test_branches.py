"""Ifs whose condition is known: the branch that is taken stands in their place."""

import numpy as np
from graphs import floats, gradients, parse, stock

import gradtool as gt
from gradtool.graph import branches, walk

X = floats(4, 3)
NESTED = """
g (float[4, 3] x, float[3, 3] w) => (float[4, 3] y) {
   yes = Constant <value = bool {1}> ()
   no = Constant <value = bool {0}> ()
   y = If (yes) <
      then_branch = t () => (a) {
         q = MatMul (x, w)
         a = If (no) <
            then_branch = t2 () => (b) { b = Tanh (q) },
            else_branch = e2 () => (c) { c = Exp (q) }
         >
      },
      else_branch = e () => (d) { d = Identity (x) }
   >
}"""
OPEN = """
g (float[4, 3] x, bool c) => (float[4, 3] y) {
   y = If (c) <
      then_branch = t () => (a) { a = Tanh (x) },
      else_branch = e () => (b) { b = Exp (x) }
   >
}"""
IN_LOOP = """
g (float[4, 3] x, float[3, 3] w, bool c) => (float[4, 3] y) {
   n = Constant <value_int = 3> ()
   y = Loop (n, c, x) <body = b (int64 i, bool go, float[4, 3] h) => (on, k) {
      on = Identity (go)
      yes = Constant <value = bool {1}> ()
      k = If (yes) <
         then_branch = t () => (a) { q = MatMul (h, w) a = Tanh (q) },
         else_branch = e () => (b) { b = Exp (h) }
      >
   }>
}"""


def operators(model):
    return [node.op_type for node in walk.nodes(model.graph)]


def test_the_branch_that_is_taken_replaces_the_if_at_every_depth():
    model = parse(NESTED, "w")

    assert branches.take(model) == 2
    assert operators(model) == ["Constant", "Constant", "MatMul", "Exp", "Identity", "Identity"]
    assert [v.name for v in model.graph.outputs] == ["y"]
    assert branches.take(model) == 0


def test_an_if_that_is_open_stays():
    model = parse(OPEN)

    assert branches.take(model) == 0
    assert operators(model) == ["If", "Tanh", "Exp"]


def test_the_gradient_of_a_loop_around_one_has_none():
    training = gt.grad(parse(IN_LOOP, "w"), loss="sum")
    feeds = {"x": X, "c": np.asarray(True)}

    assert "If" not in operators(training.model)
    np.testing.assert_allclose(
        gradients(training, **feeds)["w"], stock(training.model, **feeds)["w_grad"], rtol=1e-5
    )
