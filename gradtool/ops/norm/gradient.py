"""Gradients of normalisation.

Statistics are kept, one number per row or channel; the normalised tensor is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.typed import Node, Tensor
from gradtool.ops.gradients import Gradients, gradient
from gradtool.ops.norm.body import channels_last
from gradtool.ops.shared.accumulation import inverse_root, widened


@gradient("LayerNormalization", broadcasts=True)
def layer_normalization(
    op: Builder, node: Node, dy: Tensor | None, dmean: Tensor | None = None,
    drstd: Tensor | None = None,
) -> Gradients:  # fmt: skip
    """`y = n · scale + bias` with `n = (x - mean) · rstd` over the axes from `axis` on.

    `mean` and `rstd` are the node's own optional outputs.  They are float32: of a float64 x, or
    where `stash_type` asks for another type, they are computed again.  A scale or bias
    that differs from row to row stays outside of the composite.
    """
    x, scale, *_ = node.inputs
    axis = node.attributes.get_int("axis", -1) % len(x.shape)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    stash = node.attributes.get_int("stash_type", ir.DataType.FLOAT)
    exact = x.dtype == ir.DataType.DOUBLE or stash != ir.DataType.FLOAT
    mean, rstd = (None, None) if exact else op.all_outputs(node, 3)[1:]
    dy = op.zeros_like(x) if dy is None else dy

    if _of_rows(node, axis):
        one = _full(op, op.constant(1.0, scale.dtype), x, axis)
        n = op.LayerNormalization(x, one, axis=axis, epsilon=epsilon)
        dx, _, _ = op.LayerNormalizationGrad(
            x, one, mean, rstd, dy * scale, axis=axis, epsilon=epsilon
        )
        dscale, dbias = dy * n, dy
    else:
        full = _full(op, scale, x, axis)
        dx, dscale, dbias = op.LayerNormalizationGrad(
            x, full, mean, rstd, dy, axis=axis, epsilon=epsilon
        )
    if dmean is not None or drstd is not None:
        dx = dx + _into_statistics(op, x, range(axis, len(x.shape)), epsilon, dmean, drstd)
    return dx, dscale, dbias


@gradient("RMSNormalization", broadcasts=True)
def rms_normalization(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x · rstd · scale` with `rstd = 1 / sqrt(mean(x²) + epsilon)`."""
    x, scale = node.inputs
    axis = node.attributes.get_int("axis", -1) % len(x.shape)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    if _of_rows(node, axis):
        one = _full(op, op.constant(1.0, scale.dtype), x, axis)
        n = op.RMSNormalization(x, one, axis=axis, epsilon=epsilon)
        dx, _ = op.RMSNormalizationGrad(x, one, dy * scale, axis=axis, epsilon=epsilon)
        return dx, dy * n
    full = _full(op, scale, x, axis)
    return op.RMSNormalizationGrad(x, full, dy, axis=axis, epsilon=epsilon)


def _of_rows(node: Node, axis: int) -> bool:
    """Whether a scale or bias has axes before the normalised ones."""
    parameters: Sequence[Tensor | None] = node.inputs[1:]
    most = len(node.inputs[0].shape) - axis
    return any(p is not None and len(p.shape) > most for p in parameters)


def _full(op: Builder, scale: Tensor, x: Tensor, axis: int) -> Tensor:
    """Scale expanded to the normalised axes, if it was broadcast along them."""
    tail = list(x.shape[axis:])
    if list(scale.shape) == tail:
        return scale
    return op.Expand(scale, op.sizes(tail))


def _into_statistics(
    op: Builder,
    x: Tensor,
    axes: Sequence[int],
    epsilon: float,
    dmean: Tensor | None,
    drstd: Tensor | None,
) -> Tensor:
    """Gradient of x through the outputs mean and 1/std."""
    mean, rstd = None, None
    x_ = op.cast(x, widened(x))
    count, mean = op.length(x_, axes), op.mean(x_, axes)
    centred = x_ - mean
    dx = op.zeros_like(x_)
    if dmean is not None:
        dx = dx + op.cast(dmean, x_.dtype) / count
    if drstd is not None:
        rstd = inverse_root(op, op.mean(centred * centred, axes), epsilon)
        dx = dx - op.cast(drstd, x_.dtype) * rstd * rstd * rstd * centred / count
    return op.cast(dx, x.dtype)


