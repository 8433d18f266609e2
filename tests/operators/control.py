"""If, Loop and Scan, in whole models."""

from __future__ import annotations

import numpy as np
from cases import whole

IF = """
g (float[{n}, 3] x, float limit, float[3, 3] w, float[3, 3] v) => (float[{n}, 3] y)
{{
   m = ReduceMax <keepdims = 0> (x)
   c = Greater (m, limit)
   h = Tanh (x)
   y = If (c) <
      then_branch = t () => (a) {{ q = MatMul (h, w) a = Sigmoid (q) }},
      else_branch = e () => (b) {{ r = MatMul (h, w) s = MatMul (r, v) b = Exp (s) }}
   >
}}"""
NESTED_IF = """
g (float[4, 3] x, float limit, float[3, 3] w, float[3, 3] v) => (float[4, 3] y) {
   m = ReduceMax <keepdims = 0> (x)
   c = Greater (m, limit)
   y = If (c) <
      then_branch = t () => (a) {
         q = MatMul (x, w)
         k = ReduceMin <keepdims = 0> (q)
         d = Less (k, limit)
         a = If (d) <
            then_branch = tt () => (aa) { aa = Mul (q, q) },
            else_branch = te () => (ab) { t1 = Tanh (q) ab = MatMul (t1, v) }
         >
      },
      else_branch = e () => (b) { b = Identity (x) }
   >
}"""
OTHER_SIZES = """
g (float[4, 3] x, float limit, float[3, 3] w) => (float[n, 3] y) {
   m = ReduceMax <keepdims = 0> (x)
   c = Greater (m, limit)
   h = MatMul (x, w)
   two = Constant <value = int64[1] {2}> ()
   zero = Constant <value = int64[1] {0}> ()
   z = If (c) <
      then_branch = t () => (a) { a = Tanh (h) },
      else_branch = e () => (b) { s = Slice (h, zero, two, zero) b = Exp (s) }
   >
   y = Mul (z, z)
}"""
LOOP = """
g (float[{b}, 3] h0, float[5, {b}, 3] xs, float[3, 3] w, float[3, 3] v)
=> (float[{b}, 3] last, float[k, {b}, 3] all) {{
   n = Constant <value_int = 5> ()
   go = Constant <value = bool {{1}}> ()
   last, all = Loop (n, go, h0)
   <body = body (int64 i, bool c, float[{b}, 3] h) => (c2, h2, seen) {{
      c2 = Identity (c)
      x = Gather (xs, i)
      a = MatMul (h, w)
      q = Add (a, x)
      h2 = Tanh (q)
      r = MatMul (h2, v)
      seen = Sigmoid (r)
   }}>
}}"""
COUNTED = """
g (int64 n, float[4, 3] h0, float[3, 3] w, float[3, 3] v)
=> (float[4, 3] last, float[k, 4, 3] all) {
   go = Constant <value = bool {1}> ()
   last, all = Loop (n, go, h0) <body = body (int64 i, bool c, float[4, 3] h) => (c2, h2, seen) {
      c2 = Identity (c)
      f = Cast <to = 1> (i)
      a = MatMul (h, w)
      q = Mul (a, f)
      h2 = Tanh (q)
      seen = MatMul (h2, v)
   }>
}"""
UNTIL = """
g (float[4, 3] h0, float limit, float[3, 3] w) => (float[4, 3] last) {
   go = Constant <value = bool {1}> ()
   one = Constant <value_float = 1.1> ()
   last, norm = Loop (, go, h0, one)
   <body = body (int64 i, bool c, float[4, 3] h, float s) => (c2, h2, s2) {
      a = MatMul (h, w)
      b = Mul (a, s)
      h2 = Tanh (b)
      s2 = Mul (s, s)
      c2 = Less (s2, limit)
   }>
}"""
IF_IN_LOOP = """
g (float[4, 3] h0, float[3, 3] w, float[3, 3] v) => (float[4, 3] last) {
   n = Constant <value_int = 4> ()
   go = Constant <value = bool {1}> ()
   two = Constant <value_int = 2> ()
   last = Loop (n, go, h0) <body = body (int64 i, bool c, float[4, 3] h) => (c2, h2) {
      c2 = Identity (c)
      early = Less (i, two)
      t = Tanh (h)
      h2 = If (early) <
         then_branch = t () => (a) { a = MatMul (t, w) },
         else_branch = e () => (b) { q = MatMul (t, v) b = Mul (q, h) }
      >
   }>
}"""
LOOP_IN_IF = """
g (float[4, 3] h0, float limit, float[3, 3] w, float[3, 3] v) => (float[4, 3] y) {
   m = ReduceMax <keepdims = 0> (h0)
   cond = Greater (m, limit)
   n = Constant <value_int = 3> ()
   go = Constant <value = bool {1}> ()
   y = If (cond) <
      then_branch = t () => (a) {
         a = Loop (n, go, h0) <body = body (int64 i, bool c, float[4, 3] h) => (c2, h2) {
            c2 = Identity (c)
            q = MatMul (h, w)
            h2 = Tanh (q)
         }>
      },
      else_branch = e () => (b) { b = MatMul (h0, v) }
   >
}"""
LOOP_IN_LOOP = """
g (float[4, 3] h0, float[3, 3] w, float[3, 3] v) => (float[4, 3] last) {
   n = Constant <value_int = 3> ()
   two = Constant <value_int = 2> ()
   go = Constant <value = bool {1}> ()
   last = Loop (n, go, h0) <body = body (int64 i, bool c, float[4, 3] h) => (c2, h2) {
      c2 = Identity (c)
      t = MatMul (h, v)
      h2, s = Loop (two, go, t) <body = inner (int64 j, bool d, float[4, 3] k) => (d2, k2, s2) {
         d2 = Identity (d)
         q = MatMul (k, w)
         k2 = Tanh (q)
         s2 = Mul (k2, h)
      }>
   }>
}"""
CROSSED = """
g (float[4, 3] a0, float[4, 3] b0, int64 n, float[3, 3] w) => (float[4, 3] y) {
   go = Constant <value = bool {1}> ()
   zero = Constant <value_int = 0> ()
   a9, b9, k9 = Loop (n, go, a0, b0, zero)
   <body = body (int64 i, bool c, float[4, 3] a, float[4, 3] b, int64 k) => (c, b2, a2, k2) {
      k2 = Add (k, i)
      b2 = Identity (b)
      f = Cast <to = 1> (k2)
      q = MatMul (a, w)
      r = Mul (q, f)
      a2 = Sin (r)
   }>
   y = Mul (a9, b9)
}"""
UNSIZED_LOOP = """
g (float[1] h0, float[1] k0, float[5] w) => (float[5] all) {
   n = Constant <value_int = 5> ()
   go = Constant <value = bool {1}> ()
   last, other, all = Loop (n, go, h0, k0)
   <body = body (int64 i, bool c, float[a] h, float[b] k) => (c2, k2, h2, seen) {
      c2 = Identity (c)
      zero = Constant <value = int64[1] {0}> ()
      one = Constant <value_int = 1> ()
      next = Add (i, one)
      start = Unsqueeze (i, zero)
      end = Unsqueeze (next, zero)
      x = Slice (w, start, end)
      q = Mul (h, x)
      k2 = Add (k, x)
      h2 = Sin (q)
      p = Mul (q, k)
      seen = ReduceSum <keepdims = 0> (p)
   }>
}"""
UNSIZED_SCAN = """
g (float[1] h0, float[5, 1] xs, float[1] w) => (float[5] all) {
   last, all = Scan <num_scan_inputs = 1, body = body (float[a] h, float[b] x) => (h2, seen) {
      q = Mul (h, w)
      r = Add (q, x)
      h2 = Tanh (r)
      seen = ReduceSum <keepdims = 0> (q)
   }> (h0, xs)
}"""
SCAN = """
g (float[{b}, 3] h0, float[{b}, 5, 3] xs, float[3, 3] w, float[3, 3] v)
=> (float[{b}, 3] last, float[{b}, 3, k] all) {{
   last, all = Scan (h0, xs) <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],
      scan_input_directions = [{i}], scan_output_directions = [{o}],
      body = body (float[{b}, 3] h, float[{b}, 3] x) => (h2, seen) {{
         a = MatMul (h, w)
         q = Add (a, x)
         h2 = Tanh (q)
         r = MatMul (h2, v)
         seen = Mul (r, x)
      }}>
}}"""
TWO_SCANS = """
g (float[4, 3] h0, float[5, 4, 3] xs, float[3, 3] w) => (float[5, 4, 3] all) {
   last, mid = Scan (h0, xs) <num_scan_inputs = 1,
      body = one (float[4, 3] h, float[4, 3] x) => (h2, seen) {
         a = MatMul (h, w)
         q = Add (a, x)
         h2 = Tanh (q)
         seen = Identity (h2)
      }>
   end, all = Scan (last, mid) <num_scan_inputs = 1, scan_input_directions = [1],
      body = two (float[4, 3] k, float[4, 3] y) => (k2, shown) {
         k2 = Mul (k, y)
         b = MatMul (y, w)
         shown = Sub (k2, b)
      }>
}"""
GROWING = """
g (float[4, 3] h0, int64 n, float[3, 3] w) => (float[k, 3] y) {
   axis = Constant <value = int64[1] {0}> ()
   go = Constant <value = bool {1}> ()
   y = Loop (n, go, h0) <body = body (int64 i, bool c, float[m, 3] h) => (c2, h2) {
      c2 = Identity (c)
      q = MatMul (h, w)
      t = Tanh (q)
      u = Mul (t, t)
      s = ReduceSum <keepdims = 1> (u, axis)
      h2 = Concat <axis = 0> (t, s)
   }>
}"""


