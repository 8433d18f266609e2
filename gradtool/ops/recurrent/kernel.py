"""The cells of GRU, RNN and LSTM.

In the rows of W and R gates lie in the order z, r, h (GRU), or i, o, f, c (LSTM).
"""

from __future__ import annotations

from typing import Any

from gradtool.ops.recurrent.kernel_direction import sigmoid, slope
from gradtool.ops.recurrent.kernel_driver import Cell, register
from gradtool.ops.shared.types import Array, Arrays


@register
class Gru(Cell):
    """`h = (h₋₁ - hh) z + hh`.

    The slab has, as a fourth part, `q`: `Rₕ h₋₁ + Rbₕ` if the reset comes after the product
    (`linear`), else `r · h₋₁`; the walk backwards replaces the former by its gradient.
    """

    op, slab_gates, backward = "GRU", 4, ("s", "q", "kept")

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        size, b = self.n.hidden, self.given.b
        self.inner = b[self.d, 5 * size :, None] if self.linear and b is not None else None
        self.count = 3 * size if self.linear else 2 * size  # rows of R that meet the state as it is

    def step(self, a: Array) -> None:
        """The state after one time, from the products of X in `a`."""
        xp, r, count, size = self.xp, self.r, self.count, self.n.hidden
        gates, h, new = self.buffers["gates"], self.h, self.new
        z, reset, hh = (self.n.gate(gates, k) for k in range(3))
        both = gates[: 2 * size]
        xp.matmul(r[:count], h, out=gates[:count])
        xp.add(both, a[: 2 * size], out=both)
        sigmoid(xp, both)
        if self.linear:
            if self.inner is not None:
                xp.add(hh, self.inner, out=hh)
            xp.multiply(hh, reset, out=hh)
        else:
            xp.multiply(h, reset, out=new)
            xp.matmul(r[2 * size :], new, out=hh)
        xp.add(hh, a[2 * size :], out=hh)
        xp.tanh(hh, out=hh)
        xp.subtract(h, hh, out=new)
        xp.multiply(new, z, out=new)
        xp.add(new, hh, out=new)

    def again(self) -> None:
        """Compute the gates of all times again, into the slab."""
        xp, n, r, size = self.xp, self.n, self.r, self.n.hidden
        slab, s = self.buffers["slab"], self.buffers["s"]
        for times in n.chunks():
            a, before = self.projected(times).swapaxes(0, 1), self.before(times)
            linked = self.linked(before, self.count)
            xp.add(a[:, : 2 * size], linked[:, : 2 * size], out=slab[times, : 2 * size])
            xp.copyto(slab[times, 2 * size : 3 * size], a[:, 2 * size :])
            if self.linear:
                xp.copyto(slab[times, 3 * size :], linked[:, 2 * size :])
            for t in range(times.start, times.stop):
                _, reset, hh, q = (n.gate(slab[t], k) for k in range(4))
                sigmoid(xp, slab[t, : 2 * size])
                if self.linear:
                    if self.inner is not None:
                        xp.add(q, self.inner, out=q)
                    xp.multiply(q, reset, out=s)
                else:
                    xp.multiply(before[t - times.start].T, reset, out=q)
                    xp.matmul(r[2 * size :], q, out=s)
                xp.add(hh, s, out=hh)
                xp.tanh(hh, out=hh)

    def back(self, t: int, dp: Array | None) -> None:  # noqa: ARG002 - it has no P
        """Replace the gates at one time.

        dz = dh · (h₋₁ - hh) · z'   dhh = dh · (1 - z) · hh'
        linear:  dq = dhh · r       dr = dhh · q · r'      dh₋₁ = dh · z + Rᵀ [dz, dr, dq]
        else:    ds = Rₕᵀ dhh       dr = ds · h₋₁ · r'     dh₋₁ = dh · z + Rᵀ [dz, dr] + ds · r
        """
        xp, r, size, new = self.xp, self.r, self.n.hidden, self.new
        slab, dh, s, bend, kept = (self.buffers[name] for name in ("slab", "dh", "s", "q", "kept"))
        z, reset, hh, q = (self.n.gate(slab[t], k) for k in range(4))
        before = self.before(slice(t, t + 1))[0].T

        xp.multiply(new, z, out=kept)
        xp.subtract(before, hh, out=s)
        xp.multiply(s, new, out=s)
        xp.subtract(1, z, out=bend)
        xp.multiply(new, bend, out=new)
        xp.multiply(s, slope(xp, "sigmoid", z, bend), out=z)
        xp.multiply(new, slope(xp, "tanh", hh, bend), out=hh)
        slope(xp, "sigmoid", reset, bend)
        if self.linear:
            xp.multiply(hh, q, out=s)
            xp.multiply(hh, reset, out=q)
            xp.multiply(s, bend, out=reset)
            xp.matmul(r[2 * size :].T, q, out=new)
        else:
            xp.matmul(r[2 * size :].T, hh, out=new)
            xp.multiply(new, before, out=s)
            xp.multiply(new, reset, out=new)
            xp.multiply(s, bend, out=reset)
        xp.add(kept, new, out=kept)
        xp.matmul(r[: 2 * size].T, slab[t, : 2 * size], out=new)
        xp.add(kept, new, out=kept)
        if self.over is None:
            xp.copyto(dh, kept)
        else:
            xp.copyto(slab[t], 0, where=self.over)
            xp.copyto(kept, 0, where=self.over)
            xp.add(dh, kept, out=dh)

    def add_weights(self, da: Array, before: Array, dr: Array, *, first: bool) -> None:
        size = self.n.hidden
        self.add(da[: 2 * size], before, dr[: 2 * size], first=first)
        if self.linear:
            self.add(da[3 * size :], before, dr[2 * size :], first=first)
        else:
            self.add(da[2 * size : 3 * size], da[3 * size :].T, dr[2 * size :], first=first)


@register
class Rnn(Cell):
    """The only gate is the hidden state itself."""

    op, slab_gates, backward = "RNN", 1, ("s",)
    recomputes = False

    def step(self, a: Array) -> None:
        xp, new = self.xp, self.new
        xp.matmul(self.r, self.h, out=new)
        xp.add(new, a, out=new)
        if self.n.acts[self.d] == ("relu",):
            xp.maximum(new, 0, out=new)
        else:
            xp.tanh(new, out=new)

    def again(self) -> None:
        self.xp.copyto(self.buffers["slab"], self.track.swapaxes(1, 2))

    def back(self, t: int, dp: Array | None) -> None:  # noqa: ARG002 - it has no P
        """`da = dh · f'`,  `dh₋₁ = Rᵀ da`."""
        xp, da, s = self.xp, self.buffers["slab"][t], self.buffers["s"]
        slope(xp, self.n.acts[self.d][0], da, s)
        xp.multiply(s, self.new, out=da)
        if self.over is not None:
            xp.copyto(da, 0, where=self.over)
        self.pass_on(t)


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
