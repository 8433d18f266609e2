"""Fourier transforms, and through their helper the windows they are used with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Arrays, DType, Specs


def complex_of(xp: Any, x: Array) -> Array:
    """An array whose last axis holds (real, imaginary), or real alone, as numbers."""
    wide = x.astype(accumulator(x.dtype), copy=False)
    if wide.shape[-1] == 1:
        return wide[..., 0]
    return xp.ascontiguousarray(wide).view(np.result_type(wide.dtype, np.complex64))[..., 0]


def pairs_of(xp: Any, z: Array, dtype: DType) -> Array:
    """Complex numbers as (real, imaginary) on a last axis, in a real `dtype`."""
    z = xp.ascontiguousarray(z)[..., None]
    return z.view(z.real.dtype).astype(dtype, copy=False)


def length_of(x: Array | Spec, length: Array | None, axis: int, *, halved: int) -> int:
    """The length of a transform: as given, else that of x; `halved` if x is one-sided."""
    if length is not None:
        return int(np.ravel(length)[0])
    size: int = x.shape[axis]
    return 2 * (size - 1) if halved else size


def transform_bytes(x: Spec, out: Spec) -> int:
    """Bytes of the complex numbers that a transform goes through."""
    size = 2 * max(math.prod(x.shape), math.prod(out.shape)) * accumulator(x.dtype).itemsize
    return 3 * size


def _transform(xp: Any, x: Array, length: Array, axis: int, inverse: int, onesided: int) -> Array:
    axis %= x.ndim
    z = complex_of(xp, x)
    size = length_of(x, length, axis, halved=inverse and onesided)
    if inverse and onesided:
        return xp.fft.irfft(z, size, axis=axis)[..., None].astype(x.dtype, copy=False)
    if inverse:
        return pairs_of(xp, xp.fft.ifft(z, size, axis=axis), x.dtype)
    if onesided and x.shape[-1] == 1:
        return pairs_of(xp, xp.fft.rfft(z, size, axis=axis), x.dtype)
    made = xp.fft.fft(z, size, axis=axis)
    if onesided:
        made = made[(slice(None),) * axis + (slice(size // 2 + 1),)]
    return pairs_of(xp, made, x.dtype)


def _dft_bytes(x: Spec, *, out: Specs) -> int:
    return transform_bytes(x, out[0])


@kernel("DFT", since=17, host=(1,), temporaries=_dft_bytes)
def dft_17(
    xp: Any, x: Array, length: Array | None = None, *,
    axis: int = 1, inverse: int = 0, onesided: int = 0,
) -> Array:  # fmt: skip
    """The axis is an attribute."""
    return _transform(xp, x, length, axis, inverse, onesided)


@kernel("DFT", since=20, host=(1, 2), temporaries=_dft_bytes)
def dft(
    xp: Any, x: Array, length: Array | None = None, axis: Array | None = None, *,
    inverse: int = 0, onesided: int = 0,
) -> Array:  # fmt: skip
    """`y[k] = Σ x[n] exp(-2πi kn/N)`, or its inverse; `onesided` is of real signals."""
    axis = -2 if axis is None else int(np.ravel(axis)[0])
    return _transform(xp, x, length, axis, inverse, onesided)


def frames_of(xp: Any, x: Array, step: int, size: int) -> Array:
    """`x[B, L, C]` as overlapping frames `[B, F, size, C]`: a view."""
    windows = xp.lib.stride_tricks.sliding_window_view(x, size, axis=1)
    return xp.moveaxis(windows[:, ::step], -1, 2)


def frame_length(x: Array | Spec, window: Array | Spec | None, length: Array | None) -> int:
    """The number of elements of one frame."""
    if length is not None:
        return int(np.ravel(length)[0])
    size: int = x.shape[1] if window is None else window.shape[0]
    return size


@kernel("STFT", host=(1, 3), temporaries=lambda *, out: 2 * transform_bytes(out[0], out[0]))
def stft(
    xp: Any, x: Array, step: Array, window: Array | None = None, length: Array | None = None, *,
    onesided: int = 1,
) -> Array:  # fmt: skip
    """Transforms of frames that begin `step` apart, each weighted by the window."""
    size = frame_length(x, window, length)
    frames = frames_of(xp, x, int(np.ravel(step)[0]), size)
    if window is not None:
        frames = frames * window[:, None]
    return _transform(xp, frames, None, -2, 0, onesided)


def _grad_bytes(dy: Spec, *, out: Specs) -> int:
    return 2 * transform_bytes(dy, out[0])


@kernel("ai.gradtool::DFTGrad", host=(1, 2), temporaries=_grad_bytes)
def dft_grad(
    xp: Any, dy: Array, shape: Array, length: Array | None = None, *,
    axis: int, inverse: int = 0, onesided: int = 0,
) -> Array:  # fmt: skip
    """The adjoint of the transform: cropped elements are zero, padding is dropped."""
    dims = [int(n) for n in shape]
    n = dims[axis] if length is None else int(np.ravel(length)[0])
    if inverse and onesided:
        n = 2 * (dims[axis] - 1) if length is None else n
        g = _transform(xp, dy, n, axis, 0, 1)
        k = np.arange(n // 2 + 1).reshape([-1 if a == axis else 1 for a in range(dy.ndim)])
        g = g * xp.asarray((np.where((k == 0) | (2 * k == n), 1, 2) / n).astype(g.dtype))
    elif inverse:
        g = _transform(xp, dy, n, axis, 0, 0) / dy.dtype.type(n)
    else:
        g = _transform(xp, dy, n, axis, 1, 0) * dy.dtype.type(n)
    dx = xp.zeros(dims, dy.dtype)
    lead = (slice(None),) * axis
    common = (*lead, slice(min(dims[axis], g.shape[axis])))
    dx[common] = g[common][..., : dims[-1]]
    return dx


def _frame_gradients(xp: Any, dy: Array, size: int, channels: int) -> Array:
    g = _transform(xp, dy, size, 2, 1, 0) * dy.dtype.type(size)
    return g[..., :channels]


@kernel("ai.gradtool::STFTGrad", host=(1, 2, 4), temporaries=_grad_bytes)
def stft_grad(
    xp: Any, dy: Array, shape: Array, step: Array, window: Array | None = None,
    length: Array | None = None,
) -> Array:  # fmt: skip
    """The frames' gradients, added where the frames were read, in order."""
    dx = xp.zeros([int(n) for n in shape], dy.dtype)
    size = frame_length(dx, window, length)
    frames = _frame_gradients(xp, dy, size, dx.shape[-1])
    if window is not None:
        frames *= window[:, None]
    step = int(np.ravel(step)[0])
    for f in range(frames.shape[1]):
        dx[:, f * step : f * step + size] += frames[:, f]
    return dx