LOOKUP = """
g (int64 n, int64[5, 2] ids, float[5, 3] xs, float[7, 3] w) => (float[2, 3] y) {
   start = Constant <value = int64[1] {0}> ()
   two = Constant <value = int64[1] {2}> ()
   zero = Constant <value = float[2, 3] {0, 0, 0, 0, 0, 0}> ()
   go = Constant <value = bool {1}> ()
   last, seen = Loop (n, go, zero) <body = body (int64 i, bool c, float[2, 3] h) => (c2, h2, r) {
      c2 = Identity (c)
      now = Gather (ids, i)
      x = Gather (xs, i)
      r = Gather (w, now)
      t = Mul (r, x)
      s = Add (h, t)
      h2 = Sin (s)
   }>
   few = Slice (w, start, two, start)
   more = ReduceSum <keepdims = 1> (seen, start)
   flat = Squeeze (more, start)
   z = Mul (last, flat)
   y = Mul (z, few)
}"""
KNOWN_LOOKUP = LOOKUP.replace("int64 n, ", "").replace(
    "go =", "n = Constant <value_int = 5> () go ="
)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def limit(value: float) -> np.float32:
    return np.float32(value)


X, TRACK = floats(4, 3), floats(5, 4, 3, seed=3)
for value, which in ((-9, "then"), (9, "else")):
    for batch in ("4", "batch"):
        whole(f"if {which}, {batch}", IF.format(n=batch), "w v", "w v x", x=X, limit=limit(value))
    whole(f"other sizes {which}", OTHER_SIZES, "w", "w x", x=X, limit=limit(value))
    whole(f"loop in {which}", LOOP_IN_IF, "w v", "w v h0", h0=X, limit=limit(value))
