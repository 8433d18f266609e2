"""RNN and its gradient."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._activations import activate
from gradtool.exec.kernels._gru import advance, slope
from gradtool.exec.kernels._recurrence import (
    Hidden, add_biases, arrive, bias_gradient, chunk, dead, first_gradient, last_state, product,
    recurrence, rows_first, spare_size, unroll,
)  # fmt: skip
from gradtool.exec.kernels._wide import widened
from gradtool.program import Spec

DEFAULT = ("Tanh",)


def _forward_work(x, w, r, b=None, lens=None, h0=None, *, out, **attributes):
    n = recurrence(x, r, 1, DEFAULT, **attributes)
    shapes = [(chunk(n),), (n.columns,), *[(n.batch, n.hidden)] * 3]
    return [*(Spec(s, x.dtype) for s in shapes), Spec((n.batch, n.hidden), np.dtype(bool))]


def rnn(xp, x, w, r, b=None, lens=None, h0=None, *, out, work, **attributes):
    """`(Y, Y_h)`; the products with W are taken for several times at once."""
    n = recurrence(x, r, 1, DEFAULT, **attributes)
    y, y_h = (*out, None)[:2]
    slab, bias, h, new, spare, flags = work
    for d, (act,) in enumerate(n.acts):
        track = None if y is None else n.track(y, d)
        xp.copyto(h, 0 if h0 is None else n.state(h0, d))
        if b is not None:
            add_biases(xp, b[d], n.hidden, 1, False, bias)

        def step(t, a, act=act, track=track, weight=r[d].T):
            xp.matmul(h, weight, out=new)
            xp.add(new, a, out=new)
            activate(xp, act, n.clip, new, None, spare, flags)
            advance(xp, dead(xp, lens, t), h, new, None if track is None else track[t])

        unroll(xp, n, d, x, w[d], None if b is None else bias, slab, step)
        last_state(xp, n, d, h, lens, y_h)


kernel("RNN", work=(_forward := widened(rnn, _forward_work))[1])(_forward[0])


def _backward_work(x, w, r, b, lens, h0, y, *dys, out, **attributes):
    n = recurrence(x, r, 1, DEFAULT, **attributes)
    rows = spare_size(n) // n.columns
    copies = 1 if Hidden.needs_copy(n, lens) else 0
    shapes = [
        n.slab(n.hidden), (spare_size(n),), (n.columns,), *[(n.batch, n.hidden)] * 3,
        *[(rows, n.hidden)] * 2, *[n.slab(n.hidden)] * copies,
    ]  # fmt: skip
    return [*(Spec(s, x.dtype) for s in shapes), Spec((rows, n.hidden), np.dtype(bool))]


def rnn_grad(xp, x, w, r, b, lens, h0, y, dy=None, dy_h=None, *, out, work, **attributes):
    """Gradients by X, W, R, B and the initial state, from Y and its gradients."""
    n = recurrence(x, r, 1, DEFAULT, **attributes)
    dx, dw, dr, db, dh0 = (*out, None)[:5]
    slopes, spare, bias, dh, new, s, value, rest, *copies, flags = work
    for d in range(len(n.backwards)):
        start = None if h0 is None else n.state(h0, d)
        hidden = Hidden(xp, n, d, y, start, lens, copies[0] if copies else None)
        if b is not None:
            add_biases(xp, b[d], n.hidden, 1, False, bias)
        if not n.plain:
            given = None if b is None else bias
            _again(xp, n, d, x, w[d], r[d], given, hidden, slopes, spare, (value, rest, flags))
        first_gradient(xp, n, d, dy_h, lens, dh)
        track, shown, da = None if dy is None else n.track(dy, d), n.track(y, d), n.by_time(slopes)
        for t in reversed(n.order(d)):
            ended = dead(xp, lens, t)
            arrive(xp, dh, None if track is None else track[t], ended, new)
            bend = None if n.plain else da[t]
            xp.multiply(new, slope(xp, n.acts[d][0], shown[t], bend, s), out=da[t])
            if ended is None:
                xp.matmul(da[t], r[d], out=dh)
            else:
                xp.copyto(da[t], 0, where=ended)
                xp.matmul(da[t], r[d], out=new)
                xp.add(dh, new, out=dh)

        rows = rows_first(slopes)
        if dx is not None:
            product(xp, rows, w[d], rows_first(dx), spare if d else None)
        if dw is not None:
            product(xp, rows.T, rows_first(x), dw[d])
        if dr is not None:
            hidden.weight_gradient(xp, rows, dr[d], spare)
        if db is not None:
            bias_gradient(xp, rows, n.hidden, db[d])
        if dh0 is not None:
            xp.copyto(n.state(dh0, d), dh)


def _again(xp, n, d, x, w, r, bias, hidden, slopes, spare, scratch):
    """The slope of the activation at every time."""
    rows = rows_first(slopes)
    product(xp, rows_first(x), w.T, rows)
    for part, before in hidden.chunks(scratch[0].shape[0]):
        a = rows[part]
        value, rest, flags = (s[: len(a)] for s in scratch)
        if before is not None:
            product(xp, before, r.T, a, spare)
        if bias is not None:
            xp.add(a, bias, out=a)
        xp.copyto(value, a)
        activate(xp, n.acts[d][0], n.clip, value, a, rest, flags)


kernel("ai.gradtool::RNNGrad", work=(_reverse := widened(rnn_grad, _backward_work))[1])(_reverse[0])
