"""Operators that move data without computing: layouts, windows, joins and borders."""

from __future__ import annotations

import itertools

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels import _borders, _col2im, _resize, _storage  # noqa: F401 - they register
from gradtool.exec.kernels._windows import along, reshaped, slices
from gradtool.slicing import extents

BLOCK = 1024  # elements computed at a time


def _host(*inputs):
    """Whether every input is absent or known now."""
    return all(i is None or isinstance(i, np.ndarray) for i in inputs)


# ------------------------------------------------------------------------- layouts


def _reshape_view(x, strides, *others, out, **attributes):
    window = reshaped(x.shape, strides, out[0].shape)
    return None if window is None else [(0, window)]


def _reshape(name):
    @kernel(name, strided=True, host=(1,), view=_reshape_view)
    def run(xp, x, *others, out, work, **attributes):
        """The elements in the same order; `out` has its shape already."""
        xp.copyto(out[0].reshape(x.shape), x)

    return run


for _name in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
    _reshape(_name)


def _transpose_view(x, strides, *, out, perm=None):
    perm = range(len(strides))[::-1] if perm is None else perm
    return [(0, tuple(strides[axis] for axis in perm))]


@kernel("Transpose", strided=True, view=_transpose_view)
def transpose(xp, x, *, out, work, perm=None):
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


def _expand_view(x, strides, shape, *, out):
    return [(0, strides)] if x.shape == out[0].shape else None


@kernel("Expand", strided=True, host=(1,), view=_expand_view)
def expand(xp, x, shape, *, out, work):
    xp.copyto(out[0], x)


# ------------------------------------------------------------------ windows, joins


def _slice_view(x, strides, starts, ends, axes=None, steps=None, *, out):
    if not _host(starts, ends, axes, steps):
        return None
    whole = extents(x.shape, starts, ends, axes, steps)
    if any(step < 0 for _, step, _ in whole):
        return None
    offset = sum(first * s for (first, _, _), s in zip(whole, strides, strict=True))
    window = tuple(step * s for (_, step, _), s in zip(whole, strides, strict=True))
    return [(0 if 0 in out[0].shape else offset, window)]


@kernel("Slice", strided=True, host=(1, 2, 3, 4), view=_slice_view)
def slice_(xp, x, starts, ends, axes=None, steps=None, *, out, work):
    xp.copyto(out[0], x[slices(extents(x.shape, starts, ends, axes, steps))])


@kernel("ai.gradtool::SliceGrad", strided=True, host=(1, 2, 3, 4, 5))
def slice_grad(xp, dy, shape, starts, ends, axes=None, steps=None, *, out, work):
    """`dy` where the slice was taken, zero elsewhere."""
    dx = out[0]
    dx.fill(0)
    xp.copyto(dx[slices(extents(dx.shape, starts, ends, axes, steps))], dy)


def _pieces(sizes):
    """`start:end` of each of `sizes` laid end to end."""
    ends = list(itertools.accumulate(sizes))
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _parts(length, sizes, count):
    """The sizes of a split: those given, else equal ones, the last smaller where it must be."""
    each = -(-length // count)
    equal = [max(0, min(each, length - each * i)) for i in range(count)]
    return equal if sizes is None else np.ravel(sizes).tolist()


def _split_view(x, strides, sizes=None, *, out, axis=0, num_outputs=None):
    if not _host(sizes):
        return None
    axis %= len(x.shape)
    pieces = _pieces(_parts(x.shape[axis], sizes, len(out)))
    return [(p.start * strides[axis], strides) for p in pieces]


@kernel("Split", strided=True, host=(1,), view=_split_view)
def split(xp, x, sizes=None, *, out, work, axis=0, num_outputs=None):
    axis %= x.ndim
    pieces = _pieces(_parts(x.shape[axis], sizes, len(out)))
    for y, piece in zip(out, pieces, strict=True):
        if y is not None:
            xp.copyto(y, x[along(axis, piece)])


@kernel("Concat", strided=True)
def concat(xp, *inputs, out, work, axis):
    axis %= out[0].ndim
    for x, piece in zip(inputs, _pieces([x.shape[axis] for x in inputs]), strict=True):
        xp.copyto(out[0][along(axis, piece)], x)


# ------------------------------------------------------------------ sizes, constants


def _put(xp, out, values):
    out[...] = xp.asarray(np.asarray(values, dtype=out.dtype))


@kernel("Shape", strided=True)
def shape_(xp, x, *, out, work, start=0, end=None):
    _put(xp, out[0], x.shape[start:end])


@kernel("Size", strided=True)
def size(xp, x, *, out, work):
    out[0][...] = x.size


@kernel("ConstantOfShape", host=(0,))
def constant_of_shape(xp, shape, *, out, work, value=None):
    out[0].fill(0 if value is None else value.item())


@kernel("Constant")
def constant(xp, *, out, work, **attributes):
    (value,) = (v for v in attributes.values() if v is not None)
    _put(xp, out[0], value)


@kernel("Range", host=(0, 1, 2))
def range_(xp, start, limit, delta, *, out, work):
    """`start + i · delta` for i = 0, 1, …, without a second array of that size."""
    flat = out[0]
    for first in range(0, flat.size, BLOCK):
        piece = flat[first : first + BLOCK]
        steps = xp.arange(first, first + piece.size)
        xp.copyto(piece, start.item() + steps * delta.item(), casting="unsafe")


# -------------------------------------------------------------------- rearrangement


@kernel("Tile", strided=True, host=(1,))
def tile(xp, x, repeats, *, out, work):
    """`x` repeated along every axis."""
    spread = [n for pair in zip(np.ravel(repeats).tolist(), x.shape, strict=True) for n in pair]
    xp.copyto(out[0].reshape(spread), x.reshape([n for s in x.shape for n in (1, s)]))


@kernel("Trilu", may_inplace=(0,), host=(1,))
def trilu(xp, x, k=None, *, out, work, upper=1):
    """The part of each matrix on and above (`upper`) or below its k-th diagonal."""
    y = out[0]
    if not xp.may_share_memory(x, y):
        xp.copyto(y, x)
    shift = 0 if k is None else k.item()
    for row in range(y.shape[-2]):
        column = max(0, row + shift + (0 if upper else 1))
        y[..., row, slice(0, column) if upper else slice(column, None)] = 0


def _blocks(shape, size, mode):
    """How DepthToSpace splits `[N, C, H, W]`, and in which order the parts go."""
    n, c, h, w = shape
    if mode == "CRD":
        return (n, c // size**2, size, size, h, w), (0, 1, 4, 2, 5, 3)
    return (n, size, size, c // size**2, h, w), (0, 3, 4, 1, 5, 2)


@kernel("DepthToSpace")
def depth_to_space(xp, x, *, out, work, blocksize, mode="DCR"):
    """Channels become blocks of pixels."""
    split, order = _blocks(x.shape, blocksize, mode)
    parts = x.reshape(split).transpose(order)
    xp.copyto(out[0].reshape(parts.shape), parts)


@kernel("SpaceToDepth")
def space_to_depth(xp, x, *, out, work, blocksize, mode="DCR"):
    """Blocks of pixels become channels."""
    split, order = _blocks(out[0].shape, blocksize, mode)
    parts = out[0].reshape(split).transpose(order)
    xp.copyto(parts, x.reshape(parts.shape))