for value in (-9, 0.1, 9):
    whole(f"if in if, {value}", NESTED_IF, "w v", "w x", x=X, limit=limit(value))

for batch in ("4", "batch"):
    whole(f"loop, {batch}", LOOP.format(b=batch), "w v", "w v h0 xs", h0=X, xs=TRACK)
H, K, SLICES = floats(1), floats(1, seed=5), floats(5, 1, seed=6)
whole("loop of unknown sizes", UNSIZED_LOOP, "w", "w h0 k0", h0=H, k0=K)
whole("scan of unknown sizes", UNSIZED_SCAN, "w", "w h0 xs", h0=H, xs=SLICES)
for n in (0, 1, 3, 4):
    whole(f"counted {n}", COUNTED, "w v", "w v h0", n=np.int64(n), h0=X)
    whole(f"crossed {n}", CROSSED, "w", "w a0 b0", a0=X, b0=floats(4, 3, seed=5), n=np.int64(n))
    whole(f"growing {n}", GROWING, "w", "w h0", h0=X, n=np.int64(n))
KNOWN = GROWING.replace("int64 n, ", "").replace("go =", "n = Constant <value_int = 3> ()\n   go =")
whole("growing, known count", KNOWN, "w", "w h0", h0=X)
for value in (0.5, 2, 9):
    whole(f"until {value}", UNTIL, "w", "w h0", limit=limit(value), h0=X)
ids = np.array([[0, 3], [3, 3], [6, 1], [0, 0], [2, 6]])
whole("lookup", KNOWN_LOOKUP, "w", "w xs", ids=ids, xs=floats(5, 3, seed=4))
for n in (1, 3, 5):
    whole(f"lookup {n}", LOOKUP, "w", "w xs", ids=ids, xs=floats(5, 3, seed=4), n=np.int64(n))
whole("if in loop", IF_IN_LOOP, "w v", "w v h0", h0=X)
whole("loop in loop", LOOP_IN_LOOP, "w v", "w v h0", h0=X)

for batch in ("4", "batch"):
    for i, o in ((0, 0), (1, 0), (0, 1), (1, 1)):
        text = SCAN.format(b=batch, i=i, o=o)
        xs = floats(4, 5, 3, seed=2)
        whole(f"scan {i}{o}, {batch}", text, "w v", "w v h0 xs", h0=X, xs=xs)
whole("scan after scan", TWO_SCANS, "w", "w h0 xs", h0=X, xs=TRACK)
