"""Composites of the signal family: transforms are linear, so gradients are transforms too."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Dim, Tensor
from gradtool.ops.index.body import gather_grad
from gradtool.ops.shared.symbolic_sizes import dims, like_shape
from gradtool.ops.signal.body_fourier import (
    count_of,
    fit,
    number,
    real_part,
    scalar,
    transform,
)


@composite("DFTGrad", shapes=like_shape)
def dft_grad(
    op: Builder,
    dy: Tensor,
    shape: Tensor,
    length: Tensor | None = None,
    *,
    axis: int,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
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
    op: Builder,
    dy: Tensor,
    shape: Tensor,
    step: Tensor,
    window: Tensor | None = None,
    length: Tensor | None = None,
) -> Tensor:
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
