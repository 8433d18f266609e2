"""LSTM and its gradient.  Gates lie in the order i, o, f, c in the columns of W and R."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._activations import activate, sigmoid
from gradtool.exec.kernels._recurrence import (
    Hidden, add_biases, arrive, bias_gradient, chunk, dead, first_gradient, last_state, product,
    recurrence, rows_first, spare_size, unroll,
)  # fmt: skip
from gradtool.exec.kernels._wide import widened
from gradtool.program import Spec

DEFAULT = ("Sigmoid", "Tanh", "Tanh")


def _cell(x, r, attributes):
    options = dict(attributes)
    coupled = bool(options.pop("input_forget", 0))
    return recurrence(x, r, 4, DEFAULT, **options), coupled


class Gates:
    """The cell of one direction: activates the gates of one time, and advances the cell state."""

    def __init__(self, xp, n, direction, coupled, p, spare, flags):
        self.xp, self.n, self.coupled, self.spare, self.flags = xp, n, coupled, spare, flags
        self.f, self.g, self.h = n.acts[direction]
        self.plain = n.plain and (self.f.name, self.g.name) == ("sigmoid", "tanh")
        self.p = None if p is None else p[direction].reshape(3, n.hidden)

    def split(self, a):
        """The gates i, o, f, c within the columns of `a`."""
        size = self.n.hidden
        return [a[:, k * size : (k + 1) * size] for k in range(4)]

    def advance(self, a, c, new, d=None):
        """From pre-activations `a` and cell state `c`: the gates, in place, and the `new` state.

        `d` gets the slopes of the gates.
        """
        xp, (i, o, f, g) = self.xp, self.split(a)
        slopes = [None] * 4 if d is None else self.split(d)
        if self.p is not None:
            for gate, weight in ((i, self.p[0]), (f, self.p[2])):
                xp.multiply(c, weight, out=self.spare)
                xp.add(gate, self.spare, out=gate)
        if self.plain and self.p is None:
            some = a[:, : 3 * self.n.hidden]
            xp.multiply(some, 0.5, out=some)
            xp.tanh(a, out=a)
            xp.multiply(some, 0.5, out=some)
            xp.add(some, 0.5, out=some)
        else:
            self.activate(self.f, i, slopes[0])
            self.activate(self.f, f, slopes[2])
            self.activate(self.g, g, slopes[3])
        if self.coupled:
            xp.subtract(1, i, out=f)
        xp.multiply(f, c, out=new)
        xp.multiply(i, g, out=self.spare)
        xp.add(new, self.spare, out=new)
        if self.p is not None:
            xp.multiply(new, self.p[1], out=self.spare)
            xp.add(o, self.spare, out=o)
        if not (self.plain and self.p is None):
            self.activate(self.f, o, slopes[1])

    def activate(self, act, a, d):
        if self.plain and act.name == "sigmoid":
            sigmoid(self.xp, a)
        else:
            activate(self.xp, act, self.n.clip, a, d, self.spare, self.flags)

    def shown(self, c, y, d=None):
        """`y = h(c)`, and its slope in `d`."""
        self.xp.copyto(y, c)
        activate(self.xp, self.h, None, y, d, self.spare, self.flags)

    def slope(self, k, y, d, out):
        """The slope of gate `k` of value `y`: from `d` if that holds it, else from y."""
        xp = self.xp
        if d is not None:
            return d[:, k * self.n.hidden : (k + 1) * self.n.hidden]
        if (self.g if k == 3 else self.f).name == "tanh":
            xp.multiply(y, y, out=out)
            xp.subtract(1, out, out=out)
        else:
            xp.subtract(1, y, out=out)
            xp.multiply(out, y, out=out)
        return out


def _forward_work(x, w, r, b=None, lens=None, h0=None, c0=None, p=None, *, out, **attributes):
    n, _ = _cell(x, r, attributes)
    shapes = [(chunk(n),), (n.batch, n.columns), (n.columns,), *[(n.batch, n.hidden)] * 4]
    return [*(Spec(s, x.dtype) for s in shapes), Spec((n.batch, n.hidden), np.dtype(bool))]


def lstm(xp, x, w, r, b=None, lens=None, h0=None, c0=None, p=None, *, out, work, **attributes):
    """`(Y, Y_h, Y_c)`; the products with W are taken for several times at once."""
    n, coupled = _cell(x, r, attributes)
    y, y_h, y_c = (*out, None, None)[:3]
    slab, again, bias, h, c, new, spare, flags = work
    for d in range(len(n.backwards)):
        cell = Gates(xp, n, d, coupled, p, spare, flags)
        track = None if y is None else n.track(y, d)
        xp.copyto(h, 0 if h0 is None else n.state(h0, d))
        xp.copyto(c, 0 if c0 is None else n.state(c0, d))
        if b is not None:
            add_biases(xp, b[d], n.hidden, 4, False, bias)

        def step(t, a, cell=cell, track=track, weight=r[d].T):
            xp.matmul(h, weight, out=again)
            xp.add(a, again, out=a)
            cell.advance(a, c, new)
            ended = dead(xp, lens, t)
            alive = True if ended is None else xp.logical_not(ended)
            xp.copyto(c, new, where=alive)
            cell.shown(new, new)
            xp.multiply(new, cell.split(a)[1], out=new)
            xp.copyto(h, new, where=alive)
            if track is not None:
                xp.copyto(track[t], new)
                if ended is not None:
                    xp.copyto(track[t], 0, where=ended)

        unroll(xp, n, d, x, w[d], None if b is None else bias, slab, step)
        last_state(xp, n, d, h, lens, y_h)
        last_state(xp, n, d, c, lens, y_c)


kernel("LSTM", work=(_forward := widened(lstm, _forward_work))[1])(_forward[0])


def _backward_work(x, w, r, b, lens, h0, c0, p, y, *dys, out, **attributes):
    n, _ = _cell(x, r, attributes)
    state = (n.batch, n.hidden)
    copies = 1 if Hidden.needs_copy(n, lens) else 0
    slopes = 0 if n.plain else 1
    shapes = [
        n.slab(n.columns), (n.times + 1, *state), (spare_size(n),), (n.columns,), *[state] * 8,
        *[n.slab(n.columns)] * slopes, *[n.slab(n.hidden)] * copies,
    ]  # fmt: skip
    return [*(Spec(s, x.dtype) for s in shapes), Spec(state, np.dtype(bool))]


def lstm_grad(
    xp, x, w, r, b, lens, h0, c0, p, y, dy=None, dy_h=None, dy_c=None, *, out, work, **attributes
):
    """Gradients by X, W, R, B, the initial states and P, from Y and its gradients.

    Gates are computed again for all times at once (Y holds every hidden state), then the cell
    states; the walk backwards replaces the gates by the gradients of their pre-activations.
    """
    n, coupled = _cell(x, r, attributes)
    dx, dw, dr, db, dh0, dc0, dp = (*out, None)[:7]
    gates, cells, spare, bias, *states = work[:12]
    *more, flags = work[12:]
    slopes = None if n.plain else more.pop(0)
    copy = more.pop() if more else None
    for d in range(len(n.backwards)):
        cell = Gates(xp, n, d, coupled, p, states[0], flags)
        hidden = Hidden(xp, n, d, y, None if h0 is None else n.state(h0, d), lens, copy)
        if b is not None:
            add_biases(xp, b[d], n.hidden, 4, False, bias)
        xp.copyto(cells[0], 0 if c0 is None else n.state(c0, d))
        _pre_activations(xp, n, x, w[d], r[d], None if b is None else bias, hidden, gates, spare)
        _again(xp, n, d, cell, gates, slopes, cells, lens)
        dh, dc = states[1], states[2]
        first_gradient(xp, n, d, dy_h, lens, dh)
        first_gradient(xp, n, d, dy_c, lens, dc)
        track = None if dy is None else n.track(dy, d)
        dps = None if dp is None or p is None else dp[d].reshape(3, n.hidden)
        _backward(xp, n, d, cell, gates, slopes, cells, lens, r[d], track, dps, bias, states)

        rows = rows_first(gates)
        if dx is not None:
            product(xp, rows, w[d], rows_first(dx), spare if d else None)
        if dw is not None:
            product(xp, rows.T, rows_first(x), dw[d])
        if dr is not None:
            hidden.weight_gradient(xp, rows, dr[d], spare)
        if db is not None:
            bias_gradient(xp, rows, n.columns, db[d])
        for result, found in ((dh0, dh), (dc0, dc)):
            if result is not None:
                xp.copyto(n.state(result, d), found)


def _pre_activations(xp, n, x, w, r, bias, hidden, gates, spare):
    """`gates = x wᵀ + h rᵀ + bias` for all times."""
    rows = rows_first(gates)
    xp.matmul(rows_first(x), w.T, out=rows)
    for part, before in hidden.chunks(spare.size // n.columns):
        if before is not None:
            product(xp, before, r.T, rows[part], spare)
        if bias is not None:
            xp.add(rows[part], bias, out=rows[part])


def _again(xp, n, d, cell, gates, slopes, cells, lens):
    """Activate the gates of every time and compute the cell states after each."""
    a = n.by_time(gates)
    slope = None if slopes is None else n.by_time(slopes)
    for k, t in enumerate(n.order(d)):
        cell.advance(a[t], cells[k], cells[k + 1], None if slope is None else slope[t])
        ended = dead(xp, lens, t)
        if ended is not None:
            xp.copyto(cells[k + 1], cells[k], where=ended)


def _backward(xp, n, d, cell, gates, slopes, cells, lens, r, dy, dp, row, states):
    """Walk back in time; `gates` becomes the gradient of the pre-activations.

    With `do = dh · h(c) · o'`,  `dc += dh · o · h'(c)`:

        di = dc · g · i'    df = dc · c₋₁ · f'    dg = dc · i · g'    dc₋₁ = dc · f    dh₋₁ = da R
    """
    spare, dh, dc, new, s, q, bend, before = states
    a, slope = n.by_time(gates), None if slopes is None else n.by_time(slopes)
    if dp is not None:
        dp[...] = 0
    for k, t in reversed(list(enumerate(n.order(d)))):
        i, o, f, g = cell.split(a[t])
        bends = None if slope is None else slope[t]
        ended = dead(xp, lens, t)
        arrive(xp, dh, None if dy is None else dy[t], ended, new)

        cell.shown(cells[k + 1], s, bend)
        xp.multiply(s, new, out=s)  # dh · h(c)
        xp.multiply(bend, o, out=bend)
        xp.multiply(bend, new, out=bend)
        xp.add(dc, bend, out=dc)
        xp.multiply(s, cell.slope(1, o, bends, q), out=o)  # do
        if cell.p is not None:
            xp.multiply(o, cell.p[1], out=s)
            xp.add(dc, s, out=dc)

        xp.multiply(dc, f, out=before)
        xp.multiply(dc, i, out=s)
        bend_f = cell.slope(2, f, bends, bend)
        if cell.coupled:
            xp.subtract(g, cells[k], out=f)
            xp.multiply(f, dc, out=new)
            f[...] = 0
        else:
            xp.multiply(dc, cells[k], out=new)
            xp.multiply(new, bend_f, out=f)  # df
            xp.multiply(dc, g, out=new)
        xp.multiply(s, cell.slope(3, g, bends, q), out=g)  # dg
        xp.multiply(new, cell.slope(0, i, bends, q), out=i)  # di

        if ended is not None:
            xp.copyto(a[t], 0, where=ended)
            xp.copyto(before, dc, where=ended)
        if cell.p is not None:
            _peepholes(
                xp, cell.p, (i, o, f), cells[k], cells[k + 1], dp, before, s, row[: n.hidden]
            )
        xp.copyto(dc, before)
        if ended is None:
            xp.matmul(a[t], r, out=dh)
        else:
            xp.matmul(a[t], r, out=new)
            xp.add(dh, new, out=dh)


def _peepholes(xp, p, gates, old, new, dp, dc, s, row):
    """Add what flows through the peepholes to `dc`, and the gradient of their weights to `dp`."""
    for k, (da, seen) in enumerate(zip(gates, (old, new, old), strict=True)):
        if k != 1:
            xp.multiply(da, p[k], out=s)
            xp.add(dc, s, out=dc)
        if dp is not None:
            xp.multiply(da, seen, out=s)
            xp.sum(s, axis=0, out=row)
            xp.add(dp[k], row, out=dp[k])


kernel("ai.gradtool::LSTMGrad", work=(_reverse := widened(lstm_grad, _backward_work))[1])(
    _reverse[0]
)
