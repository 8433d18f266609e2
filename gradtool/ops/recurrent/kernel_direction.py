"""One direction of a recurrent operator: products, layouts, and states at the ends of sequences.

Inside, time is the first axis and samples are the last one: the gates of one time are [rows, B],
each gate a contiguous part of them, and a state is [H, B].  So the products of a single time run
at the speed of large ones.  A *slab* [T, rows, B] holds something for every time.  Products over
all times are taken for several times at once, *chunks* of about `ROWS` samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gradtool.operators.recurrence import Recurrence
from gradtool.ops.shared.types import Array


class Operands(NamedTuple):
    """Operands of a node, absent ones None; `firsts` are the initial states."""

    x: Any
    w: Any
    r: Any
    b: Any
    lens: Any
    firsts: Sequence[Any]
    p: Any


class Direction:
    """The operands of direction `d`, and buffers by name.

    `linear` says that the last gate adds its bias to the product with R; the gradient has Y, too.
    """

    def __init__(
        self, xp: Any, n: Recurrence, d: int, given: Operands, buffers: Mapping[str, Array], *,
        linear: bool, y: Array | None = None,
    ) -> None:  # fmt: skip
        self.xp, self.n, self.d, self.given, self.buffers = xp, n, d, given, buffers
        self.w, self.r, self.linear, self.track = given.w[d], given.r[d], linear, n.track(y, d)
        self.h, self.new = buffers.get("h"), buffers["new"]
        self.over: Array | None = None  # which samples have ended at the time that is taken
        self.bias = self._bias()

    def _bias(self) -> Array | None:
        """`Wb + Rb`, or Wb alone for the last gate if `linear`, as a column."""
        xp, n, out = self.xp, self.n, self.buffers.get("bias")
        if out is None:
            return None
        b, end = self.given.b[self.d], n.rows - n.hidden if self.linear else n.rows
        xp.copyto(out, b[: n.rows])
        met = out[:end]
        xp.add(met, b[n.rows : n.rows + end], out=met)
        return out[:, None]

    def take_time(self, t: int) -> None:
        """Learn which samples have ended at a time."""
        lens = self.given.lens
        self.over = None if lens is None else self.xp.less_equal(lens, t)[None, :]

    # ------------------------------------------------------------------------ products

    def rows_of(self, times: slice) -> Array:
        """X at some times, as a matrix [times · B, I]."""
        n, x = self.n, self.given.x
        if not n.layout:
            return x[times].reshape(-1, n.inputs)
        shape = times.stop - times.start, n.batch, n.inputs
        rows = take(self.buffers["x"].reshape(-1), shape)
        self.xp.copyto(rows, x.swapaxes(0, 1)[times])
        return rows.reshape(-1, n.inputs)

    def projected(self, times: slice) -> Array:
        """`w xᵀ + bias` at some times, [rows, times, B]."""
        xp, n, count = self.xp, self.n, times.stop - times.start
        a = take(self.buffers["chunk"], (n.rows, count * n.batch))
        xp.matmul(self.w, self.rows_of(times).T, out=a)
        if self.bias is not None:
            xp.add(a, self.bias, out=a)
        return a.reshape(n.rows, count, n.batch)

    def linked(self, before: Array, rows: int) -> Array:
        """`r h₋₁ᵀ` of states before some times, for the first rows of R: [times, rows, B]."""
        n, count = self.n, before.shape[0]
        made = take(self.buffers["linked"], (rows, count * n.batch))
        self.xp.matmul(self.r[:rows], before.reshape(-1, n.hidden).T, out=made)
        return made.reshape(rows, count, n.batch).swapaxes(0, 1)

    def before(self, times: slice) -> Array:
        """The hidden state before some times, [times, B, H]: Y has it one time earlier."""
        xp, n, lens, low, high = self.xp, self.n, self.given.lens, times.start, times.stop
        out = take(self.buffers["before"], (high - low, n.batch, n.hidden))
        first = 0 if self.given.firsts[0] is None else n.state(self.given.firsts[0], self.d).T
        if not n.backwards[self.d]:
            edge = 1 if low == 0 else 0
            xp.copyto(out[edge:], self.track[low + edge - 1 : high - 1])
            xp.copyto(out[:edge], first)
            return out
        edge = 1 if high == n.times else 0
        xp.copyto(out[: high - low - edge], self.track[low + 1 : high + 1 - edge])
        xp.copyto(out[high - low - edge :], first)
        if lens is not None:
            for t in range(low, high):
                xp.copyto(out[t - low], first, where=xp.equal(lens, t + 1)[:, None])
        return out

    def add(self, a: Array, b: Array, out: Array, *, first: bool) -> None:
        """Add `a @ b` to `out`, in blocks of rows, or write it if `first`."""
        xp, spare = self.xp, self.buffers["linked"]
        if first:
            xp.matmul(a, b, out=out)
            return
        step = max(1, spare.size // b.shape[1])
        for start in range(0, a.shape[0], step):
            part = out[start : start + step]
            temporary = take(spare, part.shape)
            xp.matmul(a[start : start + step], b, out=temporary)
            xp.add(part, temporary, out=part)

    def add_weights(self, da: Array, before: Array, dr: Array, *, first: bool) -> None:
        """Add to the gradient of R the products of some times: slab and hidden states before."""
        self.add(da, before, dr, first=first)

    def weight_gradients(self, dx: Array | None, dw: Array | None, dr: Array | None) -> None:
        """From the slab of gradients of pre-activations: dX (added), dW and dR (written)."""
        xp, n, slab = self.xp, self.n, self.buffers["slab"]
        for times in n.chunks():
            count, first = times.stop - times.start, times.start == 0
            da = take(self.buffers["gathered"], (slab.shape[1], count, n.batch))
            xp.copyto(da, slab[times].swapaxes(0, 1))
            da = da.reshape(slab.shape[1], count * n.batch)
            if dw is not None:
                self.add(da[: n.rows], self.rows_of(times), dw, first=first)
            if dx is not None:
                self._input_gradient(da[: n.rows].T, times, dx)
            if dr is not None:
                self.add_weights(da, self.before(times).reshape(-1, n.hidden), dr, first=first)

    def _input_gradient(self, da: Array, times: slice, dx: Array) -> None:
        xp, n = self.xp, self.n
        if not n.layout and not self.d:
            xp.matmul(da, self.w, out=dx[times].reshape(-1, n.inputs))
            return
        made = take(self.buffers["linked"], (da.shape[0], n.inputs))
        xp.matmul(da, self.w, out=made)
        made = made.reshape(times.stop - times.start, n.batch, n.inputs)
        target = (dx.swapaxes(0, 1) if n.layout else dx)[times]
        if self.d:
            xp.add(target, made, out=target)
        else:
            xp.copyto(target, made)

    def bias_gradient(self, db: Array) -> None:
        """From the slab, sums of the gradients of pre-activations: for W, and for R."""
        n, slab = self.n, self.buffers["slab"]
        self.xp.sum(slab[:, : n.rows], axis=(0, 2), out=db[: n.rows])
        self.xp.copyto(db[n.rows :], db[: n.rows])
        if self.linear:
            self.xp.sum(slab[:, n.rows :], axis=(0, 2), out=db[2 * n.rows - n.hidden :])

    # -------------------------------------------------------------------------- states

    def advance(self, y: Array | None) -> None:
        """Let `h` become `new`, and show that; ended samples keep `h` and show 0."""
        xp, over, h, new = self.xp, self.over, self.h, self.new
        if y is not None:
            xp.copyto(y, new.T)
        if over is None:
            xp.copyto(h, new)
            return
        xp.copyto(h, new, where=xp.logical_not(over))
        if y is not None:
            xp.copyto(y, 0, where=over.T)

    def set_state(self, name: str, given: Array | None) -> None:
        """An initial state, or the gradient of a final one: zeros where it is not given."""
        self.xp.copyto(self.buffers[name], 0 if given is None else self.n.state(given, self.d))

    def show_state(self, name: str, out: Array | None) -> None:
        """Write a final state, or the gradient of an initial one, where it is wanted."""
        if out is not None:
            self.xp.copyto(self.n.state(out, self.d), self.buffers[name])

    def zero_empty(self, state: Array | None) -> None:
        """The final state of an empty sequence is zero, and so is its gradient."""
        if state is not None and self.given.lens is not None:
            self.xp.copyto(state, 0, where=self.xp.less_equal(self.given.lens, 0)[None, :])

    def arrive(self, dy: Array | None) -> None:
        """`new = dh + dy`, the gradient of the state after a time; of ended samples 0.

        `dh` is left with what passes: nothing, but for ended samples.  Where none has ended it is
        not changed.
        """
        xp, over, dh, new = self.xp, self.over, self.buffers["dh"], self.new
        if dy is None:
            xp.copyto(new, dh)
        else:
            xp.add(dh, dy.T, out=new)
        if over is not None:
            xp.copyto(new, 0, where=over)
            xp.copyto(dh, 0, where=xp.logical_not(over))


def take(buffer: Array, shape: Sequence[int]) -> Array:
    """The first elements of a flat buffer, as an array of `shape`."""
    return buffer[: math.prod(shape)].reshape(shape)


def sigmoid(xp: Any, a: Array) -> None:
    """`a = 1 / (1 + exp(-a))`, as a tanh: it cannot overflow."""
    xp.multiply(a, 0.5, out=a)
    xp.tanh(a, out=a)
    xp.multiply(a, 0.5, out=a)
    xp.add(a, 0.5, out=a)


def slope(xp: Any, act: str, y: Array, out: Array) -> Array:
    """The slope of an activation, from its value `y`."""
    if act == "relu":
        xp.sign(y, out=out)
    elif act == "tanh":
        xp.multiply(y, y, out=out)
        xp.subtract(1, out, out=out)
    else:
        xp.subtract(1, y, out=out)
        xp.multiply(out, y, out=out)
    return out
