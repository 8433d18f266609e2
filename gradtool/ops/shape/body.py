"""Composites of the layout family: gradients of windows, borders and resampling.

They get the *shape* of x, not x: nothing of the forward pass is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.constants import integers
from gradtool.graph.typed import Dim, Tensor, static
from gradtool.ops.shared.scatter import add_positions, positions
from gradtool.ops.shared.symbolic_sizes import dims, like_shape, part


@composite("SliceGrad", shapes=like_shape)
def slice_grad(
    op: Builder, dy: Tensor, shape: Tensor, starts: Tensor, ends: Tensor,
    axes: Tensor | None = None, steps: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`dx[starts:ends:steps] = dy`, zero elsewhere.

    With unit steps that is a border of zeros; else positions are sliced as x was.
    """
    ranks = _sliced(starts) if axes is None else integers(axes)
    unit = steps is None or set(integers(steps) or [0]) == {1}
    if not ranks or not unit:
        source = op.Slice(positions(op, shape), starts, ends, axes, steps)
        return add_positions(op, dy, source, shape)

    ranks = [axis % len(dy.shape) for axis in ranks]
    return op.pad(dy, _around(op, dy, shape, starts, ranks), ranks)


def _around(op: Builder, dy: Tensor, shape: Tensor, starts: Tensor, axes: Sequence[int]) -> Tensor:
    """The pads of `axes` that make of a slice from `starts` on a tensor of `shape`."""
    begins, whole = integers(starts), dims(shape)
    have, left = [whole[a] for a in axes], [dy.shape[a] for a in axes]
    if begins is not None and static(have) and static(left):
        pairs = zip(begins, have, strict=True)
        before = [min(max(b + size if b < 0 else b, 0), size) for b, size in pairs]
        behind = [n - f - m for n, f, m in zip(have, before, left, strict=True)]
        return op.constant([*before, *behind])
    sizes = op.Gather(shape, axes)
    starts = op.cast(starts, shape.dtype)
    first = op.Where(op.Less(starts, 0), starts + sizes, starts)
    first = op.Min(op.Max(first, 0), sizes)
    after = sizes - first - op.Gather(op.shape(dy), axes)
    return op.Concat(first, after, axis=0)


def _sliced(starts: Tensor) -> range | None:
    """The axes of a slice that names none: the first ones, None where their number is open."""
    count = starts.shape[0]
    return range(count) if isinstance(count, int) else None


@composite("PadGrad", shapes=like_shape)
def pad_grad(
    op: Builder, dy: Tensor, shape: Tensor, pads: Tensor, axes: Tensor | None = None, *, mode: str
) -> Tensor:
    """`dx[i] = Σ dy[j]` over the places `j` of the border and the middle that repeat `x[i]`."""
    return add_positions(op, dy, op.pad(positions(op, shape), pads, axes, mode=mode), shape)


def _columns_shape(
    dy: Tensor,
    block: Tensor,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Outputs:
    sizes = dy.shape[2:]
    rank = len(sizes)
    dilations, strides, pads = (
        dilations or [1] * rank,
        strides or [1] * rank,
        pads or [0] * 2 * rank,
    )
    blocks: Dim = 1
    for a, b in enumerate(dims(block)):
        reach = dilations[a] * (b - 1) + 1
        blocks *= (sizes[a] + pads[a] + pads[rank + a] - reach) // strides[a] + 1
    return [([dy.shape[0], dy.shape[1] * math.prod(dims(block)), blocks], dy.dtype)]


@composite("Col2ImGrad", shapes=_columns_shape)
def col2im_grad(
    op: Builder, dy: Tensor, block: Tensor, *, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """`dx[n, ck, b]` is element k of block b of channel c: a strided window on dy for each k."""
    rank = len(dy.shape) - 2
    axes = list(range(2, 2 + rank))
    dilations, strides, pads = (
        dilations or [1] * rank,
        strides or [1] * rank,
        pads or [0] * 2 * rank,
    )
    kernel = integers(block)
    assert kernel is not None  # noqa: S101 - the rule saw to it
    dy = op.pad(dy, pads, axes)
    last = [d * (b - 1) for d, b in zip(dilations, kernel, strict=True)]
    parts = []
    for offset in itertools.product(*map(range, kernel)):
        start = [o * d for o, d in zip(offset, dilations, strict=True)]
        end = [s - n if s != n else 2**31 - 1 for s, n in zip(start, last, strict=True)]
        window = op.Slice(dy, start, end, axes, strides)
        parts.append(op.Reshape(window, [0, 0, 1, -1]))
    joined = op.concat(parts, 2)
    return op.Reshape(joined, op.Concat([0, -1], part(op, op.Shape(joined), 3), axis=0))


@composite("TensorScatterGrad", shapes=like_shape)
def tensor_scatter_grad(
    op: Builder, dy: Tensor, shape: Tensor, starts: Tensor | None = None, *,
    mode: str = "linear", axis: int = -2,
) -> Tensor:  # fmt: skip
    """`dupdate[b, …, i, …] = dy[b, …, starts[b] + i, …]`, around the end if circular."""
    rank = len(dy.shape)
    axis %= rank
    count = op.Gather(shape, op.constant(axis), axis=0)
    steps = op.Range(op.constant(0), count, op.constant(1))
    steps = op.Reshape(steps, [-1 if a == axis else 1 for a in range(rank)])
    if starts is not None:
        steps = op.Reshape(starts, [-1, *[1] * (rank - 1)]) + steps
    if mode == "circular":
        steps = op.Mod(steps, op.Squeeze(op.size_of(dy, axis, axis + 1), [0]))
    return op.GatherElements(dy, op.Expand(steps, shape), axis=axis)
