"""GRU and its gradient.  Gates lie in the order z, r, h in the columns of W and R."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._activations import activate
from gradtool.exec.kernels._recurrence import (
    Hidden, add_biases, arrive, chunk, dead, first_gradient, last_state, product, recurrence,
    rows_first, spare_size, unroll,
)  # fmt: skip
from gradtool.exec.kernels._wide import widened
from gradtool.program import Spec

DEFAULT = ("Sigmoid", "Tanh")


def _cell(x, r, attributes):
    options = dict(attributes)
    linear = bool(options.pop("linear_before_reset", 0))
    return recurrence(x, r, 3, DEFAULT, **options), linear


def _forward_work(x, w, r, b=None, lens=None, h0=None, *, out, **attributes):
    n, _ = _cell(x, r, attributes)
    shapes = [(chunk(n),), (n.batch, n.columns), (n.columns,), *[(n.batch, n.hidden)] * 3]
    return [*(Spec(s, x.dtype) for s in shapes), Spec((n.batch, n.hidden), np.dtype(bool))]


def gru(xp, x, w, r, b=None, lens=None, h0=None, *, out, work, **attributes):
    """`(Y, Y_h)`; the products with W are taken for several times at once."""
    n, linear = _cell(x, r, attributes)
    y, y_h = (*out, None)[:2]
    slab, again, bias, h, new, spare, flags = work
    size = n.hidden
    for d, (act_f, act_g) in enumerate(n.acts):
        track = None if y is None else n.track(y, d)
        xp.copyto(h, 0 if h0 is None else n.state(h0, d))
        inner = None if b is None or not linear else b[d, 5 * size :]
        if b is not None:
            add_biases(xp, b[d], size, 3, linear, bias)

        def step(t, a, f=act_f, g=act_g, track=track, weight=r[d], inner=inner):
            z, reset, hh = (a[:, k * size : (k + 1) * size] for k in range(3))
            count = 3 * size if linear else 2 * size
            xp.matmul(h, weight[:count].T, out=again[:, :count])
            linked = again[:, 2 * size :]
            xp.add(a[:, : 2 * size], again[:, : 2 * size], out=a[:, : 2 * size])
            for gate in (z, reset):
                activate(xp, f, n.clip, gate, None, spare, flags)
            if linear:
                if inner is not None:
                    xp.add(linked, inner, out=linked)
                xp.multiply(linked, reset, out=linked)
            else:
                xp.multiply(h, reset, out=new)
                xp.matmul(new, weight[2 * size :].T, out=linked)
            xp.add(hh, linked, out=hh)
            activate(xp, g, n.clip, hh, None, spare, flags)
            xp.subtract(h, hh, out=new)
            xp.multiply(new, z, out=new)
            xp.add(new, hh, out=new)
            advance(xp, dead(xp, lens, t), h, new, None if track is None else track[t])

        unroll(xp, n, d, x, w[d], None if b is None else bias, slab, step)
        last_state(xp, n, d, h, lens, y_h)


def advance(xp, ended, h, new, y):
    """Let `h` become `new`, and show that; ended samples keep `h` and show 0."""
    xp.copyto(h, new, where=True if ended is None else xp.logical_not(ended))
    if y is not None:
        xp.copyto(y, new)
        if ended is not None:
            xp.copyto(y, 0, where=ended)


kernel("GRU", work=(_forward := widened(gru, _forward_work))[1])(_forward[0])


def _backward_work(x, w, r, b, lens, h0, y, *dys, out, **attributes):
    n, _ = _cell(x, r, attributes)
    rows = spare_size(n) // n.columns
    state = (n.batch, n.hidden)
    copies = 1 if Hidden.needs_copy(n, lens) else 0
    slopes = 0 if n.plain else 1
    shapes = [
        n.slab(n.columns), n.slab(n.hidden), (spare_size(n),), (n.columns,), *[state] * 6,
        (rows, n.hidden), *[n.slab(n.columns)] * slopes, *[n.slab(n.hidden)] * copies,
    ]  # fmt: skip
    return [*(Spec(s, x.dtype) for s in shapes), Spec((rows, n.hidden), np.dtype(bool))]


def gru_grad(xp, x, w, r, b, lens, h0, y, dy=None, dy_h=None, *, out, work, **attributes):
    """Gradients by X, W, R, B and the initial state, from Y and its gradients.

    Gates are computed again for all times at once: Y holds every hidden state.  The walk backwards
    replaces them by the gradients of their pre-activations, and `linked` by what R's last rows
    were multiplied with (or its gradient).
    """
    n, linear = _cell(x, r, attributes)
    dx, dw, dr, db, dh0 = (*out, None)[:5]
    gates, linked, spare, bias, *states = work[:10]
    rest, *more, flags = work[10:]
    slopes = None if n.plain else more.pop(0)
    copy = more.pop() if more else None
    size = n.hidden
    for d in range(len(n.backwards)):
        hidden = Hidden(xp, n, d, y, None if h0 is None else n.state(h0, d), lens, copy)
        inner = None if b is None or not linear else b[d, 5 * size :]
        if b is not None:
            add_biases(xp, b[d], size, 3, linear, bias)
        _again(
            xp, n, d, linear, x, w[d], r[d], None if b is None else bias, inner, hidden, gates,
            linked, slopes, spare, rest, flags,
        )  # fmt: skip
        first_gradient(xp, n, d, dy_h, lens, states[0])
        track = None if dy is None else n.track(dy, d)
        _backward(xp, n, d, linear, gates, linked, slopes, hidden, lens, r[d], track, states)

        rows, ends = rows_first(gates), rows_first(linked)
        if dx is not None:
            product(xp, rows, w[d], rows_first(dx), spare if d else None)
        if dw is not None:
            product(xp, rows.T, rows_first(x), dw[d])
        if dr is not None:
            hidden.weight_gradient(xp, rows[:, : 2 * size], dr[d, : 2 * size], spare)
            if linear:
                hidden.weight_gradient(xp, ends, dr[d, 2 * size :], spare)
            else:
                product(xp, rows[:, 2 * size :].T, ends, dr[d, 2 * size :])
        if db is not None:
            xp.sum(rows, axis=0, out=db[d, : 3 * size])
            xp.copyto(db[d, 3 * size :], db[d, : 3 * size])
            if linear:
                xp.sum(ends, axis=0, out=db[d, 5 * size :])
        if dh0 is not None:
            xp.copyto(n.state(dh0, d), states[0])


def _again(
    xp, n, d, linear, x, w, r, bias, inner, hidden, gates, linked, slopes, spare, rest, flags
):
    """The gates of all times.

    `linked` is `h Rₕᵀ + Rbₕ` if `linear`, else `r ⊙ h`.
    """
    size, (act_f, act_g) = n.hidden, n.acts[d]
    rows, ends = rows_first(gates), rows_first(linked)
    bends = None if slopes is None else rows_first(slopes)
    product(xp, rows_first(x), w.T, rows)
    count = 3 * size if linear else 2 * size
    for part, before in hidden.chunks(rest.shape[0]):
        a, q = rows[part], ends[part]
        z, reset, hh = (a[:, k * size : (k + 1) * size] for k in range(3))
        dz, dreset, dhh = (
            None if bends is None else bends[part, k * size : (k + 1) * size] for k in range(3)
        )
        s, marks = rest[: len(a)], flags[: len(a)]
        again = spare[: len(a) * count].reshape(len(a), count)
        if bias is not None:
            xp.add(a, bias, out=a)
        if before is not None:
            xp.matmul(before, r[:count].T, out=again)
            xp.add(a[:, : 2 * size], again[:, : 2 * size], out=a[:, : 2 * size])
        activate(xp, act_f, n.clip, z, dz, s, marks)
        activate(xp, act_f, n.clip, reset, dreset, s, marks)
        if linear:
            xp.copyto(q, 0 if before is None else again[:, 2 * size :])
            if inner is not None:
                xp.add(q, inner, out=q)
            xp.multiply(q, reset, out=s)
            xp.add(hh, s, out=hh)
        elif before is None:
            xp.copyto(q, 0)
        else:
            xp.multiply(before, reset, out=q)
            xp.matmul(q, r[2 * size :].T, out=s)
            xp.add(hh, s, out=hh)
        activate(xp, act_g, n.clip, hh, dhh, s, marks)


def slope(xp, act, y, bend, out):
    """The slope of a gate of value y: `bend` if that is given, else from y."""
    if bend is not None:
        return bend
    if act.name == "tanh":
        xp.multiply(y, y, out=out)
        xp.subtract(1, out, out=out)
    else:
        xp.subtract(1, y, out=out)
        xp.multiply(out, y, out=out)
    return out


def _backward(xp, n, d, linear, gates, linked, slopes, hidden, lens, r, dy, states):
    """Walk back in time; `gates` becomes the gradient of the pre-activations.

    dz = dh · (h₋₁ - hh) · z'        dhh = dh · (1 - z) · hh'
    dr = d(r ⊙ …) · … · r'           dh₋₁ = dh · z + [dz, dr, …] R
    """
    dh, new, s, q, kept, s2 = states
    size, (act_f, act_g) = n.hidden, n.acts[d]
    a, ends = n.by_time(gates), n.by_time(linked)
    bends = None if slopes is None else n.by_time(slopes)
    for t in reversed(n.order(d)):
        z, reset, hh = (a[t][:, k * size : (k + 1) * size] for k in range(3))
        dz, dreset, dhh = (
            None if bends is None else bends[t][:, k * size : (k + 1) * size] for k in range(3)
        )
        ended, before = dead(xp, lens, t), hidden.before(t)
        arrive(xp, dh, None if dy is None else dy[t], ended, new)

        xp.multiply(new, z, out=kept)
        if before is None:
            xp.negative(hh, out=s)
        else:
            xp.subtract(before, hh, out=s)
        xp.multiply(s, new, out=s)
        xp.subtract(1, z, out=q)
        xp.multiply(new, q, out=new)
        xp.multiply(s, slope(xp, act_f, z, dz, q), out=z)
        xp.multiply(new, slope(xp, act_g, hh, dhh, q), out=hh)
        if linear:
            xp.multiply(hh, ends[t], out=s)
            xp.multiply(hh, reset, out=ends[t])
            xp.multiply(s, slope(xp, act_f, reset, dreset, q), out=reset)
            xp.matmul(ends[t], r[2 * size :], out=new)
        else:
            xp.matmul(hh, r[2 * size :], out=new)
            bend = slope(xp, act_f, reset, dreset, q)
            xp.multiply(new, 0 if before is None else before, out=s)
            xp.multiply(new, reset, out=new)
            xp.multiply(s, bend, out=reset)
        if ended is not None:
            xp.copyto(a[t], 0, where=ended)
            xp.copyto(ends[t], 0, where=ended)
            xp.copyto(new, 0, where=ended)
        xp.add(kept, new, out=kept)
        xp.matmul(a[t][:, : 2 * size], r[: 2 * size], out=s2)
        xp.add(kept, s2, out=kept)
        if ended is None:
            xp.copyto(dh, kept)
        else:
            xp.add(dh, kept, out=dh, where=xp.logical_not(ended))


kernel("ai.gradtool::GRUGrad", work=(_reverse := widened(gru_grad, _backward_work))[1])(_reverse[0])
