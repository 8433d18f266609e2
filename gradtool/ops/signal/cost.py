"""Fourier transforms, by the usual count of fast ones, and windows.

Source: the count 5 n log₂ n, half of it for real numbers, is that of FFTW's benchmarks
(fftw.org/speed); the logarithm is rounded up here, so that counts are integers everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.ops.costs import cost, each
from gradtool.ops.shared.element_counts import Results, Shaped, result, size

each({
    "BlackmanWindow": 9,  # a - b · cos(2πn / N) + c · cos(4πn / N)
    "HammingWindow": 5,  # a - b · cos(2πn / N)
    "HannWindow": 5,
})  # fmt: skip


def transform(n: int, *, real: bool) -> int:
    """Operations of a transform of n complex numbers, or of n real ones."""
    whole = 5 * n * max(n - 1, 0).bit_length()
    return whole // 2 if real else whole


def _number(value: Any) -> int:
    return int(np.ravel(value)[0])


def _known(*values: Any) -> bool:
    return all(value is None or isinstance(value, np.ndarray) for value in values)


def _lines(shape: Sequence[int], axis: int) -> int:
    """Transforms along an axis; the last axis holds real and imaginary parts."""
    kept = [n for a, n in enumerate(shape[:-1]) if a != axis % len(shape)]
    return math.prod(kept)


def _dft(x: Shaped, length: Any, axis: int, inverse: int, onesided: int) -> int:
    n = x.shape[axis] if length is None else _number(length)
    if inverse and onesided and length is None:
        n = 2 * (n - 1)
    real = bool(onesided) and (bool(inverse) or x.shape[-1] == 1)
    scaled = n * (1 if onesided else 2) if inverse else 0
    return _lines(x.shape, axis) * (transform(n, real=real) + scaled)


@cost("DFT", since=17)
def dft_17(
    x: Shaped, length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> int | None:
    """The axis is an attribute."""
    return _dft(x, length, axis, inverse, onesided) if _known(length) else None


@cost("DFT", since=20)
def dft(
    x: Shaped, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> int | None:
    """The axis is an input; the inverse divides by the length."""
    if not _known(length, axis):
        return None
    return _dft(x, length, -2 if axis is None else _number(axis), inverse, onesided)


@cost("ai.gradtool::DFTGrad")
def dft_grad(
    dy: Shaped, _: Any, length: Any = None, *,
    out: Results, axis: int, inverse: int = 0, onesided: int = 0,
) -> int | None:  # fmt: skip
    """The opposite transform, scaled."""
    if not _known(length):
        return None
    n = result(out).shape[axis] if length is None else _number(length)
    if inverse and onesided:
        n = 2 * (n - 1) if length is None else n
        once = transform(n, real=True) + 2 * (n // 2 + 1)
    else:
        once = transform(n, real=False) + 2 * n
    return _lines(dy.shape, axis) * once


def _frame(x: Shaped, window: Any, length: Any) -> int:
    if length is not None:
        return _number(length)
    frame: int = x.shape[1] if window is None else window.shape[0]
    return frame


@cost("STFT")
def stft(
    x: Shaped, _: Any, window: Any = None, length: Any = None, *, out: Results, onesided: int = 1
) -> int | None:
    """A product with the window and a transform for each frame."""
    if not _known(length):
        return None
    n, channels = _frame(x, window, length), x.shape[-1]
    frames = math.prod(result(out).shape[:2])
    weighted = 0 if window is None else n * channels
    return frames * (weighted + transform(n, real=bool(onesided) and channels == 1))


@cost("ai.gradtool::STFTGrad")
def stft_grad(
    dy: Shaped, _shape: Any, _step: Any, window: Any = None, length: Any = None, *, out: Results
) -> int | None:
    """Transforms back, scaled, weighted, and added where frames overlap."""
    if not _known(length):
        return None
    n, channels = _frame(result(out), window, length), result(out).shape[-1]
    added = n * channels * (1 if window is None else 2)
    return math.prod(dy.shape[:2]) * (transform(n, real=False) + 2 * n + added)


@cost("ai.gradtool::STFTGradWindow")
def stft_grad_window(dy: Shaped, x: Shaped, _: Any, window: Shaped) -> int:
    """`Σ x · dframe` over batch, frames and channels."""
    n = size(window)
    return math.prod(dy.shape[:2]) * (transform(n, real=False) + 2 * n + 2 * n * x.shape[-1])
