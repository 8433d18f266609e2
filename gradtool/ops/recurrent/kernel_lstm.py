"""LSTM: gates lie in the order i, o, f, c in the rows of W and R."""

from __future__ import annotations

from typing import Any

from gradtool.ops.recurrent.kernel_direction import sigmoid, slope
from gradtool.ops.recurrent.kernel_driver import Cell, register
from gradtool.ops.shared.types import Array, Arrays


@register
class Lstm(Cell):
    """`c = f c₋₁ + i g`, `h = o tanh(c)`.

    In the gradient `cells` [T + 1, H, B] has the cell states in the order of processing, the
    initial one first.
    """

    op, slab_gates, peepholes = "LSTM", 4, True
    states, gradients = ("h", "c"), ("dh", "dc")
    forward, backward = ("spare",), ("s", "q", "bend", "past", "spare")

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        p = self.given.p
        self.p = None if p is None else p[self.d].reshape(3, self.n.hidden, 1)

    def step(self, a: Array) -> None:
        xp, gates, c, new = self.xp, self.buffers["gates"], self.buffers["c"], self.new
        xp.matmul(self.r, self.h, out=gates)
        xp.add(gates, a, out=gates)
        self._advance(gates, c, new)
        xp.copyto(c, new, where=True if self.over is None else xp.logical_not(self.over))
        xp.tanh(new, out=new)
        xp.multiply(new, self.n.gate(gates, 1), out=new)

    def _advance(self, a: Array, c: Array, new: Array) -> None:
        """From pre-activations `a` and cell state `c`: the gates, in place, and the `new` state."""
        xp, n, p, spare = self.xp, self.n, self.p, self.buffers["spare"]
        i, o, f, g = (n.gate(a, k) for k in range(4))
        if p is None:  # the sigmoid is a tanh, so all gates take one
            some = a[: 3 * n.hidden]
            xp.multiply(some, 0.5, out=some)
            xp.tanh(a, out=a)
            xp.multiply(some, 0.5, out=some)
            xp.add(some, 0.5, out=some)
        else:
            for gate, weight in ((i, p[0]), (f, p[2])):
                xp.multiply(c, weight, out=spare)
                xp.add(gate, spare, out=gate)
                sigmoid(xp, gate)
            xp.tanh(g, out=g)
        xp.multiply(f, c, out=new)
        xp.multiply(i, g, out=spare)
        xp.add(new, spare, out=new)
        if p is not None:
            xp.multiply(new, p[1], out=spare)
            xp.add(o, spare, out=o)
            sigmoid(xp, o)

    def again(self) -> None:
        """The gates of all times from Y, then the cell states, one after the other."""
        xp, slab, cells = self.xp, self.buffers["slab"], self.buffers["cells"]
        for times in self.n.chunks():
            a = self.projected(times).swapaxes(0, 1)
            xp.add(a, self.linked(self.before(times), self.n.rows), out=slab[times])
        first = self.given.firsts[1]
        xp.copyto(cells[0], 0 if first is None else self.n.state(first, self.d))
        for k, t in enumerate(self.n.order(self.d)):
            self._advance(slab[t], cells[k], cells[k + 1])
            self.take_time(t)
            if self.over is not None:
                xp.copyto(cells[k + 1], cells[k], where=self.over)

    def back(self, t: int, dp: Array | None) -> None:
        """With `do = dh · tanh(c) · o'`,  `dc += dh · o · tanh'(c)`.

        di = dc · g · i'    df = dc · c₋₁ · f'    dg = dc · i · g'    dc₋₁ = dc · f    dh₋₁ = Rᵀ da
        """
        xp, n, p, new = self.xp, self.n, self.p, self.new
        slab, cells, dc, s, q, bend, past = (
            self.buffers[name] for name in ("slab", "cells", "dc", "s", "q", "bend", "past")
        )
        i, o, f, g = (n.gate(slab[t], gate) for gate in range(4))
        k = n.order(self.d).index(t)
        before, after = cells[k], cells[k + 1]

        xp.tanh(after, out=s)
        slope(xp, "tanh", s, bend)
        xp.multiply(s, new, out=s)
        xp.multiply(bend, o, out=bend)
        xp.multiply(bend, new, out=bend)
        xp.add(dc, bend, out=dc)
        xp.multiply(s, slope(xp, "sigmoid", o, q), out=o)
        if p is not None:
            xp.multiply(o, p[1], out=s)
            xp.add(dc, s, out=dc)

        xp.multiply(dc, f, out=past)
        xp.multiply(dc, i, out=s)
        slope(xp, "sigmoid", f, bend)
        xp.multiply(dc, before, out=new)
        xp.multiply(new, bend, out=f)
        xp.multiply(dc, g, out=new)
        xp.multiply(s, slope(xp, "tanh", g, q), out=g)
        xp.multiply(new, slope(xp, "sigmoid", i, q), out=i)

        if self.over is not None:
            xp.copyto(slab[t], 0, where=self.over)
            xp.copyto(past, dc, where=self.over)
        if p is not None:
            weights = None if dp is None else dp.reshape(p.shape)
            self._peepholes((i, o, f), (before, after, before), p, weights)
        xp.copyto(dc, past)
        self.pass_on(t)

    def _peepholes(self, gates: Arrays, seen: Arrays, p: Array, dp: Array | None) -> None:
        """Add the gradients through peepholes to the cell state's and to their weights'."""
        xp, past, s = self.xp, self.buffers["past"], self.buffers["s"]
        for k, (da, c) in enumerate(zip(gates, seen, strict=True)):
            if k != 1:
                xp.multiply(da, p[k], out=s)
                xp.add(past, s, out=past)
            if dp is not None:
                xp.multiply(da, c, out=s)
                met = dp[k]
                xp.add(met, s.sum(axis=1, keepdims=True), out=met)
