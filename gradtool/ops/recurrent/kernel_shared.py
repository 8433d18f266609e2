"""What the kernels of recurrent operators share: directions, layouts, products, buffers.

Inside, time is the first axis and samples are the last one: the gates of one time are [rows, B],
each gate a contiguous part of them, and a state is [H, B].  So the products of a single time run
at the speed of large ones.  A *slab* [T, rows, B] holds something for every time.  Products over
all times are taken for several times at once, *chunks* of about `ROWS` samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.activations import Activation
from gradtool.operators.recurrence import Recurrence
from gradtool.ops.recurrent.kernel_activations import temporaries
from gradtool.ops.shared.types import Array, DType


def spare(n: Recurrence, *, slopes: bool) -> tuple[bool, bool]:
    """Whether activating gates needs a spare buffer, and whether flags."""
    return temporaries((a for acts in n.acts for a in acts), n.clip, slopes=slopes)


def take(buffer: Array, shape: Sequence[int]) -> Array:
    """The first elements of a flat buffer, as an array of `shape`."""
    return buffer[: math.prod(shape)].reshape(shape)


def room(
    n: Recurrence,
    dtype: DType,
    own: Mapping[str, tuple[int, ...]],
    *,
    b: Array | Spec | None = None,
    flags: bool = False,
    chunk: bool = True,
) -> dict[str, Spec]:
    """Buffers by name, those of the bias `b` and of a `chunk` of products with W among them."""
    size = n.many * n.batch
    shapes = dict(own) if b is None else {"bias": (n.rows,), **own}
    if chunk:
        shapes["chunk"] = (size * n.rows,)
    if n.layout:
        shapes["x"] = (size, n.inputs)
    found = {"flags": Spec((n.hidden, n.batch), np.dtype(bool))} if flags else {}
    return found | {name: Spec(shape, dtype) for name, shape in shapes.items()}


def bias_of(
    xp: Any,
    n: Recurrence,
    b: Array | None,
    direction: int,
    out: Array,
    *,
    split: bool = False,
) -> Array | None:
    """`Wb + Rb`, or Wb alone for the last gate if `split`, as a column; None without a bias."""
    if b is None:
        return None
    b, end = b[direction], n.rows - n.hidden if split else n.rows
    xp.copyto(out, b[: n.rows])
    met = out[:end]
    xp.add(met, b[n.rows : n.rows + end], out=met)
    return out[:, None]


def rows_of(xp: Any, n: Recurrence, x: Array, times: slice, buffer: Array) -> Array:
    """X at some times, as a matrix [times · B, I]."""
    if not n.layout:
        return x[times].reshape(-1, n.inputs)
    count = times.stop - times.start
    rows = take(buffer.reshape(-1), (count, n.batch, n.inputs))
    xp.copyto(rows, x.swapaxes(0, 1)[times])
    return rows.reshape(-1, n.inputs)


def projected(
    xp: Any,
    n: Recurrence,
    x: Array,
    w: Array,
    bias: Array | None,
    times: slice,
    buffers: Mapping[str, Array],
) -> Array:
    """`w xᵀ + bias` at some times, [rows, times, B]."""
    count = times.stop - times.start
    a = take(buffers["chunk"], (n.rows, count * n.batch))
    xp.matmul(w, rows_of(xp, n, x, times, buffers.get("x")).T, out=a)
    if bias is not None:
        xp.add(a, bias, out=a)
    return a.reshape(n.rows, count, n.batch)


def unroll(
    xp: Any,
    n: Recurrence,
    direction: int,
    x: Array,
    w: Array,
    bias: Array | None,
    buffers: Mapping[str, Array],
    step: Callable[..., Any],
) -> None:
    """Call `step(t, a)` for every time in order, with `a = w x[t]ᵀ + bias`."""
    order = n.order(direction)
    for start in range(0, n.times, n.many):
        part = order[start : start + n.many]
        low = min(part)
        a = projected(xp, n, x, w, bias, slice(low, low + len(part)), buffers)
        for t in part:
            step(t, a[:, t - low])


def ended(xp: Any, lens: Array | None, t: int) -> Array | None:
    """Which samples have ended at time t, as a row; None without lengths."""
    return None if lens is None else xp.less_equal(lens, t)[None, :]


def advance(xp: Any, over: Array | None, h: Array, new: Array, y: Array | None) -> None:
    """Let `h` become `new`, and show that; samples that are `over` keep `h` and show 0."""
    if y is not None:
        xp.copyto(y, new.T)
    if over is None:
        xp.copyto(h, new)
        return
    xp.copyto(h, new, where=xp.logical_not(over))
    if y is not None:
        xp.copyto(y, 0, where=over.T)


def last_state(
    xp: Any, n: Recurrence, direction: int, state: Array, lens: Array | None, out: Array | None
) -> None:
    """Write a final state; that of an empty sequence is zero."""
    if out is not None:
        xp.copyto(n.state(out, direction), state)
        if lens is not None:
            xp.copyto(n.state(out, direction), 0, where=ended(xp, lens, 0))


def first_gradient(
    xp: Any, n: Recurrence, direction: int, given: Array | None, lens: Array | None, out: Array
) -> None:
    """The gradient of a final state, with which the walk backwards starts."""
    xp.copyto(out, 0 if given is None else n.state(given, direction))
    if lens is not None:
        xp.copyto(out, 0, where=ended(xp, lens, 0))


def arrive(xp: Any, dh: Array, dy: Array, over: Array | None, out: Array) -> None:
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


def slope(xp: Any, act: Activation, y: Array, bend: Array | None, out: Array) -> Array:
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
