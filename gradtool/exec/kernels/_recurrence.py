"""What the kernels of recurrent operators share: directions, layouts, products, buffers.

Internally time is the first axis: the arrays of batch-first models (`layout=1`) are viewed so.
A *slab* holds something for every time and sample; it lies in memory in the order of X, so that a
product over all times is one matrix product over its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradtool.functions._activations import Activation, resolve

ROWS = 256  # rows of a product that are computed before they are added to its destination


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
    def columns(self) -> int:
        """Columns of a gate slab: every gate of one sample at one time."""
        return self.gates * self.hidden

    @property
    def rows(self) -> int:
        """Rows of a slab."""
        return self.times * self.batch

    @property
    def plain(self) -> bool:
        """Whether slopes follow from values: only Sigmoid and Tanh, and no clipping."""
        return self.clip is None and all(a.from_value for acts in self.acts for a in acts)

    def slab(self, columns: int) -> tuple[int, ...]:
        """The shape of a slab, in the order of X."""
        lead = (self.batch, self.times) if self.layout else (self.times, self.batch)
        return (*lead, columns)

    def by_time(self, a: Any) -> Any:
        """A slab or X, seen with time first."""
        return a.swapaxes(0, 1) if self.layout else a

    def track(self, a: Any, direction: int) -> Any:
        """One direction of Y or its gradient, seen with time first: [T, B, H]."""
        return a[:, :, direction].swapaxes(0, 1) if self.layout else a[:, direction]

    def state(self, a: Any, direction: int) -> Any:
        """One direction of an initial or final state: [B, H]."""
        return a[:, direction] if self.layout else a[direction]

    def order(self, direction: int) -> range:
        """The times in the order in which they are processed."""
        return range(self.times)[:: -1 if self.backwards[direction] else 1]


def recurrence(
    x: Any,
    r: Any,
    gates: int,
    default: tuple[str, ...],
    *,
    activations=None,
    activation_alpha=None,
    activation_beta=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    layout=0,
) -> Recurrence:
    """The options of a node whose operands have the shapes of `x` and `r`."""
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    times, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
    acts = resolve(activations, activation_alpha, activation_beta, default, len(backwards))
    sizes = (times, batch, x.shape[2], r.shape[2])
    return Recurrence(*sizes, gates, layout, backwards, acts, clip)


def rows_first(a: Any) -> Any:
    """A contiguous slab or X as a matrix of rows."""
    return a.reshape(-1, a.shape[-1])


def product(xp, a, b, out, spare=None):
    """`out = a @ b`; with `spare`, `out += a @ b`, some rows after the others."""
    if spare is None:
        xp.matmul(a, b, out=out)
        return
    step = spare.size // b.shape[1]
    for start in range(0, a.shape[0], step):
        part = out[start : start + step]
        temporary = spare[: part.size].reshape(part.shape)
        xp.matmul(a[start : start + step], b, out=temporary)
        xp.add(part, temporary, out=part)


def add_biases(xp, b, hidden: int, gates: int, split: bool, out):
    """`out = Wb + Rb`, or Wb alone for the last gate if `split`."""
    columns = gates * hidden
    xp.copyto(out, b[:columns])
    end = columns - hidden if split else columns
    xp.add(out[:end], b[columns : columns + end], out=out[:end])


def unroll(xp, n: Recurrence, direction: int, x, w, bias, slab, step):
    """Call `step(t, a)` for every time in order, with `a = x[t] @ wᵀ + bias`, which it may spoil.

    `slab` holds the products of several times, which are computed at once.
    """
    many = slab.size // (n.batch * n.columns)
    order = n.order(direction)
    for start in range(0, n.times, many):
        part = order[start : start + many]
        low, count = min(part), len(part)
        if n.layout:
            a = slab[: count * n.batch * n.columns].reshape(n.batch, count, n.columns)
            xp.matmul(x[:, low : low + count], w.T, out=a)
        else:
            a = slab[: count * n.batch * n.columns].reshape(count, n.batch, n.columns)
            xp.matmul(rows_first(x[low : low + count]), w.T, out=rows_first(a))
        if bias is not None:
            xp.add(a, bias, out=a)
        a = n.by_time(a)
        for t in part:
            step(t, a[t - low])


def chunk(n: Recurrence) -> int:
    """Elements of the slab that `unroll` needs."""
    many = min(n.times, -(-ROWS // max(n.batch, 1)))
    return max(many, 1) * n.batch * n.columns


class Hidden:
    """The hidden state *before* each time, which Y holds one time earlier.

    `blocks` covers the rows of a slab with matrices of it (None: zero).  A copy of it is made
    (`needs_copy`) where Y's rows aren't those of a slab.
    """

    def __init__(self, xp, n: Recurrence, direction: int, y, h0, lens, copy):
        self.n, self.backwards = n, n.backwards[direction]
        self.track, self.h0 = n.track(y, direction), h0
        self.copy = None
        if copy is not None:
            self.copy = copy
            self._fill(xp, n.by_time(copy), lens)
            self.blocks = [(slice(0, n.rows), rows_first(copy))]
            return
        first, rest = slice(0, n.batch), slice(n.batch, n.rows)
        before = y[:-1]
        if self.backwards:
            first = slice(n.rows - n.batch, n.rows)
            rest, before = slice(0, n.rows - n.batch), y[1:]
        self.blocks = [(first, h0), (rest, before.reshape(-1, n.hidden))]
        if n.times == 1:
            self.blocks.pop()

    @staticmethod
    def needs_copy(n: Recurrence, lens) -> bool:
        return bool(n.layout or len(n.backwards) > 1 or (n.backwards[0] and lens is not None))

    def _fill(self, xp, copy, lens):
        start = 0 if self.h0 is None else self.h0
        if not self.backwards:
            xp.copyto(copy[1:], self.track[:-1])
            xp.copyto(copy[0], start)
            return
        xp.copyto(copy[:-1], self.track[1:])
        xp.copyto(copy[-1], start)
        if lens is not None:
            for t in range(self.n.times - 1):
                xp.copyto(copy[t], start, where=xp.equal(lens, t + 1)[:, None])

    def before(self, t: int) -> Any:
        """The state before time t, [B, H]; None if it is zero."""
        if self.copy is not None:
            return self.n.by_time(self.copy)[t]
        first = self.n.times - 1 if self.backwards else 0
        return self.h0 if t == first else self.track[t + 1 if self.backwards else t - 1]

    def chunks(self, many: int):
        """`(rows, matrix)` for every row of a slab, at most `many` rows at a time."""
        for rows, matrix in self.blocks:
            for start in range(rows.start, rows.stop, many):
                stop = min(start + many, rows.stop)
                part = slice(start, stop)
                offset = rows.start
                yield part, None if matrix is None else matrix[start - offset : stop - offset]

    def weight_gradient(self, xp, da, out, spare):
        """`out = Σ_t daₜᵀ hₜ₋₁`, `da` the rows of a slab."""
        started = False
        for rows, matrix in self.blocks:
            if matrix is not None:
                product(xp, da[rows].T, matrix, out, spare if started else None)
                started = True
        if not started:
            out[...] = 0


def dead(xp, lens, t):
    """Which samples have ended at time t, as a column; None without lengths."""
    return None if lens is None else xp.less_equal(lens, t)[:, None]


def spare_size(n: Recurrence) -> int:
    """Elements of the buffer through which products are added."""
    return max(min(n.rows, ROWS) * n.columns, n.inputs, n.hidden)


def last_state(xp, n: Recurrence, direction: int, state, lens, out):
    """Write a final state; that of an empty sequence is zero."""
    if out is not None:
        xp.copyto(n.state(out, direction), state)
        if lens is not None:
            xp.copyto(n.state(out, direction), 0, where=xp.less_equal(lens, 0)[:, None])


def first_gradient(xp, n: Recurrence, direction: int, given, lens, out):
    """The gradient of a final state, with which the walk backwards starts."""
    if given is None:
        out[...] = 0
        return
    xp.copyto(out, n.state(given, direction))
    if lens is not None:
        xp.copyto(out, 0, where=xp.less_equal(lens, 0)[:, None])


def arrive(xp, dh, dy, ended, out):
    """`out = dh + dy`, the gradient of the new state; of ended samples 0, and `dh` is what passes.

    Without lengths `dh` is spoiled.
    """
    if dy is None:
        xp.copyto(out, dh)
    else:
        xp.add(dh, dy, out=out)
    if ended is not None:
        xp.copyto(out, 0, where=ended)
        xp.copyto(dh, 0, where=xp.logical_not(ended))


def bias_gradient(xp, da, half, out):
    """Both halves of a bias have the gradient `Σ da`, `da` the rows of a slab."""
    xp.sum(da, axis=0, out=out[:half])
    xp.copyto(out[half:], out[:half])
