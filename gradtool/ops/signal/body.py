"""Composites of the signal family: transforms are linear, so gradients are transforms too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.constants import integers
from gradtool.graph.typed import Dim, Tensor
from gradtool.ops.index.body import gather_grad
from gradtool.ops.shared.symbolic_sizes import dims, like_shape


def transform(op: Builder, x: Tensor, length: Tensor, axis: int, **options: Any) -> Tensor:
    """`DFT`, whose axis is an input from opset 20 on."""
    if op.opset >= 20:
        return op.DFT(x, length, op.constant(axis), **options)
    return op.DFT(x, length, axis=axis, **options)


def scalar(op: Builder, dim: Dim) -> Tensor:
    """A size as a scalar."""
    return op.constant(dim) if isinstance(dim, int) else op.Squeeze(op.size(dim), [0])


def number(op: Builder, length: Tensor, dtype: ir.DataType) -> Tensor:
    """An integer as a float of `dtype`."""
    known = integers(length)
    if known is not None:
        return op.constant(np.asarray(known[0], dtype.numpy()))
    return op.cast(length, dtype)


def fit(op: Builder, x: Tensor, axis: int, size: Dim) -> Tensor:
    """`x` with `size` elements along an axis: cut, or filled up with zeros."""
    have = x.shape[axis]
    if have == size:
        return x
    wanted = op.size(size)
    if not (isinstance(have, int) and isinstance(size, int) and have > size):
        missing = op.Max(op.Sub(wanted, op.size_of(x, axis, axis + 1)), [0])
        x = op.pad(x, op.Concat([0], missing, axis=0), [axis])
    return op.Slice(x, [0], wanted, [axis])


def real_part(op: Builder, x: Tensor, channels: Dim) -> Tensor:
    """The first of the last axis if there is only one channel to go to, else both."""
    return x if channels == 2 else op.Slice(x, [0], op.size(channels), [-1])


def count_of(op: Builder, length: Tensor | None, dim: Dim, *, halved: int) -> Tensor:
    """The length of a transform as a scalar: as given, else from the size of its input."""
    if length is not None:
        return op.Squeeze(length) if len(length.shape) else length
    if isinstance(dim, int):
        return op.constant(2 * (dim - 1) if halved else dim)
    size = scalar(op, dim)
    return op.Mul(op.Sub(size, 1), 2) if halved else size


@composite("DFTGrad", shapes=like_shape)
def dft_grad(
    op: Builder, dy: Tensor, shape: Tensor, length: Tensor | None = None, *,
    axis: int, inverse: int = 0, onesided: int = 0,
) -> Tensor:  # fmt: skip
    """`dx = N · IDFT(dy)`, or `DFT(dy) / N` of the inverse: zeros stand for omitted elements.

    Of the one-sided inverse, all but the first (and of even N the last) element count twice.
    """
    sizes = dims(shape)
    n = count_of(op, length, sizes[axis], halved=inverse and onesided)
    wide = number(op, n, dy.dtype)
    if not inverse:
        g = transform(op, dy, n, axis, inverse=1) * wide
    elif not onesided:
        g = transform(op, dy, n, axis) / wide
    else:
        g = transform(op, dy, n, axis, onesided=1) * _twice(op, n, dy.dtype, axis, len(sizes))
        g = g / wide
    g = real_part(op, g, sizes[-1])
    dx = fit(op, g, axis, sizes[axis])
    dx.shape = ir.Shape(sizes)
    return dx


def _twice(op: Builder, n: Tensor, dtype: ir.DataType, axis: int, rank: int) -> Tensor:
    """1 at frequency 0 and N/2, else 2."""
    k = op.Range(op.constant(0), op.Add(op.Div(n, 2), 1), op.constant(1))
    ends = op.Or(op.Equal(k, 0), op.Equal(op.Mul(k, 2), n))
    one, two = (op.constant(np.asarray(v, dtype.numpy())) for v in (1, 2))
    return op.Reshape(op.Where(ends, one, two), [-1, *[1] * (rank - axis - 1)])


def _spectra_to_frames(op: Builder, dy: Tensor, n: Tensor, channels: Dim) -> Tensor:
    """The gradient of frames `[B, F, N, C]` from that of their transforms `[B, F, K, 2]`."""
    g = transform(op, dy, n, 2, inverse=1) * number(op, n, dy.dtype)
    return real_part(op, g, channels)


def _places(op: Builder, dy: Tensor, step: Tensor, n: Tensor) -> Tensor:
    """Positions of the elements of the frames in the signal: `[F, N]`."""
    one = op.constant(1)
    step = op.Squeeze(step) if len(step.shape) else step
    starts = op.Range(op.constant(0), scalar(op, dy.shape[1]), one) * step
    return op.Unsqueeze(starts, [1]) + op.Range(op.constant(0), n, one)


def _frame(op: Builder, shape: Tensor, window: Tensor | None, length: Tensor | None) -> Tensor:
    if window is not None:
        return scalar(op, window.shape[0])
    return count_of(op, length, dims(shape)[1], halved=False)


@composite("STFTGrad", shapes=like_shape)
def stft_grad(
    op: Builder, dy: Tensor, shape: Tensor, step: Tensor, window: Tensor | None = None,
    length: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The frames' gradients, weighted by the window and added where the frames were read."""
    n = _frame(op, shape, window, length)
    frames = _spectra_to_frames(op, dy, n, dims(shape)[-1])
    if window is not None:
        frames = frames * op.Unsqueeze(window, [1])
    places = _places(op, dy, step, n)
    places.shape = ir.Shape(frames.shape[1:3])
    return gather_grad(op, frames, places, shape, axis=1)


@composite("STFTGradWindow", like=3)
def stft_grad_window(op: Builder, dy: Tensor, x: Tensor, step: Tensor, window: Tensor) -> Tensor:
    """`dw = Σ x · dframe` over batch, frames and channels."""
    n = scalar(op, window.shape[0])
    frames = op.Gather(x, _places(op, dy, step, n), axis=1)
    return op.ReduceSum(frames * _spectra_to_frames(op, dy, n, x.shape[-1]), [0, 1, 3], keepdims=0)
