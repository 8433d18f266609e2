"""RNN and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.operators.activations import Activation
from gradtool.operators.recurrence import Recurrence, recurrence
from gradtool.ops.kernels import kernel
from gradtool.ops.recurrent import kernel_products as products
from gradtool.ops.recurrent import kernel_shared as common
from gradtool.ops.recurrent.kernel_activations import activate
from gradtool.ops.shared.types import Array, Arrays
from gradtool.ops.shared.upcast import widened

DEFAULT = ("Tanh",)


def _forward_room(
    x: Array | Spec, r: Array | Spec, b: Array | Spec | None, attributes: Mapping[str, Any]
) -> tuple[Recurrence, dict[str, Spec]]:
    n = recurrence(x, r, 1, DEFAULT, **attributes)
    spare, flags = common.spare(n, slopes=False)
    shapes = dict.fromkeys(("h", "new", *["spare"] * spare), (n.hidden, n.batch))
    return n, common.room(n, x.dtype, shapes, b=b, flags=flags)


def _forward_work(
    x: Spec,
    w: Spec,
    r: Spec,
    b: Spec | None = None,
    *others: Spec | None,
    out: Sequence[Spec | None],
    **attributes: Any,
) -> list[Spec]:
    return list(_forward_room(x, r, b, attributes)[1].values())


def rnn(
    xp: Any,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lens: Array | None = None,
    h0: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    **attributes: Any,
) -> None:
    """`(Y, Y_h)`; the products with W are taken for several times at once."""
    n, room = _forward_room(x, r, b, attributes)
    buffers = dict(zip(room, work, strict=True))
    y, y_h = (*out, None)[:2]
    h, new, spare, flags = (buffers.get(name) for name in ("h", "new", "spare", "flags"))
    for d, (act,) in enumerate(n.acts):
        track = n.track(y, d)
        xp.copyto(h, 0 if h0 is None else n.state(h0, d))

        def step(
            t: int,
            a: Array,
            act: Activation = act,
            track: Array | None = track,
            weight: Array = r[d],
        ) -> None:
            xp.matmul(weight, h, out=new)
            xp.add(new, a, out=new)
            activate(xp, act, n.clip, new, None, spare, flags)
            over = common.ended(xp, lens, t)
            common.advance(xp, over, h, new, None if track is None else track[t])

        bias = common.bias_of(xp, n, b, d, buffers.get("bias"))
        common.unroll(xp, n, d, x, w[d], bias, buffers, step)
        common.last_state(xp, n, d, h, lens, y_h)


def _backward_room(
    x: Array | Spec, r: Array | Spec, b: Array | Spec | None, attributes: Mapping[str, Any]
) -> tuple[Recurrence, dict[str, Spec]]:
    n = recurrence(x, r, 1, DEFAULT, **attributes)
    spare, flags = common.spare(n, slopes=not n.plain)
    shapes = products.backward_shapes(n, n.rows)
    shapes |= dict.fromkeys((*["spare"] * spare, "dh", "new", "s"), (n.hidden, n.batch))
    b = None if n.plain else b
    return n, common.room(n, x.dtype, shapes, b=b, flags=flags, chunk=not n.plain)


def _backward_work(
    x: Spec,
    w: Spec,
    r: Spec,
    b: Spec | None,
    *others: Spec | None,
    out: Sequence[Spec | None],
    **attributes: Any,
) -> list[Spec]:
    return list(_backward_room(x, r, b, attributes)[1].values())


def rnn_grad(
    xp: Any,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lens: Array | None,
    h0: Array | None,
    y: Array,
    dy: Array | None = None,
    dy_h: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    **attributes: Any,
) -> None:
    """Gradients by X, W, R, B and the initial state, from Y and its gradients.

    Tanh and Sigmoid tell their slope by Y; others are computed again.
    """
    n, room = _backward_room(x, r, b, attributes)
    buffers = dict(zip(room, work, strict=True))
    dx, dw, dr, db, dh0 = (*out, None)[:5]
    for d in range(len(n.backwards)):
        hidden = products.Hidden(xp, n, d, y, h0, lens)
        if not n.plain:
            bias = common.bias_of(xp, n, b, d, buffers.get("bias"))
            products.recompute(xp, n, x, w[d], r[d], bias, hidden, buffers["slab"], buffers)
        common.first_gradient(xp, n, d, dy_h, lens, buffers["dh"])
        _backward(xp, n, d, lens, r[d], n.track(y, d), n.track(dy, d), buffers)

        def then(da: Array, before: Array, add: Callable[..., Any], d: int = d) -> None:
            if dr is not None:
                add(da, before, dr[d])

        slab = buffers["slab"]
        products.weight_gradients(xp, n, d, x, w[d], slab, dx, dw, hidden, buffers, then)
        if db is not None:
            xp.sum(slab, axis=(0, 2), out=db[d, : n.rows])
            xp.copyto(db[d, n.rows :], db[d, : n.rows])
        if dh0 is not None:
            xp.copyto(n.state(dh0, d), buffers["dh"])


def _backward(
    xp: Any,
    n: Recurrence,
    d: int,
    lens: Array | None,
    r: Array,
    y: Array,
    dy: Array,
    buffers: Mapping[str, Array],
) -> None:
    """Walk back in time: `da = dh · f'`,  `dh₋₁ = Rᵀ da`."""
    slab, dh, new, s = (buffers[name] for name in ("slab", "dh", "new", "s"))
    (act,) = n.acts[d]
    for t in reversed(n.order(d)):
        over, da = common.ended(xp, lens, t), slab[t]
        common.arrive(xp, dh, None if dy is None else dy[t], over, new)
        if n.plain:
            xp.copyto(s, y[t].T)
            common.slope(xp, act, s, None, da)
        else:
            activate(xp, act, n.clip, da, s, buffers.get("spare"), buffers.get("flags"))
            xp.copyto(da, s)
        xp.multiply(da, new, out=da)
        if over is None:
            xp.matmul(r.T, da, out=dh)
        else:
            xp.copyto(da, 0, where=over)
            xp.matmul(r.T, da, out=new)
            xp.add(dh, new, out=dh)


for _name, _function, _work in (
    ("RNN", rnn, _forward_work),
    ("ai.gradtool::RNNGrad", rnn_grad, _backward_work),
):
    _run, _space = widened(_function, _work)
    kernel(_name, work=_space)(_run)
