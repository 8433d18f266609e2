"""Normalisation by p-norms, by mean and variance alone, and by neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.norm.kernel_layouts import Layout, like, reduced
from gradtool.ops.shared.types import Array, Arrays, Index


def total(xp: Any, x: Array, axes: Sequence[int], out: Array) -> None:
    """Sum x over `axes`, kept, into `out`."""
    xp.sum(x, axis=axes, dtype=out.dtype, keepdims=True, out=out)


def _lp(x: Array | Spec, axis: int) -> Layout:
    """The view `[outer, D, inner]` of x, normalised over its middle."""
    axis %= len(x.shape)
    shape = (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))
    return Layout.rows(shape, (1,), x.dtype)


def _lp_buffers(x: Spec, axis: int) -> list[Spec]:
    layout = _lp(x, axis)
    flags = Spec(layout.small().shape, np.dtype(bool))
    return [layout.block(), layout.small(), layout.small(), flags]


def _inverse_norm(
    xp: Any, x: Array, layout: Layout, parts: Sequence[Index], p: int, buffers: Arrays
) -> Array:
    """1 / norm of a group of blocks, 0 where the norm is 0."""
    block, norm, term, flags = buffers
    shape = reduced(x[parts[0]].shape, layout.axes)
    norm, term, flags = (like(b, shape) for b in (norm, term, flags))
    norm.fill(0)
    for index in parts:
        part = like(block, x[index].shape)
        if p == 1:
            xp.absolute(x[index], out=part)
            total(xp, part, layout.axes, term)
        else:
            xp.copyto(part, x[index])
            xp.multiply(part, part, out=part)
            total(xp, part, layout.axes, term)
        xp.add(norm, term, out=norm)
    if p == 2:
        xp.sqrt(norm, out=norm)
    xp.equal(norm, 0, out=flags)
    xp.copyto(norm, math.inf, where=flags)
    xp.divide(1, norm, out=norm)
    return norm


@kernel("LpNormalization", may_inplace=(0,), work=lambda x, *, axis=-1: _lp_buffers(x, axis))
def lp_normalization(
    xp: Any, x: Array, *, out: Arrays, work: Arrays, axis: int = -1, p: int = 2
) -> None:
    """`y = x / |x|ₚ` along one axis, 0 where the norm is 0."""
    layout = _lp(x, axis)
    x, y = x.reshape(layout.shape), out[0].reshape(layout.shape)
    for parts in layout.blocks():
        inverse = _inverse_norm(xp, x, layout, parts, p, work)
        for index in parts:
            xp.multiply(x[index], inverse, out=y[index], casting="unsafe")


@kernel(
    "ai.gradtool::LpNormalizationGrad",
    may_inplace=(1, 0),
    work=lambda x, *, axis: [*_lp_buffers(x, axis), _lp(x, axis).small()],
)
def lp_normalization_grad(
    xp: Any, x: Array, dy: Array, *, out: Arrays, work: Arrays, axis: int, p: int
) -> None:
    """The gradient of x divided by its norm along `axis`, from x, block by block."""
    layout = _lp(x, axis)
    x, dy, dx = (v.reshape(layout.shape) for v in (x, dy, out[0]))
    *buffers, sums = work
    for parts in layout.blocks():
        inverse = _inverse_norm(xp, x, layout, parts, p, buffers)
        dot, term = like(sums, inverse.shape), like(buffers[2], inverse.shape)
        dot.fill(0)
        for index in parts:
            product = like(buffers[0], x[index].shape)
            xp.multiply(x[index], inverse, out=product, casting="unsafe")
            xp.multiply(product, dy[index], out=product)
            total(xp, product, layout.axes, term)
            xp.add(dot, term, out=dot)
        for index in parts:
            slope = like(buffers[0], x[index].shape)
            if p == 1:
                xp.sign(x[index], out=slope)
            else:
                xp.multiply(x[index], inverse, out=slope, casting="unsafe")
            xp.multiply(slope, dot, out=slope)
            xp.subtract(dy[index], slope, out=slope)
            xp.multiply(slope, inverse, out=dx[index], casting="unsafe")


def _moments(xp: Any, x: Array, axes: Sequence[int]) -> tuple[Array, Array]:
    wide = x.astype(xp.promote_types(x.dtype, xp.float32))
    centred = wide - wide.mean(axes, keepdims=True)
    return centred, xp.sqrt((centred * centred).mean(axes, keepdims=True))


@kernel("MeanVarianceNormalization", temporaries=lambda x: 3 * x.bytes)
def mean_variance_normalization(xp: Any, x: Array, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """`y = (x - mean) / (std + 1e-9)`."""
    if not x.size:
        return xp.empty_like(x)
    centred, std = _moments(xp, x, tuple(axes))
    return (centred / (std + 1e-9)).astype(x.dtype)


@kernel(
    "ai.gradtool::MeanVarianceNormalizationGrad",
    temporaries=lambda x: 5 * max(x.bytes, 4 * math.prod(x.shape)),
)
def mean_variance_normalization_grad(xp: Any, x: Array, dy: Array, *, axes: Sequence[int]) -> Array:
    if not x.size:
        return xp.empty_like(x)
    axes = tuple(axes)
    centred, std = _moments(xp, x, axes)
    share = (dy * centred).mean(axes, keepdims=True) / ((std + 1e-9) * xp.where(std > 0, std, 1))
    return ((dy - dy.mean(axes, keepdims=True) - centred * share) / (std + 1e-9)).astype(x.dtype)


def _neighbours(xp: Any, x: Array, before: int, after: int) -> Array:
    """The sum of `before` channels before, each channel, and `after` channels after it."""
    result = x.copy()
    for shift in range(1, before + 1):
        result[:, shift:] += x[:, : x.shape[1] - shift]
    for shift in range(1, after + 1):
        result[:, : max(0, x.shape[1] - shift)] += x[:, shift:]
    return result


def _lrn_base(xp: Any, x: Array, size: int, alpha: float, bias: float) -> tuple[Array, Array]:
    wide = x.astype(xp.promote_types(x.dtype, xp.float32))
    before, after = (size - 1) // 2, size // 2
    return wide, bias + alpha / size * _neighbours(xp, wide * wide, before, after)


@kernel("LRN", temporaries=lambda x: 4 * max(x.bytes, 4 * math.prod(x.shape)))
def lrn(
    xp: Any, x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Array:
    """`y = x / base^beta`, `base = bias + alpha / size · Σ x²` over neighbouring channels."""
    wide, base = _lrn_base(xp, x, size, alpha, bias)
    return (wide / base**beta).astype(x.dtype)


@kernel("ai.gradtool::LRNGrad", temporaries=lambda x: 6 * max(x.bytes, 4 * math.prod(x.shape)))
def lrn_grad(
    xp: Any, x: Array, dy: Array, *, size: int, alpha: float, beta: float, bias: float
) -> Array:
    wide, base = _lrn_base(xp, x, size, alpha, bias)
    share = dy * wide * base ** (-beta - 1)
    spread = _neighbours(xp, share, size // 2, (size - 1) // 2)
    return (dy * base**-beta - 2 * alpha * beta / size * wide * spread).astype(x.dtype)
