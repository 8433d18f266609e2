"""Operators that move data without computing: layouts, windows, joins and borders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.slicing import extents
from gradtool.ops.kernels import Window, kernel
from gradtool.ops.shape.kernel_views import along, reshaped, slices
from gradtool.ops.shared.types import Array, Arrays, Specs

BLOCK, MOST = 1024, 8192  # elements computed at a time, here and on a device


def _host(*inputs: Array) -> bool:
    """Whether every input is absent or known now."""
    return all(i is None or isinstance(i, np.ndarray) for i in inputs)


# ------------------------------------------------------------------------- layouts


def _reshape_view(x: Spec, strides: tuple[int, ...], *, out: Specs) -> Sequence[Window] | None:
    window = reshaped(x.shape, strides, out[0].shape)
    return None if window is None else [(0, window)]


def _reshape(name: str) -> None:
    @kernel(name, strided=True, host=(1,), view=_reshape_view)
    def run(xp: Any, x: Array, *others: Array, out: Arrays, **attributes: Any) -> None:
        """The elements in the same order; `out` has its shape already."""
        xp.copyto(out[0].reshape(x.shape), x)


for _name in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
    _reshape(_name)


def _transpose_view(
    x: Spec, strides: tuple[int, ...], *, perm: Sequence[int] | None = None
) -> Sequence[Window] | None:
    perm = range(len(strides))[::-1] if perm is None else perm
    return [(0, tuple(strides[axis] for axis in perm))]


@kernel("Transpose", strided=True, view=_transpose_view)
def transpose(xp: Any, x: Array, *, out: Arrays, perm: Sequence[int] | None = None) -> None:
    """A copy in another order of axes.

    Where neighbours in the result lie a multiple of 2 KiB apart in x, they compete for the same
    lines of the cache: such arrays are copied in strips that are one line wide.
    """
    y, turned = out[0], x.transpose(perm)
    strip = 64 // x.itemsize
    if xp is np and x.nbytes > 2**18 and turned.strides[-1] % 2048 == 0:
        for start in range(0, y.shape[-1], strip):
            piece = slice(start, start + strip)
            xp.copyto(y[..., piece], turned[..., piece])
    else:
        xp.copyto(y, turned)


def _expand_view(x: Spec, strides: tuple[int, ...], *, out: Specs) -> Sequence[Window] | None:
    return [(0, strides)] if x.shape == out[0].shape else None


@kernel("Expand", strided=True, host=(1,), view=_expand_view)
def expand(xp: Any, x: Array, shape: Array, *, out: Arrays) -> None:
    xp.copyto(out[0], x)


# ------------------------------------------------------------------ windows, joins


def _slice_view(
    x: Spec, strides: tuple[int, ...], starts: Array, ends: Array, axes: Array | None = None,
    steps: Spec | None = None, *, out: Specs,
) -> Sequence[Window] | None:  # fmt: skip
    if not _host(starts, ends, axes, steps):
        return None
    whole = extents(x.shape, starts, ends, axes, steps)
    if any(step < 0 for _, step, _ in whole):
        return None
    offset = sum(first * s for (first, _, _), s in zip(whole, strides, strict=True))
    window = tuple(step * s for (_, step, _), s in zip(whole, strides, strict=True))
    return [(0 if 0 in out[0].shape else offset, window)]


@kernel("Slice", strided=True, host=(1, 2, 3, 4), view=_slice_view)
def slice_(
    xp: Any, x: Array, starts: Array, ends: Array, axes: Array | None = None,
    steps: Array | None = None, *, out: Arrays,
) -> None:  # fmt: skip
    xp.copyto(out[0], x[slices(extents(x.shape, starts, ends, axes, steps))])


@kernel("ai.gradtool::SliceGrad", strided=True, host=(1, 2, 3, 4, 5))
def slice_grad(
    xp: Any, dy: Array, shape: Array, starts: Array, ends: Array, axes: Array | None = None,
    steps: Array | None = None, *, out: Arrays,
) -> None:  # fmt: skip
    """`dy` where the slice was taken, zero elsewhere."""
    dx = out[0]
    dx.fill(0)
    xp.copyto(dx[slices(extents(dx.shape, starts, ends, axes, steps))], dy)


def pieces(sizes: Sequence[int]) -> list[slice]:
    """`start:end` of each of `sizes` laid end to end."""
    ends = list(itertools.accumulate(sizes))
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def split_sizes(length: int, sizes: Array | None, count: int) -> list[int]:
    """The sizes of a split: given ones, else equal ones, the last perhaps smaller."""
    each = -(-length // count)
    equal = [max(0, min(each, length - each * i)) for i in range(count)]
    return equal if sizes is None else np.ravel(sizes).tolist()


def _split_view(
    x: Spec, strides: tuple[int, ...], sizes: Array | None = None, *, out: Specs, axis: int = 0
) -> Sequence[Window] | None:
    if not _host(sizes):
        return None
    axis %= len(x.shape)
    found = pieces(split_sizes(x.shape[axis], sizes, len(out)))
    return [(p.start * strides[axis], strides) for p in found]


@kernel("Split", strided=True, host=(1,), view=_split_view)
def split(
    xp: Any, x: Array, sizes: Array | None = None, *,
    out: Arrays, axis: int = 0, num_outputs: int | None = None,
) -> None:  # fmt: skip
    """Copy the parts of x along an axis."""
    axis %= x.ndim
    found = pieces(split_sizes(x.shape[axis], sizes, len(out)))
    for y, piece in zip(out, found, strict=True):
        if y is not None:
            xp.copyto(y, x[along(axis, piece)])


@kernel("Concat", strided=True)
def concat(xp: Any, *inputs: Array, out: Arrays, axis: int) -> None:
    axis %= out[0].ndim
    for x, piece in zip(inputs, pieces([x.shape[axis] for x in inputs]), strict=True):
        xp.copyto(out[0][along(axis, piece)], x)


# ------------------------------------------------------------------ sizes, constants


def _put(xp: Any, out: Array, values: Array) -> None:
    out[...] = xp.asarray(np.asarray(values, dtype=out.dtype))


@kernel("Shape", strided=True)
def shape_(xp: Any, x: Array, *, out: Arrays, start: int = 0, end: int | None = None) -> None:
    _put(xp, out[0], x.shape[start:end])


@kernel("Size", strided=True)
def size(xp: Any, x: Array, *, out: Arrays) -> None:
    out[0][...] = x.size


@kernel("ConstantOfShape", host=(0,))
def constant_of_shape(xp: Any, shape: Array, *, out: Arrays, value: Array | None = None) -> None:
    out[0].fill(0 if value is None else value.item())


@kernel("Constant")
def constant(xp: Any, *, out: Arrays, **attributes: Any) -> None:
    (value,) = (v for v in attributes.values() if v is not None)
    _put(xp, out[0], value)


@kernel("Range", host=(0, 1, 2))
def range_(xp: Any, start: Array, limit: Array, delta: Array, *, out: Arrays) -> None:
    """`start + i · delta` for i = 0, 1, …, without a second array of that size."""
    flat = out[0]
    size = at_a_time(BLOCK, MOST)
    for first in range(0, flat.size, size):
        part = flat[first : first + size]
        steps = xp.arange(first, first + part.size)
        xp.copyto(part, start.item() + steps * delta.item(), casting="unsafe")


# -------------------------------------------------------------------- rearrangement


@kernel("Tile", strided=True, host=(1,))
def tile(xp: Any, x: Array, repeats: Array, *, out: Arrays) -> None:
    """`x` repeated along every axis."""
    spread = [n for pair in zip(np.ravel(repeats).tolist(), x.shape, strict=True) for n in pair]
    xp.copyto(out[0].reshape(spread), x.reshape([n for s in x.shape for n in (1, s)]))


@kernel("Trilu", may_inplace=(0,), host=(1,))
def trilu(xp: Any, x: Array, k: Array | None = None, *, out: Arrays, upper: int = 1) -> None:
    """The part of each matrix on and above (`upper`) or below its k-th diagonal."""
    y = out[0]
    if not xp.may_share_memory(x, y):
        xp.copyto(y, x)
    shift = 0 if k is None else k.item()
    for row in range(y.shape[-2]):
        column = max(0, row + shift + (0 if upper else 1))
        y[..., row, slice(0, column) if upper else slice(column, None)] = 0


def _blocks(shape: Sequence[int], size: int, mode: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split of `[N, C, H, W]` by DepthToSpace, and the order of its parts."""
    n, c, h, w = shape
    if mode == "CRD":
        return (n, c // size**2, size, size, h, w), (0, 1, 4, 2, 5, 3)
    return (n, size, size, c // size**2, h, w), (0, 3, 4, 1, 5, 2)


@kernel("DepthToSpace")
def depth_to_space(xp: Any, x: Array, *, out: Arrays, blocksize: int, mode: str = "DCR") -> None:
    """Channels become blocks of pixels."""
    split, order = _blocks(x.shape, blocksize, mode)
    parts = x.reshape(split).transpose(order)
    xp.copyto(out[0].reshape(parts.shape), parts)


@kernel("SpaceToDepth")
def space_to_depth(xp: Any, x: Array, *, out: Arrays, blocksize: int, mode: str = "DCR") -> None:
    """Blocks of pixels become channels."""
    split, order = _blocks(out[0].shape, blocksize, mode)
    parts = out[0].reshape(split).transpose(order)
    xp.copyto(parts, x.reshape(parts.shape))