@gradient("InstanceNormalization")
def instance_normalization(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """Group normalisation with a group for each channel."""
    x, scale, _ = node.inputs
    if not isinstance(x.shape[1], int):
        raise UnsupportedGradient(node, "its number of channels is unknown; give it with --dim")
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    return op.GroupNormalizationGrad(x, scale, dy, num_groups=x.shape[1], epsilon=epsilon)


@gradient("GroupNormalization")
def group_normalization(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """Layer normalisation over groups of channels; scale is per channel, or per group below 21."""
    x, scale, _ = node.inputs
    if not isinstance(x.shape[1], int):
        raise UnsupportedGradient(node, "its number of channels is unknown; give it with --dim")
    groups = node.attributes.get_int("num_groups")
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    return op.GroupNormalizationGrad(x, scale, dy, num_groups=groups, epsilon=epsilon)


@gradient("BatchNormalization")
def batch_normalization(
    op: Builder, node: Node, dy: Tensor, dnew_mean: Tensor | None = None,
    dnew_var: Tensor | None = None,
) -> Gradients:  # fmt: skip
    """`y = (x - mean) · factor + bias` with `factor = scale · rstd`, `rstd = 1 / sqrt(var + ε)`.

        dx = dy · factor        dscale = Σ dy · (x - mean) · rstd        dbias = Σ dy
        dmean = -dbias · factor        dvar = -½ · dscale · scale · rstd²

    dx reads no x.  In training, see BatchNormalizationTraining.
    """
    if node.attributes.get_int("training_mode", 0):
        return _training(op, node, (None, None), dy, dnew_mean, dnew_var)
    x, scale, _, mean, var = node.inputs
    wide = widened(x)
    scale_, mean_, var_ = (op.cast(v, wide) for v in (scale, mean, var))
    rstd = inverse_root(op, var_, node.attributes.get_float("epsilon", 1e-5))
    factor = scale_ * rstd

    dx = dy * op.cast(channels_last(op, factor, x), x.dtype)
    dscale = op.BatchNormalizationGradScale(x, mean_, rstd, dy)
    dbias = op.sum(dy, [0, *range(2, len(x.shape))])
    dmean = -(op.cast(dbias, wide) * factor)
    dvar = dscale * scale_ * rstd * rstd * -0.5
    grads = (dscale, dbias, dmean, dvar)
    return dx, *(op.cast(g, v.dtype) for g, v in zip(grads, node.inputs[1:], strict=True))


@gradient("ai.gradtool::BatchNormalizationTraining")
def batch_normalization_training(
    op: Builder, node: Node, dy: Tensor | None, dnew_mean: Tensor | None, dnew_var: Tensor | None,
    dmean: Tensor | None, drstd: Tensor | None,
) -> Gradients:  # fmt: skip
    """`y = n · scale + bias` with `n = (x - mean) · rstd` by the statistics of the batch."""
    kept = node.outputs[3], node.outputs[4]
    return _training(op, node, kept, dy, dnew_mean, dnew_var, dmean, drstd)


def _training(
    op: Builder, node: Node, kept: Sequence[Tensor | None], dy: Tensor | None,
    dnew_mean: Tensor | None, dnew_var: Tensor | None, dmean: Tensor | None = None,
    drstd: Tensor | None = None,
) -> Gradients:  # fmt: skip
    """With means over all axes but the second.

        dx = scale · rstd · (dy - mean(dy) - n · mean(dy · n))

    and, where gradients come in through the statistics, what flows on from them.
    """
    x, scale, bias, *_ = node.inputs
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    momentum = node.attributes.get_float("momentum", 0.9)
    dy = op.zeros_like(x) if dy is None else dy
    dx, dscale, dbias = op.BatchNormalizationGrad(x, scale, *kept, dy, epsilon=epsilon)
    back = [None if d is None else d * momentum for d in (dnew_mean, dnew_var)]
    if any(d is not None for d in (dnew_mean, dnew_var, dmean, drstd)):
        dx = dx + _through(op, x, epsilon, 1 - momentum, dnew_mean, dnew_var, dmean, drstd)
    return dx, dscale, op.cast(dbias, bias.dtype), *back


def _through(
    op: Builder, x: Tensor, epsilon: float, share: float, dnew_mean: Tensor | None,
    dnew_var: Tensor | None, dmean: Tensor | None, drstd: Tensor | None,
) -> Tensor:  # fmt: skip
    """Gradient of x through the statistics of the batch."""
    wide, axes = widened(x), [0, *range(2, len(x.shape))]

    def spread(value: Tensor, factor: float = 1.0) -> Tensor:
        return channels_last(op, op.cast(value, wide), x) * factor

    x_ = op.cast(x, wide)
    count, centred = op.length(x_, axes), x_ - op.mean(x_, axes)
    dx = op.zeros_like(x_)
    for d, factor in ((dnew_mean, share), (dmean, 1.0)):
        if d is not None:
            dx = dx + spread(d, factor) / count
    if dnew_var is not None:
        dx = dx + spread(dnew_var, 2 * share) * centred / count
    if drstd is not None:
        rstd = inverse_root(op, op.mean(centred * centred, axes), epsilon)
        dx = dx - spread(drstd) * rstd * rstd * rstd * centred / count
    return op.cast(dx, x.dtype)


@gradient("LpNormalization")
def lp_normalization(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x / |x|ₚ` along one axis."""
    given = node.attributes
    return op.LpNormalizationGrad(
        node.inputs[0], dy, axis=given.get_int("axis", -1), p=given.get_int("p", 2)
    )


@gradient("MeanVarianceNormalization")
def mean_variance_normalization(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = (x - mean) / (std + 1e-9)` over `axes`."""
    axes = list(node.attributes.get_ints("axes", [0, 2, 3]))
    return op.MeanVarianceNormalizationGrad(node.inputs[0], dy, axes=axes)


@gradient("LRN")
def lrn(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x / base^beta` with `base = bias + alpha / size · Σ x²` over neighbouring channels."""
    given = node.attributes
    return op.LRNGrad(
        node.inputs[0], dy, size=given.get_int("size"), alpha=given.get_float("alpha", 1e-4),
        beta=given.get_float("beta", 0.75), bias=given.get_float("bias", 1.0),
    )  # fmt: skip
