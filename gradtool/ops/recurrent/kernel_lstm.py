"""LSTM and its gradient.  Gates lie in the order i, o, f, c in the rows of W and R."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.operators.recurrence import Recurrence, recurrence
from gradtool.ops.kernels import kernel
from gradtool.ops.recurrent import kernel_products as products
from gradtool.ops.recurrent import kernel_shared as common
from gradtool.ops.recurrent.kernel_cell import Cell
from gradtool.ops.shared.types import Array, Arrays
from gradtool.ops.shared.upcast import widened

DEFAULT = ("Sigmoid", "Tanh", "Tanh")


def _node(
    x: Array | Spec, r: Array | Spec, attributes: Mapping[str, Any]
) -> tuple[Recurrence, bool]:
    options = dict(attributes)
    coupled = bool(options.pop("input_forget", 0))
    return recurrence(x, r, 4, DEFAULT, **options), coupled


def _forward_room(
    x: Array | Spec, r: Array | Spec, b: Array | Spec | None, attributes: Mapping[str, Any]
) -> tuple[Recurrence, bool, dict[str, Spec]]:
    n, coupled = _node(x, r, attributes)
    _, flags = common.spare(n, slopes=False)
    shapes = dict.fromkeys(("h", "c", "new", "spare"), (n.hidden, n.batch))
    gates = (n.rows, n.batch)
    return n, coupled, common.room(n, x.dtype, {"gates": gates, **shapes}, b=b, flags=flags)


def _forward_work(
    x: Spec,
    w: Spec,
    r: Spec,
    b: Spec | None = None,
    *others: Spec | None,
    out: Sequence[Spec | None],
    **attributes: Any,
) -> list[Spec]:
    return list(_forward_room(x, r, b, attributes)[2].values())


def lstm(
    xp: Any,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lens: Array | None = None,
    h0: Array | None = None,
    c0: Array | None = None,
    p: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    **attributes: Any,
) -> None:
    """`(Y, Y_h, Y_c)`; the products with W are taken for several times at once."""
    n, coupled, room = _forward_room(x, r, b, attributes)
    buffers = dict(zip(room, work, strict=True))
    y, y_h, y_c = (*out, None, None)[:3]
    gates, h, c, new = (buffers[name] for name in ("gates", "h", "c", "new"))
    for d in range(len(n.backwards)):
        cell, track = Cell(xp, n, d, coupled, p, buffers), n.track(y, d)
        xp.copyto(h, 0 if h0 is None else n.state(h0, d))
        xp.copyto(c, 0 if c0 is None else n.state(c0, d))

        def step(
            t: int, a: Array, cell: Cell = cell, track: Array | None = track, weight: Array = r[d]
        ) -> None:
            xp.matmul(weight, h, out=gates)
            xp.add(gates, a, out=gates)
            cell.advance(gates, c, new)
            over = common.ended(xp, lens, t)
            xp.copyto(c, new, where=True if over is None else xp.logical_not(over))
            cell.shown(new, new)
            xp.multiply(new, n.gate(gates, 1), out=new)
            common.advance(xp, over, h, new, None if track is None else track[t])

        bias = common.bias_of(xp, n, b, d, buffers.get("bias"))
        common.unroll(xp, n, d, x, w[d], bias, buffers, step)
        common.last_state(xp, n, d, h, lens, y_h)
        common.last_state(xp, n, d, c, lens, y_c)


def _backward_room(
    x: Array | Spec, r: Array | Spec, b: Array | Spec | None, attributes: Mapping[str, Any]
) -> tuple[Recurrence, bool, dict[str, Spec]]:
    n, coupled = _node(x, r, attributes)
    state = (n.hidden, n.batch)
    _, flags = common.spare(n, slopes=not n.plain)
    shapes = products.backward_shapes(n, n.rows)
    shapes["cells"] = (n.times + 1, *state)
    shapes |= dict.fromkeys(("dh", "dc", "new", "s", "q", "bend", "past", "spare"), state)
    if not n.plain:
        shapes["slopes"] = shapes["slab"]
    return n, coupled, common.room(n, x.dtype, shapes, b=b, flags=flags)


def _backward_work(
    x: Spec,
    w: Spec,
    r: Spec,
    b: Spec | None,
    *others: Spec | None,
    out: Sequence[Spec | None],
    **attributes: Any,
) -> list[Spec]:
    return list(_backward_room(x, r, b, attributes)[2].values())


def lstm_grad(
    xp: Any,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lens: Array | None,
    h0: Array | None,
    c0: Array | None,
    p: Array | None,
    y: Array,
    dy: Array | None = None,
    dy_h: Array | None = None,
    dy_c: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    **attributes: Any,
) -> None:
    """Gradients by X, W, R, B, the initial states and P, from Y and its gradients.

    The gates of all times are computed again (Y holds every hidden state), then the cell states;
    the walk backwards replaces the gates by the gradients of their pre-activations.
    """
    n, coupled, room = _backward_room(x, r, b, attributes)
    buffers = dict(zip(room, work, strict=True))
    dx, dw, dr, db, dh0, dc0, dp = (*out, None)[:7]
    slab, cells = buffers["slab"], buffers["cells"]
    for d in range(len(n.backwards)):
        cell = Cell(xp, n, d, coupled, p, buffers)
        hidden = products.Hidden(xp, n, d, y, h0, lens)
        bias = common.bias_of(xp, n, b, d, buffers.get("bias"))
        products.recompute(xp, n, x, w[d], r[d], bias, hidden, slab, buffers)
        xp.copyto(cells[0], 0 if c0 is None else n.state(c0, d))
        _states(xp, n, d, cell, lens, buffers)
        common.first_gradient(xp, n, d, dy_h, lens, buffers["dh"])
        common.first_gradient(xp, n, d, dy_c, lens, buffers["dc"])
        dps = None if dp is None or p is None else dp[d].reshape(3, n.hidden, 1)
        _backward(xp, n, d, cell, lens, r[d], n.track(dy, d), dps, buffers)

        def then(da: Array, before: Array, add: Callable[..., Any], d: int = d) -> None:
            if dr is not None:
                add(da, before, dr[d])

        products.weight_gradients(xp, n, d, x, w[d], slab, dx, dw, hidden, buffers, then)
        if db is not None:
            xp.sum(slab, axis=(0, 2), out=db[d, : n.rows])
            xp.copyto(db[d, n.rows :], db[d, : n.rows])
        for result, found in ((dh0, buffers["dh"]), (dc0, buffers["dc"])):
            if result is not None:
                xp.copyto(n.state(result, d), found)


def _states(
    xp: Any, n: Recurrence, d: int, cell: Cell, lens: Array | None, buffers: Mapping[str, Array]
) -> None:
    """Activate the gates of every time and compute the cell state after each."""
    slab, cells, slopes = buffers["slab"], buffers["cells"], buffers.get("slopes")
    for k, t in enumerate(n.order(d)):
        cell.advance(slab[t], cells[k], cells[k + 1], None if slopes is None else slopes[t])
        over = common.ended(xp, lens, t)
        if over is not None:
            xp.copyto(cells[k + 1], cells[k], where=over)


def _backward(
    xp: Any,
    n: Recurrence,
    d: int,
    cell: Cell,
    lens: Array | None,
    r: Array,
    dy: Array,
    dp: Array | None,
    buffers: Mapping[str, Array],
) -> None:
    """Walk back in time; the gates become the gradients of their pre-activations.

    With `do = dh · h(c) · o'`,  `dc += dh · o · h'(c)`:

        di = dc · g · i'    df = dc · c₋₁ · f'    dg = dc · i · g'    dc₋₁ = dc · f    dh₋₁ = Rᵀ da
    """
    slab, cells, slopes = buffers["slab"], buffers["cells"], buffers.get("slopes")
    dh, dc, new, s = (buffers[name] for name in ("dh", "dc", "new", "s"))
    q, bend, past = (buffers[name] for name in ("q", "bend", "past"))
    if dp is not None:
        dp[...] = 0
    for k, t in reversed(list(enumerate(n.order(d)))):
        i, o, f, g = (n.gate(slab[t], gate) for gate in range(4))
        bends = None if slopes is None else slopes[t]
        over = common.ended(xp, lens, t)
        common.arrive(xp, dh, None if dy is None else dy[t], over, new)

        cell.shown(cells[k + 1], s, bend)
        xp.multiply(s, new, out=s)
        xp.multiply(bend, o, out=bend)
        xp.multiply(bend, new, out=bend)
        xp.add(dc, bend, out=dc)
        xp.multiply(s, cell.slope(1, o, bends, q), out=o)
        if cell.p is not None:
            xp.multiply(o, cell.p[1], out=s)
            xp.add(dc, s, out=dc)

        xp.multiply(dc, f, out=past)
        xp.multiply(dc, i, out=s)
        _forget(xp, cell, (f, g), cells[k], dc, new, bends, bend)
        xp.multiply(s, cell.slope(3, g, bends, q), out=g)
        xp.multiply(new, cell.slope(0, i, bends, q), out=i)

        if over is not None:
            xp.copyto(slab[t], 0, where=over)
            xp.copyto(past, dc, where=over)
        if cell.p is not None:
            _peepholes(xp, cell.p, (i, o, f), (cells[k], cells[k + 1], cells[k]), dp, past, s)
        xp.copyto(dc, past)
        if over is None:
            xp.matmul(r.T, slab[t], out=dh)
        else:
            xp.matmul(r.T, slab[t], out=new)
            xp.add(dh, new, out=dh)


def _forget(
    xp: Any, cell: Cell, gates: tuple[Array, Array], before: Array, dc: Array, new: Array,
    bends: Array | None, bend: Array,
) -> None:  # fmt: skip
    """The gradient of the forget gate in its place, and `dc` times what the input gate lets in."""
    f, g = gates
    if cell.coupled:
        xp.subtract(g, before, out=new)
        xp.multiply(new, dc, out=new)
        f[...] = 0
        return
    slope = cell.slope(2, f, bends, bend)
    xp.multiply(dc, before, out=new)
    xp.multiply(new, slope, out=f)
    xp.multiply(dc, g, out=new)


def _peepholes(
    xp: Any,
    p: Array,
    gates: Arrays,
    seen: Arrays,
    dp: Array | None,
    dc: Array,
    s: Array,
) -> None:
    """Add what flows through the peepholes to `dc`, and the gradient of their weights to `dp`."""
    for k, (da, c) in enumerate(zip(gates, seen, strict=True)):
        if k != 1:
            xp.multiply(da, p[k], out=s)
            xp.add(dc, s, out=dc)
        if dp is not None:
            xp.multiply(da, c, out=s)
            met = dp[k]
            xp.add(met, s.sum(axis=1, keepdims=True), out=met)


for _name, _function, _work in (
    ("LSTM", lstm, _forward_work),
    ("ai.gradtool::LSTMGrad", lstm_grad, _backward_work),
):
    _run, _space = widened(_function, _work)
    kernel(_name, work=_space)(_run)
