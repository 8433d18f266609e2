"""What the kernels of recurrent operators share: directions, layouts, products, buffers.

Inside, time is the first axis and samples are the last one: the gates of one time are [rows, B],
each gate a contiguous part of them, and a state is [H, B].  So the products of a single time run
at the speed of large ones.  A *slab* [T, rows, B] holds something for every time.  Products over
all times are taken for several times at once, *chunks* of about `ROWS` samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.exec.kernels._activations import temporaries
from gradtool.functions._activations import Activation, resolve
from gradtool.program import Spec

ROWS = 256


@dataclass(frozen=True)
class Recurrence:
    """Sizes and options of one recurrent operator."""

    times: int
    batch: int
    inputs: int
    hidden: int
    gates: int
    layout: int
    backwards: tuple[bool, ...]
    acts: list[tuple[Activation, ...]]
    clip: float | None

    @property
    def rows(self) -> int:
        """Rows of the gates of one time."""
        return self.gates * self.hidden

    @property
    def many(self) -> int:
        """Times of a chunk."""
        return max(1, min(self.times, -(-ROWS // max(self.batch, 1))))

    @property
    def plain(self) -> bool:
        """Whether slopes follow from values: only Sigmoid and Tanh, and no clipping."""
        return self.clip is None and all(a.from_value for acts in self.acts for a in acts)

    def temporaries(self, *, slopes: bool) -> tuple[bool, bool]:
        """Whether activating gates needs a spare buffer, and whether flags."""
        return temporaries((a for acts in self.acts for a in acts), self.clip, slopes=slopes)

    def chunks(self) -> list[slice]:
        """The times, cut into chunks."""
        many = self.many
        return [slice(t, min(t + many, self.times)) for t in range(0, self.times, many)]

    def order(self, direction: int) -> range:
        """The times in the order in which they are processed."""
        return range(self.times)[:: -1 if self.backwards[direction] else 1]

    def track(self, a: Any, direction: int) -> Any:
        """One direction of Y or its gradient, [T, B, H]."""
        if a is None:
            return None
        return a[:, :, direction].swapaxes(0, 1) if self.layout else a[:, direction]

    def state(self, a: Any, direction: int) -> Any:
        """One direction of an initial or final state, [H, B]."""
        if a is None:
            return None
        return (a[:, direction] if self.layout else a[direction]).T

    def gate(self, a: Any, k: int) -> Any:
        """Gate `k` of the gates of one time, or of a slope of them."""
        return None if a is None else a[k * self.hidden : (k + 1) * self.hidden]


def recurrence(
    x: Any, r: Any, gates: int, default: tuple[str, ...], *,
    activations=None, activation_alpha=None, activation_beta=None, clip=None, direction="forward",
    hidden_size=None, layout=0,
) -> Recurrence:  # fmt: skip
    """The options of a node whose operands have the shapes of `x` and `r`."""
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    times, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
    acts = resolve(activations, activation_alpha, activation_beta, default, len(backwards))
    return Recurrence(
        times, batch, x.shape[2], r.shape[2], gates, layout, backwards, acts, clip
    )  # fmt: skip


def take(buffer, shape):
    """The first elements of a flat buffer, as an array of `shape`."""
    return buffer[: math.prod(shape)].reshape(shape)


def room(n: Recurrence, dtype, *, b=None, flags=False, chunk=True, **shapes) -> dict[str, Spec]:
    """Buffers by name, those of the bias `b` and of a `chunk` of products with W among them."""
    size = n.many * n.batch
    if b is not None:
        shapes = {"bias": (n.rows,)} | shapes
    if chunk:
        shapes["chunk"] = (size * n.rows,)
    if n.layout:
        shapes["x"] = (size, n.inputs)
    found = {"flags": Spec((n.hidden, n.batch), np.dtype(bool))} if flags else {}
    return found | {name: Spec(shape, dtype) for name, shape in shapes.items()}


def bias_of(xp, n: Recurrence, b, direction: int, out, *, split=False):
    """`Wb + Rb`, or Wb alone for the last gate if `split`, as a column; None without a bias."""
    if b is None:
        return None
    b, end = b[direction], n.rows - n.hidden if split else n.rows
    xp.copyto(out, b[: n.rows])
    xp.add(out[:end], b[n.rows : n.rows + end], out=out[:end])
    return out[:, None]


def rows_of(xp, n: Recurrence, x, times: slice, buffer):
    """X at some times, as a matrix [times · B, I]."""
    if not n.layout:
        return x[times].reshape(-1, n.inputs)
    count = times.stop - times.start
    rows = take(buffer.reshape(-1), (count, n.batch, n.inputs))
    xp.copyto(rows, x.swapaxes(0, 1)[times])
    return rows.reshape(-1, n.inputs)


def projected(xp, n: Recurrence, x, w, bias, times: slice, buffers):
    """`w xᵀ + bias` at some times, [rows, times, B]."""
    count = times.stop - times.start
    a = take(buffers["chunk"], (n.rows, count * n.batch))
    xp.matmul(w, rows_of(xp, n, x, times, buffers.get("x")).T, out=a)
    if bias is not None:
        xp.add(a, bias, out=a)
    return a.reshape(n.rows, count, n.batch)


def unroll(xp, n: Recurrence, direction: int, x, w, bias, buffers, step):
    """Call `step(t, a)` for every time in order, with `a = w x[t]ᵀ + bias`."""
    order = n.order(direction)
    for start in range(0, n.times, n.many):
        part = order[start : start + n.many]
        low = min(part)
        a = projected(xp, n, x, w, bias, slice(low, low + len(part)), buffers)
        for t in part:
            step(t, a[:, t - low])


def ended(xp, lens, t):
    """Which samples have ended at time t, as a row; None without lengths."""
    return None if lens is None else xp.less_equal(lens, t)[None, :]


def advance(xp, over, h, new, y):
    """Let `h` become `new`, and show that; samples that are `over` keep `h` and show 0."""
    if y is not None:
        xp.copyto(y, new.T)
    if over is None:
        xp.copyto(h, new)
        return
    xp.copyto(h, new, where=xp.logical_not(over))
    if y is not None:
        xp.copyto(y, 0, where=over.T)


def last_state(xp, n: Recurrence, direction: int, state, lens, out):
    """Write a final state; that of an empty sequence is zero."""
    if out is not None:
        xp.copyto(n.state(out, direction), state)
        if lens is not None:
            xp.copyto(n.state(out, direction), 0, where=ended(xp, lens, 0))


def first_gradient(xp, n: Recurrence, direction: int, given, lens, out):
    """The gradient of a final state, with which the walk backwards starts."""
    xp.copyto(out, 0 if given is None else n.state(given, direction))
    if lens is not None:
        xp.copyto(out, 0, where=ended(xp, lens, 0))


def arrive(xp, dh, dy, over, out):
    """`out = dh + dy`, the gradient of the new state; of ended samples 0, and `dh` is what passes.

    Without ended samples `dh` is not changed.
    """
    if dy is None:
        xp.copyto(out, dh)
    else:
        xp.add(dh, dy.T, out=out)
    if over is not None:
        xp.copyto(out, 0, where=over)
        xp.copyto(dh, 0, where=xp.logical_not(over))


def slope(xp, act: Activation, y, bend, out):
    """The slope of a gate of value `y`: `bend` if that is given, else from y."""
    if bend is not None:
        return bend
    if act.name == "tanh":
        xp.multiply(y, y, out=out)
        xp.subtract(1, out, out=out)
    else:
        xp.subtract(1, y, out=out)
        xp.multiply(out, y, out=out)
    return out