@kernel("ai.gradtool::STFTGradWindow", host=(2,), temporaries=_grad_bytes)
def stft_grad_window(xp: Any, dy: Array, x: Array, step: Array, window: Array) -> Array:
    """`dw = Σ x · dframe` over batch, frames and channels."""
    frames = frames_of(xp, x, int(np.ravel(step)[0]), len(window))
    return (frames * _frame_gradients(xp, dy, len(window), x.shape[-1])).sum(axis=(0, 1, 3))


COSINES = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


def _window(name: str, a: float, b: float, c: float) -> None:
    @kernel(name, host=(0,))
    def run(
        xp: Any, size: Array, *, out: Arrays, output_datatype: int = 1, periodic: int = 1
    ) -> None:
        """`a - b cos(2πn/N) + c cos(4πn/N)`, with N the size, or one less if not periodic."""
        count = int(np.ravel(size)[0])
        angle = 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        values = a - b * np.cos(angle) + c * np.cos(2 * angle)
        xp.copyto(out[0], xp.asarray(values), casting="unsafe")


for _name, _terms in COSINES.items():
    _window(_name, *_terms)


@kernel("MelWeightMatrix", host=(0, 1, 2, 3, 4), temporaries=lambda *, out: 2 * out[0].bytes)
def mel_weight_matrix(
    xp: Any, bins: Array, dft_length: Array, sample_rate: Array, lower: Array, upper: Array, *,
    output_datatype: int = 1,
) -> Array:  # fmt: skip
    """Triangles, equally wide on the mel scale: one column per mel bin, one row per frequency."""
    bins, length, rate = (int(np.ravel(v)[0]) for v in (bins, dft_length, sample_rate))
    low, high = (2595 * math.log10(1 + float(np.ravel(v)[0]) / 700) for v in (lower, upper))
    mel = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    edges = ((length + 1) * 700 * (10 ** (mel / 2595) - 1) // rate).astype(np.int64)
    matrix = np.zeros((length // 2 + 1, bins))
    for column, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        if left == centre:
            matrix[centre, column] = 1
        else:
            rise = np.arange(left, centre + 1)
            matrix[rise, column] = (rise - left) / (centre - left)
        if right > centre:
            fall = np.arange(centre, right)
            matrix[fall, column] = (right - fall) / (right - centre)
    return xp.asarray(matrix.astype(ir.DataType(output_datatype).numpy()))
