"""Sequences and optional values, in whole models."""

from __future__ import annotations

import numpy as np
from cases import whole

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
    "optional that may be absent": """
g (float[4, 3] x, float[3, 3] w) => (float[4, 3] y) {
   a = MatMul (x, w)
   s = SequenceConstruct (a, x)
   n = SequenceLength (s)
   f = Cast <to = 1> (n)
   o = Optional (a)
   there = OptionalHasElement (o)
   b = If (there) <
      then_branch = t () => (p) { e = OptionalGetElement (o) p = Mul (e, f) },
      else_branch = u () => (q) { q = Identity (x) }
   >
   y = Mul (b, b)
}""",
    "optional sequence that a loop carries": """
g (float[4, 3] x, float[3, 3] w) => (float[4, 3] y) {
   count = Constant <value_int = 3> ()
   go = Constant <value = bool {1}> ()
   first = Constant <value_int = 0> ()
   third = Constant <value_int = 2> ()
   a = MatMul (x, w)
   one = SequenceConstruct (a)
   o = Optional (one)
   s = Loop (count, go, o) <
      body = grow (int64 i, bool c, optional(seq(float)) so_far) => (bool c2, seq(float) more) {
      c2 = Identity (c)
      there = OptionalHasElement (so_far)
      known = If (there) <
         then_branch = t () => (seq(float) p) { p = OptionalGetElement (so_far) },
         else_branch = e () => (seq(float) q) { b = Tanh (x) q = SequenceConstruct (b) }
      >
      f = Cast <to = 1> (i)
      r = Mul (a, f)
      more = SequenceInsert (known, r)
   }>
   b = SequenceAt (s, first)
   c = SequenceAt (s, third)
   d = SequenceAt (s, first)
   bc = Mul (b, c)
   z = Mul (bc, d)
   y = Add (z, b)
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
X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)

for name, text in MODELS.items():
    if name == "embedding bag":
        whole(name, text, "w", "w", **BAGS)
    elif "int64 i)" in text:
        for i in (0, 1, -1):
            whole(f"{name} {i}", text, "w", "w x", x=X, i=np.int64(i))
    else:
        whole(name, text, "w", "w x", x=X)
