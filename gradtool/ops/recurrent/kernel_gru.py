"""GRU and its gradient.  Gates lie in the order z, r, h in the rows of W and R."""

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
from gradtool.ops.recurrent.kernel_products import Hidden
from gradtool.ops.shared.types import Array, Arrays, Specs
from gradtool.ops.shared.upcast import widened

DEFAULT = ("Sigmoid", "Tanh")


def _node(
    x: Array | Spec, r: Array | Spec, attributes: Mapping[str, Any]
) -> tuple[Recurrence, bool]:
    options = dict(attributes)
    linear = bool(options.pop("linear_before_reset", 0))
    return recurrence(x, r, 3, DEFAULT, **options), linear


def _forward_room(
    x: Array | Spec, r: Array | Spec, b: Array | Spec | None, attributes: Mapping[str, Any]
) -> tuple[Recurrence, bool, dict[str, Spec]]:
    n, linear = _node(x, r, attributes)
    spare, flags = common.spare(n, slopes=False)
    shapes = dict.fromkeys(("h", "new", *["spare"] * spare), (n.hidden, n.batch))
    gates = (n.rows, n.batch)
    return n, linear, common.room(n, x.dtype, {"gates": gates, **shapes}, b=b, flags=flags)


def _forward_work(
    x: Spec,
    w: Spec,
    r: Spec,
    b: Spec | None = None,
    *others: Spec,
    out: Specs,
    **attributes: Any,
) -> list[Spec]:
    return list(_forward_room(x, r, b, attributes)[2].values())


