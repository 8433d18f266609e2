"""Shared parts of the bodies of recurrent gradients.

Bodies see time first, one direction at a time: X [T, B, I], Y [T, B, H], states [B, H].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Maybe, Tensor
from gradtool.operators.recurrence import DIRECTIONS

# The new states, and the values to stack, from the states before and the inputs of one time.
Step = Callable[[Sequence[Tensor], Sequence[Any]], Sequence[Tensor]]


class Direction:
    """The operands of one direction of a recurrent node, for its body."""

    def __init__(
        self, op: Builder, flags: Sequence[bool], index: int, layout: int, x: Tensor
    ) -> None:
        self.op, self.index, self.layout, self.x = op, index, layout, x
        self.backwards, self.count = flags[index], len(flags)

    def _pick(self, v: Tensor, axis: int) -> Tensor:
        if self.count == 1:
            return self.op.squeeze(v, axis)
        return self.op.Gather(v, np.asarray(self.index), axis=axis)

    def track(self, y: Maybe) -> Maybe:
        """Y or its gradient: [T, B, H]."""
        if y is None:
            return None
        op = self.op
        y = op.transpose(y, [1, 2, 0, 3]) if self.layout else y
        return self._pick(y, 1)

    def state(self, s: Maybe) -> Maybe:
        """An initial or final state, or a weight: [B, H]."""
        if s is None:
            return None
        return self._pick(s, self.layout)

    def weight(self, w: Maybe) -> Maybe:
        """A weight of this direction."""
        if w is None:
            return None
        return self._pick(w, 0)

    def zeros(self, y: Tensor) -> Tensor:
        """Zeros in the shape of a state, [B, H], from a track."""
        op = self.op
        return op.ConstantOfShape(op.size_of(y, 1, 3), value=np.zeros(1, y.dtype.numpy()))

    def before(self, s: Tensor, first: Tensor) -> Tensor:
        """From the state after each time, the one before it: `first`, then `s` one time later."""
        op, first = self.op, self.op.unsqueeze(first, 0)
        end = np.iinfo(np.int64).max
        if self.backwards:
            return op.Concat(op.Slice(s, [1], [end], [0]), first, axis=0)
        return op.Concat(first, op.Slice(s, [0], [-1], [0]), axis=0)

    def scan(
        self,
        step: Step,
        states: Sequence[Tensor],
        inputs: Sequence[Tensor | None],
        outputs: int,
        *,
        reverse: bool,
    ) -> Tensor:
        """Emit a Scan over time, in the order of this direction, or in the `reverse` order.

        `step(states, inputs)` gives the new states and the values to stack; None among the inputs
        stays None.
        """
        op = self.op
        given = [v for v in inputs if v is not None]
        formal = [op.formal("state", s.shape, s.dtype) for s in states]
        slices = [op.formal("now", v.shape[1:], v.dtype) for v in given]
        with op.body([*formal, *slices]) as graph:
            left = list(slices)
            made = step(formal, [None if v is None else left.pop(0) for v in inputs])
            graph.outputs.extend(made)
        flag = int(self.backwards != reverse)
        return op.Scan(
            *states, *given, body=graph, outputs=len(states) + outputs, num_scan_inputs=len(given),
            scan_input_directions=[flag] * len(given),
            scan_output_directions=[flag] * outputs,
        )  # fmt: skip


def directions(op: Builder, direction: str, layout: int, x: Tensor) -> list[Direction]:
    """The directions of a node; `x` is seen with time first."""
    x = op.swap_axes(x, 0, 1) if layout else x
    flags = DIRECTIONS[direction]
    return [Direction(op, flags, index, layout, x) for index in range(len(flags))]


def before_each(
    op: Builder, side: Direction, track: Tensor, first: Tensor, live: Tensor | None
) -> Tensor:
    """The hidden state before each time.

    Read backwards, a sample starts at its own end: there the state is still the first one.
    """
    before = side.before(track, first)
    if not side.backwards or live is None:
        return before
    later = op.Slice(live, [1], [np.iinfo(np.int64).max], [0])
    never = op.And(op.Slice(live, [0], [1], [0]), op.constant(value=False, dtype=ir.DataType.BOOL))
    return op.Where(op.Concat(later, never, axis=0), before, op.unsqueeze(first, 0))


def padded(values: Sequence[Any], count: int) -> list[Any]:
    """So many values, absent ones None."""
    return [*values, *(None,) * count][:count]


def slope(op: Builder, act: str, y: Tensor) -> Tensor:
    """The slope of an activation, from its value."""
    if act == "relu":
        return op.cast(op.Greater(y, 0.0), y.dtype)
    return 1 - y * y if act == "tanh" else y * (1 - y)


def bias_of(op: Builder, b: Tensor) -> Tensor:
    """`Wb + Rb`."""
    half = op.Split(b, outputs=2, num_outputs=2, axis=0)
    total: Tensor = half[0] + half[1]
    return total


def alive(op: Builder, x: Tensor, lens: Tensor | None) -> Tensor | None:
    """Whether each sample lasts at each time, [T, B, 1]; None without lengths."""
    if lens is None:
        return None
    if isinstance(x.shape[0], int):
        times = op.constant(np.arange(x.shape[0]))
    else:
        times = op.Range(0, op.Squeeze(op.Shape(x, start=0, end=1), [0]), 1)
    ends = op.unsqueeze(op.cast(lens, ir.DataType.INT64), [0, 2])
    return op.Less(op.unsqueeze(times, [1, 2]), ends)


def masked(op: Builder, live: Tensor | None, a: Tensor, other: float = 0.0) -> Tensor:
    """`a` where the sample lasts, else `other`."""
    return a if live is None else op.Where(live, a, op.constant(other, a.dtype))


def final_gradient(
    op: Builder, side: Direction, given: Tensor | None, lens: Tensor | None, zero: Tensor
) -> Tensor:
    """The gradient of a final state; that of an empty sequence is zero."""
    found = side.state(given)
    return zero if found is None else zero_if_empty(op, found, lens)


def zero_if_empty(op: Builder, state: Tensor, lens: Tensor | None) -> Tensor:
    """A state, [B, H], or 0 where the sequence is empty."""
    if lens is None:
        return state
    some = op.Greater(op.unsqueeze(lens, 1), op.constant(0, lens.dtype))
    return op.Where(some, state, op.constant(0.0, state.dtype))


def rows_product(op: Builder, da: Tensor, b: Tensor) -> Tensor:
    """`Σ daₜᵀ bₜ` over times and samples."""
    da = op.reshape(da, [-1, da.shape[2]])
    return op.MatMul(op.swap_axes(da, 0, 1), op.reshape(b, [-1, b.shape[2]]))


def gather_directions(
    op: Builder, layout: int, found: Sequence[Sequence[Tensor]], states: Sequence[int]
) -> list[Tensor]:
    """Put the gradients of the directions together: sums for X, a new axis for all others.

    `states` are the positions of initial states, whose direction axis depends on the layout.
    """
    results = []
    for index, parts in enumerate(zip(*found, strict=True)):
        if index == 0:
            total = parts[0] if len(parts) == 1 else op.Add(*parts)
            results.append(op.swap_axes(total, 0, 1) if layout else total)
        else:
            axis = layout if index in states else 0
            results.append(op.concat([op.unsqueeze(p, axis) for p in parts], axis))
    return results
