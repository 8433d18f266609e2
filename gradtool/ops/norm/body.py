"""Composites of the norm family."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor
from gradtool.ops.shared.accumulation import inverse_root, widened


def moments(op: Builder, x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor]:
    """Mean and 1/std over `axes`, kept as axes of size one."""
    mean = op.mean(x, axes)
    centred = x - mean
    return mean, inverse_root(op, op.mean(centred * centred, axes), epsilon)


def product_sums(op: Builder, a: Tensor, b: Tensor) -> Tensor:
    """`Σ a · b` of each channel, over all axes but the second: a product of a row by a column.

    Nothing as large as a is made.
    """
    if len(a.shape) == 2:
        return op.sum(a * b, [0])
    n, c, *_ = a.shape
    found = op.MatMul(op.reshape(a, [n, c, 1, -1]), op.reshape(b, [n, c, -1, 1]))
    return op.sum(found, [0, 2, 3])


def layer_gradient(
    op: Builder, n: Tensor, p: Tensor, dy: Tensor, scale: Tensor, rstd: Tensor, axes: Sequence[int]
) -> Tensor:
    """`dx = d - mean(d)` with `d = rstd · (dn - n · mean(dn · n))` and `dn = dy · scale`.

    Here `n = (x - mean) · rstd` and `p = dy · n`, of which the caller has taken its sums: each is
    read here for the last time.  The mean is taken off last, so that `Σ dx` is zero but for the
    rounding of dx, as it is in mathematics: the gradient of a bias before a normalisation is that
    sum.
    """
    share = op.mean(p * scale, axes)
    d = (dy * scale - n * share) * rstd
    return d - op.mean(d, axes)


@composite("LayerNormalizationGrad", like=(0, 1, 1))
def layer_normalization_grad(
    op: Builder, x: Tensor, scale: Tensor, mean: Tensor | None, rstd: Tensor | None, dy: Tensor, *,
    axis: int, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """With `n = (x - mean) · rstd` and `dn = dy · scale`, over the axes from `axis` on.

        dx = rstd · (dn - mean(dn) - n · mean(dn · n))
        dscale = Σ dy · n        dbias = Σ dy

    The statistics are computed again where they were not kept.
    """
    axes, lead, wide = range(axis, len(x.shape)), range(axis), widened(x)
    x_, dy_, scale_ = (op.cast(v, wide) for v in (x, dy, scale))
    if mean is None or rstd is None:
        mean, rstd = moments(op, x_, axes, epsilon)

    n = (x_ - mean) * rstd
    p = dy_ * n
    dscale, dbias = op.sum(p, lead), op.sum(dy_, lead)
    dx = layer_gradient(op, n, p, dy_, scale_, rstd, axes)
    return op.cast(dx, x.dtype), op.cast(dscale, scale.dtype), op.cast(dbias, scale.dtype)


@composite("RMSNormalizationGrad", like=(0, 1))
def rms_normalization_grad(
    op: Builder, x: Tensor, scale: Tensor, dy: Tensor, *, axis: int, epsilon: float
) -> tuple[Tensor, Tensor]:
    """With `n = x · rstd`, `rstd = 1 / sqrt(mean(x²) + epsilon)` and `dn = dy · scale`.

    dx = rstd · (dn - n · mean(dn · n))        dscale = Σ dy · n
    """
    axes, lead, wide = range(axis, len(x.shape)), range(axis), widened(x)
    x_, dy_, scale_ = (op.cast(v, wide) for v in (x, dy, scale))
    rstd = inverse_root(op, op.mean(x_ * x_, axes), epsilon)

    n = x_ * rstd
    p = dy_ * n
    dscale = op.sum(p, lead)
    share = op.mean(p * scale_, axes)
    dx = (dy_ * scale_ - n * share) * rstd
    return op.cast(dx, x.dtype), op.cast(dscale, scale.dtype)


@composite("GroupNormalizationGrad", like=(0, 1, 1))
def group_normalization_grad(
    op: Builder, x: Tensor, scale: Tensor, dy: Tensor, *, num_groups: int, epsilon: float
) -> tuple[Tensor, ...]:
    """As for LayerNormalization, over `C/G` channels and all of space, in `[N, G, C/G, S]`.

    Scale is per channel, or per group.
    """
    wide, parts = widened(x), [x.shape[0], num_groups, x.shape[1] // num_groups, -1]
    x_, dy_ = (op.reshape(op.cast(v, wide), parts) for v in (x, dy))
    per_group = scale.shape[0] == num_groups
    each = [num_groups, 1 if per_group else parts[2], 1]
    mean, rstd = moments(op, x_, (2, 3), epsilon)

    over = (0, 2, 3) if per_group else (0, 3)
    scale_ = op.reshape(op.cast(scale, wide), each)
    n = (x_ - mean) * rstd
    p = dy_ * n
    sums = [op.reshape(op.sum(s, over), scale.shape) for s in (p, dy_)]
    dx = layer_gradient(op, n, p, dy_, scale_, rstd, (2, 3))
    return op.cast(op.reshape_like(dx, x), x.dtype), *(op.cast(s, scale.dtype) for s in sums)


def channels_last(op: Builder, v: Tensor, x: Tensor) -> Tensor:
    """A vector of channels, shaped to be broadcast to x."""
    return op.unsqueeze(v, list(range(1, len(x.shape) - 1)))


def _training_shapes(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Outputs:
    kept = ir.DataType.DOUBLE if x.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    return [
        (x.shape, x.dtype), (mean.shape, mean.dtype), (var.shape, var.dtype),
        (scale.shape, kept), (scale.shape, kept),
    ]  # fmt: skip


@composite("BatchNormalizationTraining", shapes=_training_shapes, outputs=5)
def batch_normalization_training(
    op: Builder, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *,
    epsilon: float, momentum: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """`y = (x - m) · rstd · scale + bias` with `rstd = 1 / sqrt(v + epsilon)`.

        new_mean = mean · momentum + m · (1 - momentum)        new_var likewise with v

    Mean m and biased variance v are over the batch and all of space.  The fourth and fifth
    output are m and rstd.
    """
    axes, wide = [0, *range(2, len(x.shape))], widened(x)
    x_ = op.cast(x, wide)
    m = op.mean(x_, axes)
    centred = x_ - m
    v = product_sums(op, centred, centred) / op.length(x_, axes)
    rstd = inverse_root(op, v, epsilon)

    scale_, bias_ = (op.cast(p, wide) for p in (scale, bias))
    factor, offset = (channels_last(op, p, x) for p in (rstd * scale_, bias_))
    y = op.cast(centred * factor + offset, x.dtype)
    m = op.reshape(m, scale.shape)
    new_mean, new_var = (
        op.cast(op.cast(old, wide) * momentum + new * (1 - momentum), old.dtype)
        for old, new in ((mean, m), (var, v))
    )
    return y, new_mean, new_var, m, rstd


@composite("BatchNormalizationGrad", like=(0, 1, 1))
def batch_normalization_grad(
    op: Builder, x: Tensor, scale: Tensor, mean: Tensor | None, rstd: Tensor | None, dy: Tensor, *,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """With `n = (x - mean) · rstd`, sums and means over all axes but the second.

    dx = d - mean(d) with d = scale · rstd · (dy - n · mean(dy · n))
    dscale = Σ dy · n        dbias = Σ dy

    The sums come first, and d takes the place of what it is made of.
    """
    axes, wide = [0, *range(2, len(x.shape))], widened(x)
    x_, dy_, scale_ = (op.cast(v, wide) for v in (x, dy, scale))
    if mean is None or rstd is None:
        mean, rstd = (op.reshape(s, scale.shape) for s in moments(op, x_, axes, epsilon))

    # The bits of x - mean, which runtimes would take from forward, and hold for it until now.
    centred = x_ + channels_last(op, -mean, x)
    dscale = product_sums(op, dy_, centred) * rstd
    dbias = op.sum(dy_, axes)
    share = rstd * dscale / op.length(x_, axes)
    d = (dy_ - centred * channels_last(op, share, x)) * channels_last(op, scale_ * rstd, x)
    dx = d - op.mean(d, axes)
    return op.cast(dx, x.dtype), op.cast(dscale, scale.dtype), op.cast(dbias, scale.dtype)


@composite("BatchNormalizationGradScale", like=1)
def batch_normalization_grad_scale(
    op: Builder, x: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor
) -> Tensor:
    """`Σ dy · (x - mean) · rstd` over all axes but the second."""
    wide = widened(x)
    mean_, rstd_ = (op.cast(v, wide) for v in (mean, rstd))
    centred = op.cast(x, wide) + channels_last(op, -mean_, x)
    return op.cast(product_sums(op, op.cast(dy, wide), centred) * rstd_, mean.dtype)


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