def gru(
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
    n, linear, room = _forward_room(x, r, b, attributes)
    buffers = dict(zip(room, work, strict=True))
    y, y_h = (*out, None)[:2]
    gates, h, new = (buffers[name] for name in ("gates", "h", "new"))
    spare, flags = buffers.get("spare"), buffers.get("flags")
    size = n.hidden
    z, reset, hh = (n.gate(gates, k) for k in range(3))
    for d, (act_f, act_g) in enumerate(n.acts):
        track = n.track(y, d)
        xp.copyto(h, 0 if h0 is None else n.state(h0, d))
        inner = b[d, 5 * size :, None] if linear and b is not None else None

        def step(
            t: int,
            a: Array,
            f: Activation = act_f,
            g: Activation = act_g,
            track: Array | None = track,
            weight: Array = r[d],
            inner: Array | None = inner,
        ) -> None:
            """The hidden state of time `t` from the products of its gates with X."""
            both, count = gates[: 2 * size], 3 * size if linear else 2 * size
            xp.matmul(weight[:count], h, out=gates[:count])
            xp.add(both, a[: 2 * size], out=both)
            activate(xp, f, n.clip, z, None, spare, flags)
            activate(xp, f, n.clip, reset, None, spare, flags)
            if linear:
                if inner is not None:
                    xp.add(hh, inner, out=hh)
                xp.multiply(hh, reset, out=hh)
            else:
                xp.multiply(h, reset, out=new)
                xp.matmul(weight[2 * size :], new, out=hh)
            xp.add(hh, a[2 * size :], out=hh)
            activate(xp, g, n.clip, hh, None, spare, flags)
            xp.subtract(h, hh, out=new)
            xp.multiply(new, z, out=new)
            xp.add(new, hh, out=new)
            over = common.ended(xp, lens, t)
            common.advance(xp, over, h, new, None if track is None else track[t])

        bias = common.bias_of(xp, n, b, d, buffers.get("bias"), split=linear)
        common.unroll(xp, n, d, x, w[d], bias, buffers, step)
        common.last_state(xp, n, d, h, lens, y_h)


def _backward_room(
    x: Array | Spec, r: Array | Spec, b: Array | Spec | None, attributes: Mapping[str, Any]
) -> tuple[Recurrence, bool, dict[str, Spec]]:
    n, linear = _node(x, r, attributes)
    spare, flags = common.spare(n, slopes=not n.plain)
    shapes = products.backward_shapes(n, 4 * n.hidden)
    names = ("dh", "new", "s", "q", "kept", *["spare"] * spare)
    shapes |= dict.fromkeys(names, (n.hidden, n.batch))
    if not n.plain:
        shapes["slopes"] = (n.times, n.rows, n.batch)
    return n, linear, common.room(n, x.dtype, shapes, b=b, flags=flags)


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


def gru_grad(
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

    The gates of all times are computed again: Y holds every hidden state.  The slab has the gates
    and, as a fourth part, `q`: `Rₕ h₋₁ + Rbₕ` if the reset comes after the product, else `r · h₋₁`.
    The walk backwards replaces the gates by the gradients of their pre-activations, and the
    former q by its gradient.
    """
    n, linear, room = _backward_room(x, r, b, attributes)
    buffers = dict(zip(room, work, strict=True))
    dx, dw, dr, db, dh0 = (*out, None)[:5]
    slab, size = buffers["slab"], n.hidden
    for d in range(len(n.backwards)):
        hidden = products.Hidden(xp, n, d, y, h0, lens)
        bias = common.bias_of(xp, n, b, d, buffers.get("bias"), split=linear)
        _again(xp, n, d, linear, x, w[d], r[d], b, bias, hidden, buffers)
        common.first_gradient(xp, n, d, dy_h, lens, buffers["dh"])
        _backward(xp, n, d, linear, hidden, lens, r[d], n.track(dy, d), buffers)

        def then(da: Array, before: Array, add: Callable[..., Any], d: int = d) -> None:
            if dr is None:
                return
            add(da[: 2 * size], before, dr[d, : 2 * size])
            if linear:
                add(da[3 * size :], before, dr[d, 2 * size :])
            else:
                add(da[2 * size : 3 * size], da[3 * size :].T, dr[d, 2 * size :])

        products.weight_gradients(xp, n, d, x, w[d], slab, dx, dw, hidden, buffers, then)
        if db is not None:
            xp.sum(slab[:, : n.rows], axis=(0, 2), out=db[d, : n.rows])
            xp.copyto(db[d, n.rows :], db[d, : n.rows])
            if linear:
                xp.sum(slab[:, n.rows :], axis=(0, 2), out=db[d, 5 * size :])
        if dh0 is not None:
            xp.copyto(n.state(dh0, d), buffers["dh"])


def _again(
    xp: Any,
    n: Recurrence,
    d: int,
    linear: int,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    bias: Array | None,
    hidden: Hidden,
    buffers: Mapping[str, Array],
) -> None:
    """The gates and q of all times."""
    slab, slopes, size = buffers["slab"], buffers.get("slopes"), n.hidden
    (act_f, act_g), s = n.acts[d], buffers["s"]
    spare, flags = buffers.get("spare"), buffers.get("flags")
    inner = b[d, 5 * size :, None] if linear and b is not None else None
    count = 3 * size if linear else 2 * size
    for times in n.chunks():
        a = common.projected(xp, n, x, w, bias, times, buffers).swapaxes(0, 1)
        before = hidden.rows(times, buffers["before"])
        linked = common.take(buffers["linked"], (count, a.shape[0] * n.batch))
        xp.matmul(r[:count], before.reshape(-1, size).T, out=linked)
        linked = linked.reshape(count, a.shape[0], n.batch).swapaxes(0, 1)
        xp.add(a[:, : 2 * size], linked[:, : 2 * size], out=slab[times, : 2 * size])
        xp.copyto(slab[times, 2 * size : 3 * size], a[:, 2 * size :])
        if linear:
            xp.copyto(slab[times, 3 * size :], linked[:, 2 * size :])
        for t in range(times.start, times.stop):
            z, reset, hh, q = (n.gate(slab[t], k) for k in range(4))
            bends = [None if slopes is None else n.gate(slopes[t], k) for k in range(3)]
            activate(xp, act_f, n.clip, z, bends[0], spare, flags)
            activate(xp, act_f, n.clip, reset, bends[1], spare, flags)
            if linear:
                if inner is not None:
                    xp.add(q, inner, out=q)
                xp.multiply(q, reset, out=s)
            else:
                xp.multiply(before[t - times.start].T, reset, out=q)
                xp.matmul(r[2 * size :], q, out=s)
            xp.add(hh, s, out=hh)
            activate(xp, act_g, n.clip, hh, bends[2], spare, flags)


def _backward(
    xp: Any,
    n: Recurrence,
    d: int,
    linear: int,
    hidden: Hidden,
    lens: Array | None,
    r: Array,
    dy: Array,
    buffers: Mapping[str, Array],
) -> None:
    """Walk back in time; the gates become the gradients of their pre-activations.

    dz = dh · (h₋₁ - hh) · z'      dhh = dh · (1 - z) · hh'
    linear:  dq = dhh · r          dr = dhh · q · r'         dh₋₁ = dh · z + Rᵀ [dz, dr, dq]
    else:    ds = Rₕᵀ dhh          dr = ds · h₋₁ · r'        dh₋₁ = dh · z + Rᵀ [dz, dr] + ds · r
    """
    slab, slopes, size = buffers["slab"], buffers.get("slopes"), n.hidden
    dh, new, s, bend, kept = (buffers[name] for name in ("dh", "new", "s", "q", "kept"))
    act_f, act_g = n.acts[d]
    for t in reversed(n.order(d)):
        z, reset, hh, q = (n.gate(slab[t], k) for k in range(4))
        bends = [None if slopes is None else n.gate(slopes[t], k) for k in range(3)]
        over = common.ended(xp, lens, t)
        before = hidden.rows(slice(t, t + 1), buffers["before"])[0].T
        common.arrive(xp, dh, None if dy is None else dy[t], over, new)

        xp.multiply(new, z, out=kept)
        xp.subtract(before, hh, out=s)
        xp.multiply(s, new, out=s)
        xp.subtract(1, z, out=bend)
        xp.multiply(new, bend, out=new)
        xp.multiply(s, common.slope(xp, act_f, z, bends[0], bend), out=z)
        xp.multiply(new, common.slope(xp, act_g, hh, bends[2], bend), out=hh)
        slope_r = common.slope(xp, act_f, reset, bends[1], bend)
        if linear:
            xp.multiply(hh, q, out=s)
            xp.multiply(hh, reset, out=q)
            xp.multiply(s, slope_r, out=reset)
            xp.matmul(r[2 * size :].T, q, out=new)
        else:
            xp.matmul(r[2 * size :].T, hh, out=new)
            xp.multiply(new, before, out=s)
            xp.multiply(new, reset, out=new)
            xp.multiply(s, slope_r, out=reset)
        xp.add(kept, new, out=kept)
        xp.matmul(r[: 2 * size].T, slab[t, : 2 * size], out=new)
        xp.add(kept, new, out=kept)
        if over is None:
            xp.copyto(dh, kept)
        else:
            xp.copyto(slab[t], 0, where=over)
            xp.copyto(kept, 0, where=over)
            xp.add(dh, kept, out=dh)


for _name, _function, _work in (
    ("GRU", gru, _forward_work),
    ("ai.gradtool::GRUGrad", gru_grad, _backward_work),
):
    _run, _space = widened(_function, _work)
    kernel(_name, work=_space)(_run)
