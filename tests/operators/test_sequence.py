"""Gradients through sequences and optional values, in whole models."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import floats
from whole import check

X = floats(4, 3)
W = "float[3, 3] w"
MODELS = {
    "construct and concat": """
g (float[4, 3] x, float[3, 3] w) => (float[n, 3] y) {
   a = MatMul (x, w)
   b = Tanh (a)
   s = SequenceConstruct (a, b, x)
   y = ConcatFromSequence <axis = 0> (s)
}""",
    "construct and stack": """
g (float[4, 3] x, float[3, 3] w) => (float[4, n, 3] y) {
   a = MatMul (x, w)
   s = SequenceConstruct (a, x)
   z = ConcatFromSequence <axis = 1, new_axis = 1> (s)
   y = Mul (z, z)
}""",
    "at": """
g (float[4, 3] x, float[3, 3] w, int64 i) => (float[4, 3] y) {
   a = MatMul (x, w)
   b = Tanh (a)
   s = SequenceConstruct (a, b, x)
   p = SequenceAt (s, i)
   zero = Constant <value = int64 {0}> ()
   q = SequenceAt (s, zero)
   y = Mul (p, q)
}""",
    "insert and erase": """
g (float[4, 3] x, float[3, 3] w, int64 i) => (float[n, 3] y) {
   a = MatMul (x, w)
   b = Tanh (a)
   s = SequenceConstruct (a, b)
   t = SequenceInsert (s, x, i)
   u = SequenceInsert (t, b)
   last = Constant <value = int64 {-2}> ()
   v = SequenceErase (u, last)
   r = SequenceErase (v)
   z = ConcatFromSequence <axis = 0> (r)
   y = Mul (z, z)
}""",
    "split": """
g (float[4, 3] x, float[3, 3] w, int64 i) => (float[n, 3] y) {
   a = MatMul (x, w)
   sizes = Constant <value = int64[3] {1, 2, 1}> ()
   s = SplitToSequence <axis = 0> (a, sizes)
   t = SequenceAt (s, i)
   u = SplitToSequence <axis = 0, keepdims = 0> (x)
   k = SequenceAt (u, i)
   y = Mul (t, k)
}""",
    "empty": """
g (float[4, 3] x, float[3, 3] w) => (float[n, 3] y) {
   a = MatMul (x, w)
   e = SequenceEmpty <dtype = 1> ()
   s = SequenceInsert (e, a)
   t = SequenceInsert (s, x)
   z = ConcatFromSequence <axis = 0> (t)
   y = Mul (z, z)
}""",
    "map": """
g (float[4, 3] x, float[3, 3] w) => (float[n, 3] y) {
   a = MatMul (x, w)
   s = SequenceConstruct (a, x)
   t = SequenceMap <body = each (float[4, 3] e) => (f) { q = MatMul (e, w) f = Tanh (q) }> (s)
   z = ConcatFromSequence <axis = 0> (t)
   y = Mul (z, z)
}""",
    "map with a tensor": """
g (float[4, 3] x, float[3, 3] w) => (float[n, 3] y) {
   a = MatMul (x, w)
   s = SequenceConstruct (a, x)
   t, u = SequenceMap <body = each (float[4, 3] e, float[3, 3] v) => (f, h) {
      q = MatMul (e, v) f = Tanh (q) h = Mul (f, e)
   }> (s, w)
   z = ConcatFromSequence <axis = 0> (t)
   k = ConcatFromSequence <axis = 0> (u)
   y = Mul (z, k)
}""",
    "optional": """
g (float[4, 3] x, float[3, 3] w) => (float[4, 3] y) {
   a = MatMul (x, w)
   o = Optional (a)
   b = OptionalGetElement (o)
   y = Mul (b, b)
}""",
    "embedding bag": """
g (int64[7] indices, int64[4] offsets, float[9, 3] w) => (float[n, 3] y) {
   zero = Constant <value = int64[1] {0}> ()
   start = Constant <value_int = 0> ()
   count = Constant <value_int = 3> ()
   go = Constant <value = bool {1}> ()
   e = SequenceEmpty <dtype = 1> ()
   s = Loop (count, go, e) <body = bag (int64 i, bool c, seq(float[m, 3]) bags) => (c2, more) {
      c2 = Identity (c)
      one = Constant <value_int = 1> ()
      next = Add (i, one)
      a = Gather <axis = 0> (offsets, i)
      b = Gather <axis = 0> (offsets, next)
      a1 = Unsqueeze (a, zero)
      b1 = Unsqueeze (b, zero)
      rows = Slice (indices, a1, b1, zero)
      size = Sub (b, a)
      some = Greater (size, start)
      bag = If (some) <
         then_branch = t () => (p) { r = Gather (w, rows) p = ReduceMean <keepdims = 1> (r, zero) },
         else_branch = f () => (q) {
            q = Constant <value = float[1, 3] {0, 0, 0}> ()
         }
      >
      more = SequenceInsert (bags, bag)
   }>
   z = ConcatFromSequence <axis = 0> (s)
   y = Mul (z, z)
}""",
}
BAGS = {"indices": np.array([0, 3, 3, 8, 1, 2, 0]), "offsets": np.array([0, 3, 3, 7])}


@pytest.fixture(params=[True, False], ids=["lowered", "as sequences"])
def _lowering(request, monkeypatch):
    """With sequences of known structure replaced by tensors first, and without that."""
    if not request.param:
        monkeypatch.setattr("gradtool.passes.training.lower_sequences", lambda _: 0)


@pytest.mark.usefixtures("_lowering")
@pytest.mark.parametrize("i", [0, 1, -1])
@pytest.mark.usefixtures("_lowering")
@pytest.mark.parametrize("name", [n for n, text in MODELS.items() if "int64 i)" in text])
def test_positions_that_are_inputs(name, i):
    check(MODELS[name], "w", wrt=["w", "x"], x=X, i=np.int64(i))


@pytest.mark.usefixtures("_lowering")
@pytest.mark.parametrize("name", [n for n, t in MODELS.items() if "int64" not in t.split("=>")[0]])
def test_known_structure(name):
    check(MODELS[name], "w", wrt=["w", "x"], x=X)


def test_a_loop_that_collects_a_sequence():
    check(MODELS["embedding bag"], "w", wrt=["w"], **BAGS)
