"""The products over all times in the gradients of recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gradtool.operators.recurrence import Recurrence
from gradtool.ops.recurrent.kernel_shared import projected, rows_of, take
from gradtool.ops.shared.types import Array


class Hidden:
    """The hidden state *before* each time, which Y holds one time earlier."""

    def __init__(
        self, xp: Any, n: Recurrence, direction: int, y: Array, h0: Array | None, lens: Array | None
    ) -> None:
        self.xp, self.n, self.backwards = xp, n, n.backwards[direction]
        self.track, self.lens = n.track(y, direction), lens
        self.first = 0 if h0 is None else n.state(h0, direction).T

    def rows(self, times: slice, buffer: Array) -> Array:
        """The states before some times, [times, B, H]."""
        xp, low, high = self.xp, times.start, times.stop
        out = take(buffer, (high - low, self.n.batch, self.n.hidden))
        if not self.backwards:
            edge = 1 if low == 0 else 0
            xp.copyto(out[edge:], self.track[low + edge - 1 : high - 1])
            xp.copyto(out[:edge], self.first)
            return out
        edge = 1 if high == self.n.times else 0
        xp.copyto(out[: high - low - edge], self.track[low + 1 : high + 1 - edge])
        xp.copyto(out[high - low - edge :], self.first)
        if self.lens is not None:
            for t in range(low, high):
                ending = xp.equal(self.lens, t + 1)[:, None]
                xp.copyto(out[t - low], self.first, where=ending)
        return out


def recompute(
    xp: Any,
    n: Recurrence,
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None,
    hidden: Hidden,
    slab: Array,
    buffers: Mapping[str, Array],
) -> None:
    """`slab = w xᵀ + bias`, plus `r h₋₁ᵀ` in its first rows, as many as `r` has."""
    for times in n.chunks():
        a = projected(xp, n, x, w, bias, times, buffers)
        before = hidden.rows(times, buffers["before"])
        linked = take(buffers["linked"], (r.shape[0], a.shape[1] * n.batch))
        xp.matmul(r, before.reshape(-1, n.hidden).T, out=linked)
        linked = linked.reshape(r.shape[0], *a.shape[1:]).swapaxes(0, 1)
        a, rows = a.swapaxes(0, 1), r.shape[0]
        xp.add(a[:, :rows], linked, out=slab[times, :rows])
        xp.copyto(slab[times, rows : n.rows], a[:, rows:])


def weight_gradients(
    xp: Any,
    n: Recurrence,
    direction: int,
    x: Array,
    w: Array,
    slab: Array,
    dx: Array | None,
    dw: Array | None,
    hidden: Hidden,
    buffers: Mapping[str, Array],
    then: Callable[..., Any],
) -> None:
    """From the gradients of pre-activations in `slab`: those of X (added) and W (written).

    `then(da, h₋₁, add)` is called for each chunk, `da` of [rows, times · B], to add to others.
    """
    for times in n.chunks():
        count = times.stop - times.start
        da = take(buffers["gathered"], (slab.shape[1], count, n.batch))
        xp.copyto(da, slab[times].swapaxes(0, 1))
        da = da.reshape(slab.shape[1], count * n.batch)
        rows = rows_of(xp, n, x, times, buffers.get("x"))
        add = adder(xp, buffers["linked"], first=times.start == 0)
        if dw is not None:
            add(da[: n.rows], rows, dw[direction])
        if dx is not None:
            _input_gradient(xp, n, direction, da[: n.rows].T, w, times, dx, buffers)
        before = hidden.rows(times, buffers["before"]).reshape(-1, n.hidden)
        then(da, before, add)


def _input_gradient(
    xp: Any,
    n: Recurrence,
    direction: int,
    da: Array,
    w: Array,
    times: slice,
    dx: Array,
    buffers: Mapping[str, Array],
) -> None:
    if not n.layout and not direction:
        xp.matmul(da, w, out=dx[times].reshape(-1, n.inputs))
        return
    made = take(buffers["linked"], (da.shape[0], n.inputs))
    xp.matmul(da, w, out=made)
    made = made.reshape(times.stop - times.start, n.batch, n.inputs)
    target = (dx.swapaxes(0, 1) if n.layout else dx)[times]
    if direction:
        xp.add(target, made, out=target)
    else:
        xp.copyto(target, made)


def adder(xp: Any, spare: Array, *, first: bool) -> Callable[..., Any]:
    """A function that adds `a @ b` to `out`, in blocks of rows, or writes it if `first`."""

    def add(a: Array, b: Array, out: Array) -> None:
        if first:
            xp.matmul(a, b, out=out)
            return
        step = max(1, spare.size // b.shape[1])
        for start in range(0, a.shape[0], step):
            part = out[start : start + step]
            temporary = take(spare, part.shape)
            xp.matmul(a[start : start + step], b, out=temporary)
            xp.add(part, temporary, out=part)

    return add


def backward_shapes(n: Recurrence, rows: int) -> dict[str, tuple[int, ...]]:
    """The buffers of a gradient whose slab has `rows` rows."""
    size = n.many * n.batch
    return {
        "slab": (n.times, rows, n.batch),
        "before": (size * n.hidden,),
        "gathered": (size * rows,),
        "linked": (max(size * n.rows, size * n.inputs, n.inputs, n.hidden),),
    }
