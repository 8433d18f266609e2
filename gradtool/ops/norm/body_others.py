"""Composites of normalisation by p-norms, by mean and variance alone, by neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor
from gradtool.ops.shared.accumulation import widened


@composite("LpNormalizationGrad", like=0)
def lp_normalization_grad(op: Builder, x: Tensor, dy: Tensor, *, axis: int, p: int) -> Tensor:
    """`dx = r · (dy - s · Σ dy · y)` with `r = 1 / |x|ₚ`, 0 where the norm is 0, and `y = x · r`.

    The slope s is y for p = 2 and the sign of x for p = 1.
    """
    wide = widened(x)
    x_, dy_ = op.cast(x, wide), op.cast(dy, wide)
    norm = op.ReduceL1(x_, [axis]) if p == 1 else op.ReduceL2(x_, [axis])
    is_zero = op.Equal(norm, 0.0)
    inverse = op.Where(is_zero, op.constant(0.0, wide), op.Reciprocal(norm))

    y = x_ * inverse
    slope = op.Sign(x_) if p == 1 else y
    dx = inverse * (dy_ - slope * op.sum(dy_ * y, [axis], keepdims=True))
    return op.cast(dx, x.dtype)


@composite("MeanVarianceNormalizationGrad", like=0)
def mean_variance_normalization_grad(
    op: Builder, x: Tensor, dy: Tensor, *, axes: Sequence[int]
) -> Tensor:
    """With `c = x - mean`, `s = std`, `q = s + 1e-9` and means over `axes`.

    dx = (dy - mean(dy) - c · mean(dy · c) / (q · s)) / q
    """
    wide = widened(x)
    x_, dy_ = op.cast(x, wide), op.cast(dy, wide)
    c = x_ - op.mean(x_, axes)
    s = op.Sqrt(op.mean(c * c, axes))
    q = s + 1e-9
    share = op.mean(dy_ * c, axes) / (q * op.Where(op.Equal(s, 0.0), op.constant(1.0, wide), s))
    return op.cast((dy_ - op.mean(dy_, axes) - c * share) / q, x.dtype)


@composite("LRNGrad", like=0)
def lrn_grad(
    op: Builder, x: Tensor, dy: Tensor, *, size: int, alpha: float, beta: float, bias: float
) -> Tensor:
    """With `base = bias + alpha / size · Σ x²` over neighbouring channels, which see each other.

    dx = dy · base^-beta - 2 · alpha · beta / size · x · Σ dy · x · base^(-beta - 1)
    """
    before, after = (size - 1) // 2, size // 2
    base = _neighbours(op, x * x, size, before, after) * (alpha / size) + bias
    share = dy * x * op.Pow(base, op.constant(-beta - 1, x.dtype))
    spread = _neighbours(op, share, size, after, before)
    direct = dy * op.Pow(base, op.constant(-beta, x.dtype))
    return direct - x * spread * (2 * alpha * beta / size)


def _neighbours(op: Builder, x: Tensor, size: int, before: int, after: int) -> Tensor:
    """The sum of `before` channels before, each channel, and `after` channels after it."""
    planes = op.Reshape(op.unsqueeze(x, 1), [0, 0, 0, -1])
    ends = [before, 0, after, 0]
    mean = op.AveragePool(planes, kernel_shape=[size, 1], pads=ends, count_include_pad=1)
    return op.reshape_like(mean, x) * float(size)
